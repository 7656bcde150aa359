-- nextval
CREATE SEQUENCE IF NOT EXISTS select_nextval;
-- timed
SELECT nextval('select_nextval');
