// Photos of a user, in the shard where the user lives.
//
//	node photos.js 31341
'use strict';

const { DataTypes, Op, Sequelize, col, fn } = require('sequelize');

const { PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD } = process.env;
const sequelize = new Sequelize(PGDATABASE, PGUSER, PGPASSWORD,
	{ dialect: 'postgres', host: PGHOST, port: PGPORT, logging: false });

const Photo = sequelize.define('photo', {
	// A string in JavaScript.  autoIncrement: the table's DEFAULT makes it.
	id: { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true },
	user_id: { type: DataTypes.BIGINT, allowNull: false },
	caption: { type: DataTypes.TEXT, allowNull: false },
}, { tableName: 'photos', timestamps: false });

async function main(user) {
	const shard = BigInt(user) % 2000n;
	const photos = Photo.schema(`insta${shard}`);	// qualifies all names
	console.log(`user ${user} lives in shard ${shard}`);

	const first = await photos.create({ user_id: user, caption: 'the first' });
	console.log(`inserted ${first.id}`);

	const more = await photos.bulkCreate(
		Array.from({ length: 1000 }, (_, n) => ({ user_id: user, caption: `photo ${n + 1}` })));
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const { made, shard: stored } = await photos.findByPk(first.id, {
		attributes: [[fn('snowid.id_timestamp', col('id')), 'made'], [fn('snowid.id_shard', col('id')), 'shard']],
		raw: true,
	});
	console.log(`made ${made.toISOString()} in shard ${stored}`);

	const until = new Date(made.getTime() + 60000);
	const found = await photos.findAll({
		where: { id: { [Op.gte]: fn('snowid.min_id', made), [Op.lt]: fn('snowid.min_id', until) } },
		order: [['id', 'DESC']],
	});
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);
}

main(process.argv[2]).finally(() => sequelize.close());
