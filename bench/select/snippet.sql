-- PL/pgSQL snippet
-- timed
SELECT insta5.next_id();
