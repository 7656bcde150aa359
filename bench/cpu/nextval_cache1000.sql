-- nextval, CACHE 1000
CREATE SEQUENCE IF NOT EXISTS cpu_nextval_cache1000 CACHE 1000;
-- timed
SELECT count(nextval('cpu_nextval_cache1000')) FROM (SELECT generate_series(1, :n)) AS g;
