-- Both editions, and the schemas of V3__shards.sql.
DROP EXTENSION IF EXISTS snowid CASCADE;
DROP SCHEMA IF EXISTS snowid, snowid_internal, insta1340, insta1341, insta1342 CASCADE;
