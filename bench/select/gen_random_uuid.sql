-- gen_random_uuid
-- timed
SELECT gen_random_uuid();
