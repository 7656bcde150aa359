-- next_id
CREATE SEQUENCE IF NOT EXISTS select_next_id;
-- timed
SELECT snowid.next_id(5, 'select_next_id');
