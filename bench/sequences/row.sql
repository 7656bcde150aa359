-- a row and the choice of a sequence: subtracted from the others
-- timed
SELECT count(((SELECT array_agg(ours ORDER BY i) FROM seqs))[i % :k + 1])
FROM generate_series(1, :n) i;
