// Photos of a user, in the shard where the user lives.
//
//	node photos.mjs 31341
import { DataTypes, Op, col, fn } from 'sequelize';
import { sequelizeShards } from 'snowid/sequelize';

const shards = sequelizeShards({
	define: (db) => {
		db.define('photo', {
			// A string in JavaScript.  autoIncrement: the table's DEFAULT makes it.
			id: { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true },
			user_id: { type: DataTypes.BIGINT, allowNull: false },
			caption: { type: DataTypes.TEXT, allowNull: false },
		}, { tableName: 'photos', timestamps: false });
	},
});

// The work gets the photos of the user's shard, whose schema qualifies all names.
function photosOf(user, work) {
	return shards.of(BigInt(user), (db, schema, shard) => work(db.models.photo.schema(schema), shard));
}

async function main(user) {
	const first = await photosOf(user, (photos, shard) => {
		console.log(`user ${user} lives in shard ${shard}`);
		return photos.create({ user_id: user, caption: 'the first' });
	});
	console.log(`inserted ${first.id}`);

	const more = await photosOf(user, (photos) => photos.bulkCreate(
		Array.from({ length: 1000 }, (_, n) => ({ user_id: user, caption: `photo ${n + 1}` }))));
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const { made, shard } = await photosOf(user, (photos) => photos.findByPk(first.id, {
		attributes: [[fn('snowid.id_timestamp', col('id')), 'made'], [fn('snowid.id_shard', col('id')), 'shard']],
		raw: true,
	}));
	console.log(`made ${made.toISOString()} in shard ${shard}`);

	const until = new Date(made.getTime() + 60000);
	const found = await photosOf(user, (photos) => photos.findAll({
		where: { id: { [Op.gte]: fn('snowid.min_id', made), [Op.lt]: fn('snowid.min_id', until) } },
		order: [['id', 'DESC']],
	}));
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);

	// The next page has the ids below the last one of this page.
	let count = 0;
	let page, last;
	do {
		page = await photosOf(user, (photos) => photos.findAll({
			attributes: ['id'],
			where: { user_id: user, ...last && { id: { [Op.lt]: last } } },
			order: [['id', 'DESC']],
			limit: 400,
		}));
		count += page.length;
		last = page.at(-1)?.id ?? last;
	} while (page.length === 400);
	console.log(`in pages of 400: ${count} photos, the oldest ${last}`);
}

main(process.argv[2]).finally(() => shards.end());
