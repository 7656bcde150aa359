# What the writers call, in each edition and in what snowid is compared with.
package Torture::Schema;

use strict;
use warnings;

use Exporter 'import';
use SnowidTest ();
use Torture;

our @EXPORT = qw(schema);

# What the writers call: torture.ids(sequence, calls), and the same with
# nextval().  A sequence's shard number is its own, and a re-created one gets
# a new one.  Numbers that a call with INCREMENT reserves are all returned.
# Half of the sequences that are used seldom have an epoch of their own.
sub schema
{
	my $n = SEQUENCES + $n_seldom - 1;
	my $sql = <<"SQL";
CREATE SCHEMA torture;
CREATE TABLE torture.rows (id bigint PRIMARY KEY);
CREATE TABLE torture.restarted (id bigint);
CREATE TABLE torture.seqs
	(n int PRIMARY KEY, shard int, seq regclass, increment int, epoch timestamptz);
DO \$\$
BEGIN
	FOR i IN 0 .. $n LOOP
		EXECUTE format('CREATE SEQUENCE torture.%I', 'q' || i);
		INSERT INTO torture.seqs VALUES (i, i, 'torture.q' || i, 1,
			CASE WHEN i < @{[SEQUENCES]} THEN NULL
				 WHEN i % 4 = 1 THEN timestamptz '2000-01-01 00:00:00+00'
				 WHEN i % 4 = 3 THEN timestamptz '2024-07-01 00:00:00+00' END);
	END LOOP;
END
\$\$;
ALTER SEQUENCE torture.q@{[RESTARTED]} OWNED BY torture.restarted.id;
GRANT USAGE ON SCHEMA torture TO app;
GRANT $usage ON ALL SEQUENCES IN SCHEMA torture TO app;
GRANT SELECT ON torture.seqs TO app;
GRANT SELECT, INSERT ON torture.rows TO app;
SQL

	my $nextvals = <<'SQL';
(n int, calls int) RETURNS SETOF bigint
LANGUAGE sql AS $$
SELECT ((slot >> 10) << 23) | (shard << 10) | (slot & 1023)
  FROM (SELECT nextval(seq) AS slot, shard
		  FROM torture.seqs s, generate_series(1, $2)
		 WHERE s.n = $1 OFFSET 0) AS slots
$$;
SQL
	return "$sql CREATE FUNCTION torture.ids $nextvals CREATE FUNCTION torture.nextvals $nextvals"
	  if $option{generator} eq 'nextval';
	my $ids = <<'SQL';
(n int, calls int) RETURNS SETOF bigint
LANGUAGE sql AS $$
SELECT snowid.next_id(shard, seq)
  FROM torture.seqs s, generate_series(1, $2)
 WHERE s.n = $1 AND increment = 1 AND epoch IS NULL
UNION ALL
SELECT snowid.next_id(shard, seq, epoch)
  FROM torture.seqs s, generate_series(1, $2)
 WHERE s.n = $1 AND epoch IS NOT NULL
UNION ALL
SELECT id + i
  FROM (SELECT snowid.next_id(shard, seq) AS id, increment
		  FROM torture.seqs s, generate_series(1, $2)
		 WHERE s.n = $1 AND increment > 1 OFFSET 0) AS block,
	   generate_series(0, increment - 1) AS i
$$;
SQL
	$sql .= $is_portable ? slurp_file(SnowidTest::portable_file('sql')) : 'CREATE EXTENSION snowid;' if $is_snowid;
	return "$sql CREATE FUNCTION torture.ids $ids CREATE FUNCTION torture.nextvals "
	  . ($is_portable ? $ids : $nextvals) . <<'SQL' if $is_snowid;
CREATE FUNCTION torture.ahead() RETURNS interval
LANGUAGE sql AS $$
SELECT max(CASE WHEN s.epoch IS NULL THEN (snowid.sequence_state(seq)).ahead
				ELSE (snowid.sequence_state(seq, s.epoch)).ahead END)
  FROM torture.seqs s
$$;
SQL

	$sql .= SnowidTest::snippet_function("torture.next_id_$_", "torture.q$_", $_) for 0 .. $n;
	my $union = join(' UNION ALL ',
		map { "SELECT torture.next_id_$_() FROM generate_series(1, \$2) WHERE \$1 = $_" }
		  0 .. $n);
	$sql .= <<"SQL" for 'ids', 'nextvals';
CREATE FUNCTION torture.$_(n int, calls int) RETURNS SETOF bigint
LANGUAGE sql AS \$\$ $union \$\$;
SQL
	return $sql;
}

1;
