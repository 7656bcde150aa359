# What the tests of snowid-move share: pairs of servers, a shard that is
# written all the while, and the checks that nothing was lost, doubled or left
# behind.
package MoveTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(move_node make_shard fresh_shard fresh_set drop_shards snowid_move move_command moves_ok
  lives_on_ok living nothing_left_ok start_writers await_writers stop_writers writers_ok copies_equal_ok
  hold_at_step let_go_steps wait_until_held hold_and_kill kills journal_step put_back);

$SnowidTest::keeps_sessions = 1;

# What is moved, and how the servers are reached: by their socket, unless said.
our $database = 'postgres';
our $shard = 5;
our $host;

# No command takes longer, in seconds.
our $patience = $PostgreSQL::Test::Utils::timeout_default;

# A server that can be source and target, not started.  It has the settings
# that initdb gives a server, and before PostgreSQL 19 wal_level: what
# PostgreSQL::Test::Cluster makes quick or small for its own tests is put back.
# Only its workers start anew sooner; move.pl and parallel.pl have them as initdb does.
sub move_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%params);
	$node->append_conf('postgresql.conf',
		'wal_level = ' . ($node->pg_version >= 19 ? 'replica' : 'logical') . q{
max_connections = 100
max_wal_senders = 10
max_replication_slots = 10
wal_retrieve_retry_interval = 500ms
shared_buffers = 128MB
log_statement = none
log_replication_commands = off
timezone = 'UTC'
});
	return $node;
}

# A shard with what a shard has: foreign keys, a serial, an identity, a
# partitioned table, a sequence of its own.
sub make_shard
{
	my ($node, $shard, $schema) = @_;
	my $s = '"' . ($schema =~ s/"/""/gr) . '"';
	my $literal = $schema =~ s/'/''/gr;

	$node->safe_psql('postgres', qq{
CREATE EXTENSION IF NOT EXISTS snowid;
SELECT snowid.create_shard($shard, '$literal');
SET search_path = $s, public;
CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), name text, photos int NOT NULL DEFAULT 0);
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(),
	user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, n serial, "a ""note""" text);
CREATE INDEX ON photos (user_id);
CREATE TABLE likes (id bigint NOT NULL, no int GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT now()) PARTITION BY HASH (id);
CREATE TABLE likes_0 PARTITION OF likes (PRIMARY KEY (id)) FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE likes_1 PARTITION OF likes (PRIMARY KEY (id)) FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT snowid.set_default('likes', own_sequence => true);
CREATE SEQUENCE unused;
INSERT INTO users (name) SELECT 'user ' || i FROM generate_series(1, 200) i;
INSERT INTO photos (user_id) SELECT id FROM users, generate_series(1, 20);
INSERT INTO likes DEFAULT VALUES;
});
	return $s;
}

# Begin anew: shard 5 on the first of these nodes, and no shard on the others.
sub fresh_shard
{
	my (@nodes) = @_;

	drop_shards(@nodes);
	make_shard($nodes[0], 5, 'insta5');
	return;
}

# Begin anew with shards 1 to 8: two have all that a shard can have.
sub fresh_set
{
	my (@nodes) = @_;

	drop_shards(@nodes);
	make_shard($nodes[0], $_, "insta$_") for 1, 7;
	$nodes[0]->safe_psql('postgres', qq{
CALL snowid.create_shards($_, ddl => \$\$
CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), name text);
INSERT INTO users (name) VALUES ('a'), ('b'), ('c');
\$\$)}) for '2, 6', '8, 8';
	return;
}

sub drop_shards
{
	my (@nodes) = @_;

	for (@nodes)
	{
		$_->safe_psql('postgres', q{
SELECT snowid.drop_shard(shard, cascade => true) FROM snowid.shards WHERE lives = 'here';
DELETE FROM snowid.shard_registry});
	}
	return;
}

# The command line of a move.
sub move_command
{
	my ($from, $to, $shard, @args) = @_;

	return ('snowid-move', @args, '--shard', $shard,
		'--from', address($from), '--to', address($to));
}

sub address
{
	my ($node) = @_;
	return $node->connstr($database) unless defined $host;
	return "host=$host port=" . $node->port . " dbname=$database";
}

# Run snowid-move; returns its exit code, and what it has said.
sub snowid_move
{
	my @command = move_command(@_);
	my ($stdout, $stderr) = ('', '');

	IPC::Run::run(\@command, '>', \$stdout, '2>', \$stderr, IPC::Run::timeout($patience));
	return ($? >> 8, $stdout . $stderr);
}

# Run it, and expect that exit code.
sub moves_ok
{
	my ($from, $to, $shard, $args, $expected, $name, $like) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($code, $said) = snowid_move($from, $to, $shard, @$args);

	is($code, $expected, $name) or diag $said;
	like($said, $like, "$name: says so") if defined $like;
	return $said;
}

# Shard 5 can be written on this server, and not on that one.
sub lives_on_ok
{
	my ($here, $there, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($here->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('here') RETURNING name}), 'here', "$name: it is written");
	isnt(sqlstate($there, q{INSERT INTO insta5.users (name) VALUES ('there')}), '', "$name: and not there");
	return;
}

# Which shards live on a server.
sub living
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{
SELECT string_agg(shard::text, ',' ORDER BY shard) FROM snowid.shards WHERE lives = 'here'});
}

# Nothing that a move makes is left on a server but the registry's rows.
sub nothing_left_ok
{
	my ($node, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# A worker that was told to stop may take a moment.
	$node->poll_query_until('postgres', q{
SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'logical replication worker')});
	is($node->safe_psql('postgres', q{
SELECT 'slot ' || slot_name FROM pg_replication_slots
UNION ALL SELECT 'publication ' || pubname FROM pg_publication
UNION ALL SELECT 'subscription ' || subname FROM pg_subscription
UNION ALL SELECT 'origin ' || roname FROM pg_replication_origin
UNION ALL SELECT 'trigger on ' || tgrelid::regclass FROM pg_trigger WHERE tgname = 'snowid_fence'
UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname LIKE '%\_moved%'
UNION ALL SELECT 'schema ' || nspname FROM pg_namespace n WHERE EXISTS (
	SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'id_seq' AND n.nspname <> 'snowid')
	AND nspname NOT IN (SELECT schema FROM snowid.shards WHERE lives = 'here')
UNION ALL SELECT 'journal of shard ' || shard FROM snowid.moves}), '', "$name: nothing is left");
	return;
}

# Start clients that write to a shard on each of the servers given, one
# statement after the other, whether it succeeds or not, and note each id that
# they were given, in a file of their own.  They have their ids by DEFAULT, or
# ask for them first; they update, and delete.  They leave a processor to others,
# most of all where the shard is not yet there and each statement fails at once.
sub start_writers
{
	my ($s, @nodes) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my @writers;

	append_to_file("$dir/write", "\\set id 0\nSET search_path = $s, public;\n" . (qq{
WITH u AS (INSERT INTO users (name) VALUES ('new') RETURNING id)
	SELECT id FROM u;
INSERT INTO photos (user_id) SELECT max(id) FROM users RETURNING id;
BEGIN;
UPDATE users SET photos = photos + 1 WHERE id = (SELECT max(id) FROM users);
INSERT INTO photos (user_id) SELECT max(id) FROM users RETURNING id;
COMMIT;
DELETE FROM photos WHERE id = (SELECT min(id) FROM photos WHERE "a ""note""" IS NULL);
INSERT INTO likes DEFAULT VALUES;
SELECT 'no row', next_id();
BEGIN;
SELECT next_id() AS id \\gset
INSERT INTO users (id, name) VALUES (:id, 'new') RETURNING id;
COMMIT;
DO 'BEGIN PERFORM pg_sleep(0.003); END';
} x 20_000));
	for my $i (0 .. $#nodes)
	{
		my $run = IPC::Run::start(
			[ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-f', "$dir/write", $nodes[$i]->connstr('postgres') ],
			'>', "$dir/$i", '2>', "$dir/$i.errors");
		push @writers, { run => $run, file => "$dir/$i", errors => "$dir/$i.errors", node => $nodes[$i] };
	}
	return @writers;
}

# Wait until each of them has been given an id.
sub await_writers
{
	my @writers = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	while (grep { !-s $_->{file} } @writers)
	{
		die 'writers are not given ids' if time > $end;
		usleep(10_000);
	}
	return;
}

sub stop_writers
{
	my @writers = @_;

	$_->{run}->kill_kill for @writers;
	for my $writer (@writers)
	{
		my @lines = split /\n/, slurp_file($writer->{file});
		$writer->{ids} = [ map { /^(?:no row\|)?(\d+)$/ ? $1 : () } @lines ];
		$writer->{rows} = [ grep { /^\d+$/ } @lines ];
	}
	return;
}

# What writers were given on the server that the shard has left, and on the
# one that it has come to: no id twice, and each of the new server's above all
# of the old one's; no error but the fence's, and those that are given.
sub writers_ok
{
	my ($name, $before, $after, @expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%seen, $twice);
	my ($newest, $oldest) = (0, undef);

	for my $writer (@$before, @$after)
	{
		$seen{$_}++ and $twice = $_ for @{ $writer->{ids} };
	}
	is($twice, undef, "$name: no id twice");
	for my $writer (@$before)
	{
		for (@{ $writer->{ids} }) { $newest = $_ if $_ > $newest }
	}
	for my $writer (@$after)
	{
		for (@{ $writer->{ids} }) { $oldest = $_ if !defined $oldest || $_ < $oldest }
	}
	cmp_ok($newest, '>', 0, "$name: the old server was written");
	ok(defined $oldest && $oldest > $newest, "$name: and the new one, with larger ids")
	  or diag "$newest, ", $oldest // 'none';
	for my $writer (@$before, @$after)
	{
		my %errors;
		my $errors = slurp_file($writer->{errors});
		$errors{$1}++ while $errors =~ /ERROR:\s+(\w{5})/g;
		delete @errors{qw(SN001 SN002 25P02), @expected};

		# Once the copy is renamed, and before the schema is there.
		delete @errors{qw(3F000 42P01 42883)};
		is_deeply(\%errors, {}, "$name: writers get no other error") or diag map { $errors =~ /(ERROR:  $_: .*)/ } keys %errors;
	}
	return;
}

# All rows that the old server's closed copy has are on the new one, the same;
# and what the new one has more is newer.
sub copies_equal_ok
{
	my ($from, $old, $to, $new, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $newest = $from->safe_psql('postgres', "SELECT last_value FROM $old.id_seq");
	my $state = sub {
		my ($node, $s, $table, $where) = @_;
		return $node->safe_psql('postgres', qq{
SELECT count(*), md5(string_agg(t::text, ';' ORDER BY id)) FROM $s.$table t $where});
	};

	# The writers on the new server delete the oldest photos, and update the
	# newest user that they find.
	my $since = $to->safe_psql('postgres', "SELECT min(id) FROM $new.photos");
	my $id = "((($newest) >> 10) + 1) << 23";
	my $user = $from->safe_psql('postgres', "SELECT max(id) FROM $old.users");
	for ([ 'users', "WHERE id < $user" ], [ 'photos', "WHERE id >= $since AND id < $id" ])
	{
		my ($table, $where) = @$_;
		my $wanted = $state->($from, $old, $table, $where);
		unlike($wanted, qr/^0\|/, "$name: the copy has $table");
		is($state->($to, $new, $table, $where), $wanted, "$name: the same rows in $table");
	}
	is($to->safe_psql('postgres', qq{
SELECT count(*) - count(DISTINCT id), count(*) - count(DISTINCT n) FROM $new.photos}),
		'0|0', "$name: no id and no serial number twice");
	is($to->safe_psql('postgres', "SELECT count(*) FROM $new.photos WHERE user_id NOT IN (SELECT id FROM $new.users)"),
		'0', "$name: each foreign key has its row");
	return;
}

# Make whoever records a step on this server wait for as long as the returned
# session lives: before it is recorded, with the step's own work done and not
# committed; or in the COMMIT itself, which is after all other servers' commits
# that come before.
sub hold_at_step
{
	my ($node, $step, $in_commit, $shard) = @_;

	let_go_steps($node);
	$node->safe_psql($database, q{
CREATE OR REPLACE FUNCTION public.hold_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.step = TG_ARGV[0] AND TG_ARGV[1] IN (NEW.shard::text, '') AND (TG_OP = 'INSERT' OR OLD.step <> NEW.step) THEN
		PERFORM pg_advisory_xact_lock_shared(47);
	END IF;
	RETURN NEW;
END $$;
} . ($in_commit
		? 'CREATE CONSTRAINT TRIGGER hold_step AFTER INSERT OR UPDATE ON snowid.moves DEFERRABLE INITIALLY DEFERRED'
		: 'CREATE TRIGGER hold_step BEFORE INSERT OR UPDATE ON snowid.moves')
		. " FOR EACH ROW EXECUTE FUNCTION public.hold_step('$step', '" . ($shard // '') . "')");
	my $session = $node->background_psql($database);
	$session->query_safe('SELECT pg_advisory_lock(47)');
	return $session;
}

sub let_go_steps
{
	my ($node) = @_;
	$node->safe_psql($database, 'SET default_transaction_read_only = off; DROP TRIGGER IF EXISTS hold_step ON snowid.moves');
	return;
}

# Wait until somebody is held.
sub wait_until_held
{
	my ($node) = @_;
	return $node->poll_query_until($database, q{
SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
}

# Kill a command of snowid-move as it records a step on a server.
sub hold_and_kill
{
	my ($node, $step, $in_commit, $command, $from, $to) = @_;
	my $hold = hold_at_step($node, $step, $in_commit);
	my $tool = IPC::Run::start(
		[ move_command($from, $to, $shard, $command, '--pause-limit', 60000, '--lock-timeout', 60000) ],
		'>', '/dev/null', '2>&1');
	wait_until_held($node) or die 'does not get there';

	# Its session, too, so that what it has begun is not committed after all.
	$tool->kill_kill;
	$node->safe_psql($database, q{
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	$hold->{run}->kill_kill;
	let_go_steps($node);
	return;
}

# At a server's address, one that was restored from a backup of it, or of another one, takes its place.
my $nput_back = 0;

sub put_back
{
	my ($node, $of, $backup) = @_;
	my $old = PostgreSQL::Test::Cluster->new('old' . ++$nput_back);

	$node->stop;
	rename $node->data_dir, $node->data_dir . "_newer$nput_back" or die $!;
	$old->init_from_backup($of, $backup);
	$old->append_conf('postgresql.conf', 'port = ' . $node->port . "\nunix_socket_directories = '" . $node->host . "'\nlisten_addresses = ''");
	rename $old->data_dir, $node->data_dir or die $!;
	$node->start;
	return;
}

# Which of all kills, or else of a few, a test is to make: SNOWID_MOVE_KILL says "all",
# "2/5" for every fifth from the third on, or nothing.
sub kills
{
	my ($all, $few) = @_;
	my $kills = $ENV{SNOWID_MOVE_KILL} // '';

	return @$few if $kills eq '';
	return @$all if $kills eq 'all';
	my ($turn, $turns) = $kills =~ m{^(\d+)/(\d+)$} or die "SNOWID_MOVE_KILL: $kills";
	return @$all[ grep { $_ % $turns == $turn } 0 .. $#$all ];
}

sub journal_step
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT step FROM snowid.moves');
}

1;
