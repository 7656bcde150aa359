-- uuidv7 (PostgreSQL 18)
-- needs: to_regprocedure('uuidv7()') IS NOT NULL
-- share: 0.5
-- timed
SELECT count(uuidv7()) FROM (SELECT generate_series(1, :n)) AS g;
