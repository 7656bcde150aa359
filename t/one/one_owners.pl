# A copy runs nothing of the shard's owner with the rights of whoever makes it: its
# CHECKs, domains, generated columns, index expressions and so on are functions that a lesser
# role may have written, and who copies or restores is a superuser.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE ROLE app') for $a, $b;
$a->safe_psql('postgres', q{
SELECT snowid.create_shard(5);
CREATE FUNCTION insta5.note(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql
AS $$BEGIN RAISE LOG 'RAN % as %', place, current_user; RETURN true; END$$;
CREATE DOMAIN insta5.checked AS text CHECK (insta5.note('domain ' || VALUE));
CREATE FUNCTION insta5.fire() RETURNS trigger LANGUAGE plpgsql
AS $$BEGIN RAISE LOG 'RAN trigger as %', current_user; RETURN NEW; END$$;
CREATE TABLE insta5.t (
	id bigint PRIMARY KEY DEFAULT insta5.next_id(),
	v insta5.checked,
	g boolean GENERATED ALWAYS AS (insta5.note('generated ' || id)) STORED,
	CHECK (insta5.note('check ' || id)));
CREATE INDEX ON insta5.t (insta5.note('index ' || id));
CREATE INDEX ON insta5.t (id) WHERE insta5.note('constant of an index');
CREATE TRIGGER fire BEFORE INSERT ON insta5.t FOR EACH ROW EXECUTE FUNCTION insta5.fire();
CREATE STATISTICS insta5.s ON (insta5.note('statistics ' || id)), id FROM insta5.t;
CREATE MATERIALIZED VIEW insta5.m AS SELECT insta5.note('view') FROM insta5.t;
INSERT INTO insta5.t (v) SELECT 'x' FROM generate_series(1, 5);
ALTER SCHEMA insta5 OWNER TO app;
ALTER TABLE insta5.t OWNER TO app;
ALTER MATERIALIZED VIEW insta5.m OWNER TO app;
ALTER DOMAIN insta5.checked OWNER TO app;
ALTER FUNCTION insta5.note(text) OWNER TO app;
ALTER FUNCTION insta5.fire() OWNER TO app;
});
$a->backup('then');
my $then = PostgreSQL::Test::Cluster->new('then');
$then->init_from_backup($a, 'then');
$then->start;
my $superuser = $a->safe_psql('postgres', 'SELECT current_user');

# How a command ends, what it says, and what has run as the superuser meanwhile.
sub ran
{
	my ($from, $to, @command) = @_;
	my %since = map { $_->name => -s $_->logfile } $a, $b, $then;
	my ($code, $said) = snowid_move($from, $to, 5, @command);
	my %ran = map { $_ => 1 } map { slurp_file($_->logfile, $since{ $_->name }) =~ /RAN ([a-z]+)[^\n]* as \Q$superuser\E$/mg } $a, $b, $then;
	return ($code, $said, join ' ', sort keys %ran);
}

for my $case ([ $a, $b, 'copy' ], [ $a, $b, 'copy', '--definitions', '--number', 6 ], [ $a, $a, 'copy' ], [ $then, $a, 'restore' ])
{
	my ($from, $to, @command) = @$case;
	my ($code, $said, $ran) = ran(@$case);
	is($code, 1, "refused: @command") or diag($said);
	is($ran, '', 'nothing of the owner runs as a superuser');
	like($said, qr/FAILED +owners: \Q$_\E.*--trust-owners/s, "it names $_") for 'constraint t_id_check on table insta5.t calls insta5.note(text)',
	  'constraint checked_check calls', 'default value for column g of table insta5.t calls', 'index insta5.t_id_idx calls';
}

# Nor do the queries that compare rows: an index's expression runs when one is planned.
for my $case ([ $a, $a, 'diff' ], [ $then, $a, 'restore', '--dry-run' ])
{
	my ($code, $said, $ran) = ran(@$case);
	is($code, $case->[2] eq 'diff' ? 2 : 1, "refused: $case->[2]") or diag($said);
	is($ran, '', '... nothing of the owner runs as a superuser');
	like($said, qr/error: \S+: .* calls insta5\.note\(text\), whose owner is no superuser.*--trust-owners/s, '... it says why');
}
is((ran($a, $a, 'diff', '--trust-owners'))[0], 0, 'he is trusted');
is($_->safe_psql('postgres', q{SELECT string_agg(nspname, ' ') FROM pg_namespace WHERE nspname ~ '^(insta|snowid_move)'}), $_ == $a ? 'insta5' : '', 'nothing is left')
  for $a, $b;

# He may not stop a copy, either: the lock that it waits for is none that he can take.
$b->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
my $stranger = $b->background_psql('postgres', extra_params => [ '-U', 'stranger' ]);
$stranger->query_safe(sprintf q{SET idle_session_timeout = '60s'; SELECT pg_advisory_lock(%d, n) FROM generate_series(-10, 4) n}, 0x534E4F57);

# What is left of them runs as its owner, or with the rights of who writes.
# One who is trusted has his schema when indexes are made: what these call may need a right there.
$a->safe_psql('postgres', q{
CREATE TABLE insta5.config (k int PRIMARY KEY); GRANT SELECT ON insta5.config TO app;
CREATE FUNCTION insta5.look(bigint) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT k FROM insta5.config); END';
CREATE INDEX look ON insta5.t (insta5.look(id))});
my ($code, $said) = ran($a, $b, 'copy', '--trust-owners');
is($code, 0, 'he is trusted') or diag($said);
$a->safe_psql('postgres', 'DROP FUNCTION insta5.look(bigint) CASCADE; DROP TABLE insta5.config');
$_->safe_psql('postgres', q{
DROP INDEX insta5.t_note_idx, insta5.t_id_idx;
DROP STATISTICS insta5.s;
ALTER TABLE insta5.t DROP CONSTRAINT t_id_check, DROP g;
ALTER DOMAIN insta5.checked DROP CONSTRAINT checked_check}) for $a, $then;
for my $case ([ $a, $b, 'copy', '--as', 'again' ], [ $then, $a, 'restore' ])
{
	my ($code, $said, $ran) = ran(@$case);
	is($code, 0, "$case->[2]: without such functions") or diag($said);
	is($ran, '', '... nothing runs as a superuser');
}

is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'stranger'}), 1, 'the stranger still has his locks');
$stranger->quit;

# A function that is another's once pg_dump has begun, or when what follows the rows is there.
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
$_->safe_psql('postgres', q{CREATE SCHEMA util; CREATE FUNCTION util.f(text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
	$$BEGIN RAISE LOG 'RAN util as %', current_user; RETURN true; END$$}) for $a, $b;
for my $case ([ '--version) false', 'ALTER TABLE insta5.t ADD CHECK (util.f(v))', 'constraint t_v_check' ],
	[ '*pre-data*) false', 'ALTER TABLE insta5.t DROP CONSTRAINT t_v_check; CREATE INDEX i ON insta5.t (util.f(v))', 'index .*i' ])
{
	my ($not_when, $sql, $caller) = @$case;
	$a->safe_psql('postgres', $sql);
	$b->safe_psql('postgres', 'DROP SCHEMA IF EXISTS later CASCADE; ALTER FUNCTION util.f(text) OWNER TO CURRENT_USER');
	symlink("$bindir/pg_dump", "$dir/pg_dump");
	unlink "$dir/pg_restore";
	append_to_file("$dir/pg_restore", "#!/bin/sh\ncase \"\$*\" in $not_when ;; *) true ;; esac && $bindir/psql -Xq -d '"
		. $b->connstr('postgres') . "' -c 'ALTER FUNCTION util.f(text) OWNER TO app'\nexec $bindir/pg_restore \"\$@\"\n");
	chmod 0755, "$dir/pg_restore";
	my ($code, $said, $ran) = ran($a, $b, 'copy', '--as', 'later', '--bindir', $dir);
	is("$code$ran", 1, "another's function in the $caller has not run") or diag($said);
	like($said, qr/target: $caller.* calls util\.f\(text\), whose owner is no superuser/, 'is told');
}
$_->stop for $a, $b, $then;
done_testing();
