-- nextval
-- timed
SELECT count(nextval(((SELECT array_agg(cores ORDER BY i) FROM seqs))[i % :k + 1]))
FROM generate_series(1, :n) i;
