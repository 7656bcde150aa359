-- nextval
CREATE SEQUENCE IF NOT EXISTS cpu_nextval;
-- timed
SELECT count(nextval('cpu_nextval')) FROM (SELECT generate_series(1, :n)) AS g;
