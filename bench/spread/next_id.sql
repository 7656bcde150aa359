-- next_id
-- timed
\if :is_warm = 0
	-- the first call of each sequence fills the session's caches
	SELECT count(snowid.next_id(i, ours)) FROM seqs WHERE i < :k;
	\set is_warm 1
\endif
\set i random(0, :k - 1)
SELECT snowid.next_id(i, ours) FROM seqs WHERE i = :i;
