-- next_id, portable edition
-- share: 0.1
CREATE SEQUENCE IF NOT EXISTS cpu_portable;
-- timed
SELECT count(portable.next_id(5, 'cpu_portable')) FROM (SELECT generate_series(1, :n)) AS g;
