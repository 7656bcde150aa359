-- gen_random_uuid
-- share: 0.5
-- timed
SELECT count(gen_random_uuid()) FROM (SELECT generate_series(1, :n)) AS g;
