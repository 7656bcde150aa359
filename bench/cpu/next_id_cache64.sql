-- next_id, CACHE 64
CREATE SEQUENCE IF NOT EXISTS cpu_next_id_cache64 CACHE 64;
-- timed
SELECT count(snowid.next_id(5, 'cpu_next_id_cache64')) FROM (SELECT generate_series(1, :n)) AS g;
