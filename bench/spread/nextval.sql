-- nextval
-- timed
\if :is_warm = 0
	CALL warm_up(:k, false);
	\set is_warm 1
\endif
\set i random(0, :k - 1)
SELECT nextval(cores) FROM seqs WHERE i = :i;
