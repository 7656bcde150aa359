-- next_id
-- timed
\if :is_warm = 0
	CALL warm_up(:k, true);
	\set is_warm 1
\endif
\set i random(0, :k - 1)
SELECT snowid.next_id(i, ours) FROM seqs WHERE i = :i;
