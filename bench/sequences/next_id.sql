-- next_id
-- timed
SELECT count(snowid.next_id(5, ((SELECT array_agg(ours ORDER BY i) FROM seqs))[i % :k + 1]))
FROM generate_series(1, :n) i;
