-- PL/pgSQL snippet
-- share: 0.1
-- timed
SELECT count(insta5.next_id()) FROM (SELECT generate_series(1, :n)) AS g;
