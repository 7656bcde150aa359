-- a row without an id: what all the others pay too, and is subtracted
-- timed
SELECT count(i) FROM (SELECT generate_series(1, :n)) AS g (i);
