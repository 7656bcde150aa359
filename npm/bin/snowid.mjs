#!/usr/bin/env node
// npx snowid migration --tool knex|drizzle|typeorm|prisma|sql [--shard 5] [--out directory]
//
// Writes the portable edition, with its version, as that tool's migration, and says its
// path.  With --shard, it registers the schema public as that shard.
import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const WHERE = { knex: 'migrations', drizzle: 'drizzle', typeorm: 'migrations', prisma: 'prisma/migrations', sql: '.' };
const usage = `usage: snowid migration --tool ${Object.keys(WHERE).join('|')} [--shard NUMBER] [--out DIRECTORY]`;

function fail(message) {
	console.error(message);
	process.exit(1);
}

let parsed;
try {
	parsed = parseArgs({ allowPositionals: true, options: { tool: { type: 'string' }, shard: { type: 'string' }, out: { type: 'string' }, help: { type: 'boolean' } } });
} catch (error) {
	fail(`snowid: ${error.message}\n${usage}`);
}
const { values: { tool, shard, out, help }, positionals } = parsed;
if (help) {
	console.log(usage);
	process.exit(0);
}
if (positionals.join() !== 'migration')
	fail(usage);
if (!Object.hasOwn(WHERE, tool ?? ''))
	fail(`snowid: ${tool === undefined ? '--tool is missing' : `no such tool: "${tool}"`}\n${usage}`);
if (shard !== undefined && !(/^\d{1,4}$/.test(shard) && Number(shard) < 8192))
	fail(`snowid: --shard must be a number from 0 to 8191, not "${shard}"`);

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const name = `snowid_${version.replace(/\.\d+$/, '').replaceAll('.', '_')}`;
const sql = `-- snowid ${version}, portable edition\n${readFileSync(new URL('../dist/snowid.sql', import.meta.url), 'utf8')}`
	+ (shard === undefined ? '' : `\nSELECT snowid.register_shard(${shard}, 'public') WHERE NOT EXISTS (SELECT FROM snowid.shard_registry WHERE shard = ${shard} AND schema = 'public');\n`);
const directory = out ?? WHERE[tool];
const now = new Date();
const stamp = now.toISOString().replace(/\D/g, '').slice(0, 14);

// Node's own "recursive" tries for ever where a directory says ENOENT, as /proc does.
function makeDirectory(path) {
	if (!existsSync(path)) {
		makeDirectory(dirname(path));
		mkdirSync(path);
	}
}

function write(path, text) {
	let file;
	try {
		makeDirectory(dirname(resolve(path)));
		file = openSync(path, tool === 'drizzle' ? 'w' : 'wx');
		writeFileSync(file, text);
		closeSync(file);
	} catch (error) {
		// Half of one would be run, or taken for one that is there.
		if (file !== undefined && tool !== 'drizzle')
			rmSync(tool === 'prisma' ? dirname(path) : path, { recursive: true, force: true });
		fail(`snowid: ${error.message}`);
	}
	console.log(path);
}

// A second one would be refused only when it runs.
let there;
try {
	there = existsSync(directory) && statSync(directory).isDirectory() && readdirSync(directory).find((file) => file.includes(name));
} catch (error) {
	fail(`snowid: ${error.message}`);
}
if (there)
	fail(`snowid: ${join(directory, there)} is there already`);

// JavaScript's text of the statements, by lines that can be read.
const literal = `[\n${sql.split('\n').map((line) => `\t${JSON.stringify(line)},\n`).join('')}].join('\\n')`;

switch (tool) {
case 'knex':
	// Each ? would be a parameter.
	write(join(directory, `${stamp}_${name}.cjs`),
		`const sql = ${literal};\n\nexports.up = (knex) => knex.raw(sql.replaceAll('?', '\\\\?'));\n\nexports.down = async () => {};\n`);
	break;
case 'typeorm':
	write(join(directory, `${Number(now)}-${name}.mjs`),
		`const sql = ${literal};\n\nexport class ${name.replace(/^s/, 'S').replaceAll('_', '')}${Number(now)} {\n`
		+ '\tasync up(runner) {\n\t\tawait runner.query(sql);\n\t}\n\n\tasync down() {\n\t}\n}\n');
	break;
case 'prisma':
	write(join(directory, `${stamp}_${name}`, 'migration.sql'), sql);
	break;
case 'drizzle': {
	// Its journal is its own affair: it makes an empty migration, which is then filled.
	const { status, error } = spawnSync('npx', ['drizzle-kit', 'generate', '--custom', `--name=${name}`], { stdio: ['ignore', 2, 2] });
	if (status !== 0)
		fail(`snowid: drizzle-kit generate has failed${error ? `: ${error.message}` : ''}`);
	const made = existsSync(directory) && readdirSync(directory).filter((file) => file.endsWith(`_${name}.sql`)).sort().at(-1);
	if (!made)
		fail(`snowid: drizzle-kit has made its empty migration elsewhere than in ${directory}: remove it, and name that directory by --out`);
	write(join(directory, made), sql.replace(/\n(?=SELECT snowid\.register_shard\(\d+, 'public'\) [^;]*;\n$)/, '\n--> statement-breakpoint\n'));
	break;
}
default:
	write(join(directory, `${name}.sql`), sql);
}
