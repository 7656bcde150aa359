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
