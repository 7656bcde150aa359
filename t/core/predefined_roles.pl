# What a role can do that somebody has made a member of one of PostgreSQL's predefined
# roles, as doc/reference.md says: pg_write_all_data can write what shards and ids rest on,
# pg_maintain can lock it, and all others can do neither.  Nothing of theirs runs as
# another, and a subscription of theirs writes where they may.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', allows_streaming => 'logical');
$node->start;
my $version = $node->safe_psql('postgres', 'SHOW server_version_num') / 10000;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
SELECT snowid.create_shard(5);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), n int);
INSERT INTO insta5.photos (n) VALUES (1);
-- whatever each of them can write to, of the extension and of the shard
CREATE FUNCTION public.can_write() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE c record; command text;
BEGIN
	FOR c IN SELECT oid, oid::regclass AS name, relkind, (SELECT attname FROM pg_attribute WHERE attrelid = r.oid AND attnum = 1) AS first
		FROM pg_class r WHERE relnamespace::regnamespace::text IN ('snowid', 'snowid_internal', 'insta5') AND relkind IN ('r', 'v', 'S')
	LOOP
		FOREACH command IN ARRAY CASE c.relkind WHEN 'S' THEN ARRAY[format('SELECT nextval(%L)', c.name), format('SELECT setval(%L, 1)', c.name),
				format('ALTER SEQUENCE %s RESTART', c.name)]
			ELSE ARRAY[format('INSERT INTO %s SELECT * FROM %1$s WHERE false', c.name), format('DELETE FROM %s', c.name), format('TRUNCATE %s', c.name),
				format('UPDATE %s SET %I = %2$I', c.name, c.first), format('SELECT FROM %s FOR SHARE', c.name),
				format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', c.name), format('CREATE TRIGGER t BEFORE INSERT ON %s EXECUTE FUNCTION tsvector_update_trigger()', c.name)] END
		LOOP
			BEGIN
				EXECUTE command;
				RAISE SQLSTATE 'UNDO0';
			EXCEPTION
				WHEN SQLSTATE 'UNDO0' THEN RETURN NEXT concat(c.name, ' ', substring(command FROM '^(?:SELECT (?=nextval|setval))?([a-zA-Z]+)'));
				WHEN insufficient_privilege OR wrong_object_type OR feature_not_supported OR object_not_in_prerequisite_state THEN NULL;
			END;
		END LOOP;
	END LOOP;
	FOREACH command IN ARRAY '{snowid,snowid_internal,insta5,public}'::text[] LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION %s.planted() RETURNS int LANGUAGE sql AS $f$SELECT 1$f$', command);
			RETURN NEXT 'make ' || command;
		EXCEPTION WHEN insufficient_privilege THEN NULL;
		END;
	END LOOP;
END $$});
my %can;
for my $role (split /\n/, $node->safe_psql('postgres', q{SELECT rolname FROM pg_roles WHERE rolname ^@ 'pg_' AND rolname <> 'pg_database_owner'}))
{
	$node->safe_psql('postgres', "CREATE ROLE a_$role LOGIN PASSWORD 'word'; GRANT $role TO a_$role;
		GRANT CREATE ON DATABASE postgres TO a_$role; GRANT USAGE ON SCHEMA insta5 TO a_$role");
	$can{$role} = $node->safe_psql('postgres', 'SELECT can_write() ORDER BY 1', extra_params => [ '-U', "a_$role" ]);
}
my $reference = slurp_file("$FindBin::RealBin/../../doc/reference.md");
like($reference, qr/`$_` can (?:write|lock)/, "the reference says what $_ can") foreach grep { $can{$_} ne '' } sort keys %can;
my $written = delete $can{pg_write_all_data};
like($written, qr/^\Q$_\E$/m, "pg_write_all_data: $_") foreach 'snowid.shard_registry UPDATE', 'snowid.moves DELETE', 'snowid_internal.reservation setval',
  'snowid.id_seq setval', 'insta5.id_seq nextval';
unlike($written, qr/CREATE|ALTER|TRUNCATE/, '... and makes nothing of its own there');
my $locked = delete $can{pg_maintain} // '';
is(join(' ', map { "$_ can $can{$_}" } grep { $can{$_} ne '' } sort keys %can), '', 'no other can write: ' . join ' ', sort keys %can);

# Sessions wait for the registry, once each.
SKIP:
{
	skip 'this server has no pg_maintain', 6 if $version < 17;
	my @maintain = (extra_params => [ '-U', 'a_pg_maintain' ]);
	is(join(' ', grep { !/ LOCK$/ } split /\n/, $locked), '', 'pg_maintain locks, and writes nothing');
	like($locked, qr/^\Q$_\E LOCK$/m, "... such as $_") foreach 'snowid.shard_registry', 'insta5.photos';
	my $session = $node->background_psql('postgres');
	my $holder = $node->background_psql('postgres', @maintain);
	my $id = 'SELECT insta5.next_id()';
	$session->query_safe($id);
	$holder->query_safe('BEGIN; LOCK TABLE snowid.shard_registry');
	isnt($session->query_safe($id), '', 'a session that has taken ids goes on');
	is(sqlstate($node, "SET lock_timeout = '10ms'; $id"), '55P03', 'a new one waits');
	$holder->query_safe('ROLLBACK');
	$_->quit foreach $session, $holder;

	# What maintains runs with its owner's rights.
	$node->safe_psql('postgres', q{
CREATE SCHEMA evil;
CREATE FUNCTION evil.bite() RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'planted as %', current_user; RETURN true; END$$;
CREATE FUNCTION evil.equal(text, text) RETURNS boolean LANGUAGE sql AS $$SELECT evil.bite()$$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal);
CREATE FUNCTION evil.lives(text) RETURNS boolean LANGUAGE sql AS $$SELECT evil.bite()$$;
SET search_path = evil, pg_catalog;
REINDEX SCHEMA snowid; REINDEX SCHEMA insta5; VACUUM FULL ANALYZE snowid.shard_registry; VACUUM ANALYZE snowid.moves;
CLUSTER snowid.shard_registry USING shard_registry_pkey;
SELECT 'x'::text = 'y'}, @maintain);
	my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
	my @planted = slurp_file($node->logfile) =~ /LOG:  planted as (\S+)/g;
	is("@planted", 'a_pg_maintain', 'only the last query ran what was planted, as who typed it');
}

# What is replicated to a subscription of his is written as he could.
SKIP:
{
	skip 'this server has no pg_create_subscription', 5 if $version < 16;
	$node->safe_psql('postgres', 'CREATE DATABASE theirs');
	$node->safe_psql('theirs', q{
CREATE SCHEMA snowid;
CREATE SCHEMA snowid_internal;
CREATE SCHEMA insta5;
CREATE TABLE snowid.shard_registry (shard int, schema name);
CREATE TABLE insta5.photos (id bigint, n int);
CREATE SEQUENCE snowid_internal.reservation;
CREATE SEQUENCE insta5.id_seq;
CREATE PUBLICATION tables FOR ALL TABLES;
CREATE ROLE publisher SUPERUSER LOGIN PASSWORD 'word'});
	my $hba = slurp_file($node->data_dir . '/pg_hba.conf');
	unlink $node->data_dir . '/pg_hba.conf';
	append_to_file($node->data_dir . '/pg_hba.conf', "local theirs publisher scram-sha-256\n$hba");
	$node->reload;
	my $state = q{SELECT (SELECT count(*) FROM snowid.shard_registry), (SELECT count(*) FROM insta5.photos),
		(SELECT last_value FROM snowid_internal.reservation), (SELECT last_value FROM insta5.id_seq)};
	my $before = $node->safe_psql('postgres', $state);
	my $connection = $node->connstr('theirs') =~ s/'/''/gr;
	my @cases = map { [ 'tables', $_, 'false' ], [ 'tables', $_, 'true' ] } "INSERT INTO insta5.photos VALUES (7, 7)",
	  "INSERT INTO snowid.shard_registry VALUES (7, 'evil')";
	if ($version >= 19)
	{
		$node->safe_psql('theirs', 'CREATE PUBLICATION sequences FOR ALL SEQUENCES');
		push @cases, map { [ 'sequences', "SELECT setval('$_', 7)", 'false' ] } 'insta5.id_seq', 'snowid_internal.reservation';
	}
	for (@cases)
	{
		my ($publication, $sql, $as) = @$_;
		my $from = -s $node->logfile;
		my @subscriber = (extra_params => [ '-U', 'a_pg_create_subscription' ]);

		$node->safe_psql('theirs', q{SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')});
		$node->safe_psql('theirs', $sql) if $publication eq 'sequences';
		$node->safe_psql('postgres', qq{
CREATE SUBSCRIPTION theirs CONNECTION '$connection user=publisher password=word' PUBLICATION $publication
WITH (create_slot = false, slot_name = 'theirs', copy_data = } . ($publication eq 'tables' ? 'false' : 'true') . ", run_as_owner = $as)", @subscriber);
		$node->safe_psql('theirs', $sql) if $publication eq 'tables';
		ok(eval { $node->wait_for_log(qr/ERROR:  (role "a_pg_create_subscription" cannot SET ROLE to|permission denied for)/, $from); 1 },
			"refused, with run_as_owner = $as: $sql");
		$node->safe_psql('postgres', $_, @subscriber) foreach 'ALTER SUBSCRIPTION theirs DISABLE', 'ALTER SUBSCRIPTION theirs SET (slot_name = NONE)',
		  'DROP SUBSCRIPTION theirs';
		$node->poll_query_until('postgres', q{SELECT NOT active FROM pg_replication_slots});
		$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('theirs')});
	}
	is($node->safe_psql('postgres', $state), $before, 'nothing is written');
}

is(sqlstate($node, 'SELECT snowid_internal.registry_changed()'), '39P01', 'nobody calls what only a trigger may');
$node->stop;
done_testing();
