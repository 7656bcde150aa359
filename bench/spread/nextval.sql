-- nextval
-- timed
\set i random(0, :k - 1)
SELECT nextval(cores) FROM seqs WHERE i = :i;
