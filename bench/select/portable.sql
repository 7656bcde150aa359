-- next_id, portable edition
CREATE SEQUENCE IF NOT EXISTS select_portable;
-- timed
SELECT portable.next_id(5, 'select_portable');
