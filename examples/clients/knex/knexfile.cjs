const { PGHOST: host, PGPORT: port, PGDATABASE: database, PGUSER: user } = process.env;

module.exports = { client: 'pg', connection: { host, port, database, user } };
