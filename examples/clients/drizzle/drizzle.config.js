const { PGHOST, PGPORT, PGDATABASE, PGUSER } = process.env;

module.exports = {
	dialect: 'postgresql',
	schema: './schema.mjs',
	dbCredentials: { url: `postgresql://${PGUSER}@${PGHOST}:${PGPORT}/${PGDATABASE}` },
};
