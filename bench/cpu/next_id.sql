-- next_id
CREATE SEQUENCE IF NOT EXISTS cpu_next_id;
-- timed
SELECT count(snowid.next_id(5, 'cpu_next_id')) FROM generate_series(1, :n);
