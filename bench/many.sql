-- Many sequences, for the measures of how cost grows with their number: as many
-- as the setting bench.sequences says.  Their variants find them in the table
-- seqs.
CREATE TABLE IF NOT EXISTS seqs (i int PRIMARY KEY, ours regclass, cores regclass);
DO $$
BEGIN
	FOR i IN (SELECT count(*) FROM seqs) .. current_setting('bench.sequences')::int - 1 LOOP
		EXECUTE pg_catalog.format('CREATE SEQUENCE ours_%s; CREATE SEQUENCE cores_%1$s', i);
		INSERT INTO seqs VALUES (i, 'ours_' || i, 'cores_' || i);
	END LOOP;
END
$$;
VACUUM ANALYZE seqs;

-- Fill the session's caches: the first call of each sequence is dear.  Each has a
-- transaction of its own, since after one that has locked thousands of sequences,
-- PostgreSQL scans a large table of locks at each commit of the session.
CREATE OR REPLACE PROCEDURE warm_up(k int, is_ours boolean) LANGUAGE plpgsql AS $$
DECLARE
	seq record;
BEGIN
	FOR seq IN SELECT * FROM seqs WHERE i < k LOOP
		IF is_ours THEN
			PERFORM snowid.next_id(seq.i, seq.ours);
		ELSE
			PERFORM nextval(seq.cores);
		END IF;
		COMMIT;
	END LOOP;
END
$$;
