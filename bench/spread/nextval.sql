-- nextval
-- timed
\if :is_warm = 0
	-- the first call of each sequence fills the session's caches
	SELECT count(nextval(cores)) FROM seqs WHERE i < :k;
	\set is_warm 1
\endif
\set i random(0, :k - 1)
SELECT nextval(cores) FROM seqs WHERE i = :i;
