-- next_id
CREATE SEQUENCE IF NOT EXISTS cpu_next_id;
-- timed
SELECT count(snowid.next_id(5, 'cpu_next_id')) FROM (SELECT generate_series(1, :n)) AS g;
