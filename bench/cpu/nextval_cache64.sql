-- nextval, CACHE 64
CREATE SEQUENCE IF NOT EXISTS cpu_nextval_cache64 CACHE 64;
-- timed
SELECT count(nextval('cpu_nextval_cache64')) FROM (SELECT generate_series(1, :n)) AS g;
