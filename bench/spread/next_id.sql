-- next_id
-- timed
\set i random(0, :k - 1)
SELECT snowid.next_id(i, ours) FROM seqs WHERE i = :i;
