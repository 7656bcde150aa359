-- typed5.next_id()
-- timed
SELECT typed5.next_id();
