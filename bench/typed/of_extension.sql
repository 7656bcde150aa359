-- snowid.next_id(5, 'typed5.id_seq')
-- timed
SELECT snowid.next_id(5, 'typed5.id_seq');
