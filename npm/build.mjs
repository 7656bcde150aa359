// Makes what is published, in a directory: modules as they are and for require(), each
// with its types, and the portable edition.
//
//	node build.mjs [directory]
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const to = process.argv[2] ?? join(here, 'dist');
rmSync(to, { recursive: true, force: true });
mkdirSync(to, { recursive: true });

for (const file of readdirSync(join(here, 'src'))) {
	const text = readFileSync(join(here, 'src', file), 'utf8');
	const name = file.replace(/\..*/, '');
	if (file.endsWith('.d.ts')) {
		for (const end of ['mts', 'cts'])
			writeFileSync(join(to, `${name}.d.${end}`), text.replace(/ from '(\.\/[^']*)'/g, ` from '$1.${end.replace('t', 'j')}'`));
	} else {
		writeFileSync(join(to, file), text);
		writeFileSync(join(to, `${name}.cjs`), forRequire(text));
	}
}
const root = join(here, '..');
writeFileSync(join(to, 'snowid.sql'), execFileSync(join(root, 'portable/build'), ['sql'], { maxBuffer: 2 ** 26 }));
cpSync(join(root, 'LICENSE'), join(here, 'LICENSE'));

// The imports and exports that are here, and no others.
function forRequire(text) {
	const exported = [];
	const required = (from) => `require('${from.replace(/\.mjs$/, '.cjs')}')`;
	const code = text
		.replace(/^import (\w+) from '(.*)';$/gm, (_, name, from) => `const ${name} = interop(${required(from)});`)
		.replace(/^import \{ (.*) \} from '(.*)';$/gm, (_, names, from) => `const { ${names.replaceAll(' as ', ': ')} } = ${required(from)};`)
		.replace(/^export \{ (.*) \} from '.*';$/gm, (_, name) => (exported.push(name), ''))
		.replace(/^export (const|function|class) (\w+)/gm, (_, kind, name) => (exported.push(name), `${kind} ${name}`));
	if (/^(import|export)\b/m.test(code))
		throw new Error(`not understood: ${/^(import|export)\b.*/m.exec(code)[0]}`);
	const interop = code.includes('interop(') ? 'const interop = (module) => module.default ?? module;\n' : '';
	return `'use strict';\n${interop}${code}\nmodule.exports = { ${exported.join(', ')} };\n`;
}
