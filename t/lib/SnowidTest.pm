# What the TAP tests share: servers whose clock can be moved while they run,
# crashes that lose all that is not written, and a check of strict order.
#
# The clock hides lost state: a generator that forgets everything still goes
# on from the time of day, above what it issued.  So a test sets the clock back
# before it looks for a loss.
package SnowidTest;

use strict;
use warnings;

use Carp ();
use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use Time::Local;

our @EXPORT = qw(new_node start_with_clock set_clock await_replay crash end_node power_cut
  disk_library points_library lose_unflushed stop_walwriter sqlstate
  start_clients ids_seen wait_for_clock
  make_calls start_load strict_order_ok portable_file portable_database snippet);

my $top = abs_path(dirname(__FILE__) . '/../..');

# A test of the extension is one of the portable edition, too: a file that sets
# this and then does the test's file runs it there.
our $edition = '';

# What has not ended after four times of what a test waits for one thing never ends: say where it stands.
$SIG{ALRM} = sub { diag Carp::longmess("$0 does not end"); exit 1 };
alarm 4 * $PostgreSQL::Test::Utils::timeout_default if ($ENV{SNOWID_MOVE_KILL} // '') ne 'all';

# Whether safe_psql asks a server's database postgres in one session: a psql and a backend for
# each time would take the processor from the programs that are tested.  Tests of what the
# extension does in a new session do without.
our $keeps_sessions = 0;
{
	no warnings 'redefine';
	my $psql = \&PostgreSQL::Test::Cluster::psql;
	my $safe_psql = \&PostgreSQL::Test::Cluster::safe_psql;

	*PostgreSQL::Test::Cluster::psql = sub {
		my ($self, $database, $sql, @rest) = @_;

		return $self->$psql($database, in_edition($sql), @rest);
	};

	*PostgreSQL::Test::Cluster::safe_psql = sub {
		my ($self, $database, $sql, @rest) = @_;

		return $self->$safe_psql($database, $sql, @rest) if !$keeps_sessions || @rest || $database ne 'postgres';
		my ($answer, $errors) = ask($self, $database, in_edition($sql));
		print "$errors\n" if $errors ne '';
		return $answer // die "error running SQL: '$errors'\nwith sql '$sql'";
	};

	# Some minor releases leave the last newline there.
	my $query = \&PostgreSQL::Test::BackgroundPsql::query;
	*PostgreSQL::Test::BackgroundPsql::query = sub {
		my ($output, @rest) = $query->(@_);

		$output =~ s/\n\z// if defined $output;
		return wantarray ? ($output, @rest) : $output;
	};

	# Ask until the answer is what is expected, as PostgreSQL::Test::Cluster does, but in one
	# session, which also safe_psql may keep.
	*PostgreSQL::Test::Cluster::poll_query_until = sub {
		my ($self, $database, $query, $expected) = @_;
		my $end = time + $PostgreSQL::Test::Utils::timeout_default;

		for (;;)
		{
			my ($answer, $errors) = ask($self, $database, $query);
			my $is_expected = defined $answer && $answer eq ($expected // 't');

			if ($is_expected || time > $end)
			{
				diag "asked in vain: $query\nlast answer: ", $answer // '', "\n$errors" if !$is_expected;
				end_session($self, $database) if !$keeps_sessions || $database ne 'postgres';
				return $is_expected;
			}
			usleep(defined $answer ? 20_000 : 100_000);
		}
	};
}

sub in_edition
{
	my ($sql) = @_;

	$sql =~ s/\bCREATE EXTENSION (IF NOT EXISTS )?snowid\b;?/slurp_file(portable_file('sql'))/e
	  if $edition eq 'portable' && defined $sql;
	return $sql;
}

my %sessions;

# What a session answers, undef after an error, and what it has said besides.  It is like new
# afterwards, or ended; one whose server is gone is begun anew.
sub ask
{
	my ($node, $database, $sql) = @_;
	my $is_old = exists $sessions{ session_key($node, $database) };
	my $session = $sessions{ session_key($node, $database) } //= begin_session($node, $database);

	@$session{ 'out', 'err' } = ('', '');
	$session->{in} .= ";\n\\echo asked\n$sql\n;\n\\echo answered\nDISCARD ALL;\n\\echo left\n";
	$session->{timeout}->start;
	my $is_left = eval { $session->{run}->pump until $session->{out} =~ /^left\n\z/m; 1 };
	my ($is_asked, $answer) = $session->{out} =~ /\A(asked\n)(?:(.*?)^answered\n(?:left\n)?\z)?/ms;

	end_session($node, $database) if !$is_left;
	return ask(@_) if !$is_asked && $is_old;
	chomp($answer) if defined $answer;
	chomp($session->{err});
	return ($answer, $session->{err});
}

sub begin_session
{
	my ($node, $database) = @_;
	my %session = (in => '', timeout => IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	$session{run} = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', '-' ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err}, $session{timeout});
	return \%session;
}

sub end_session
{
	my $session = delete $sessions{ session_key(@_) };

	eval { $session->{run}->finish };
	return;
}

# A session has the variables of its begin, such as PGOPTIONS.
sub session_key
{
	my ($node, $database) = @_;
	return join ' ', $node->connstr($database), map { "$_=$ENV{$_}" } grep { /^PG/ } sort keys %ENV;
}

# IPC::Run looks now and then whether a program has ended, the less often the longer it has
# waited: 30 ms for each psql.  A signal ends that wait.
$SIG{CHLD} = sub { };

# For who only wants to know whether a test fails, as scripts/mutants does.
if ($ENV{SNOWID_STOP_AT_FAILURE})
{
	no warnings 'redefine';
	my $ok = \&Test::Builder::ok;

	*Test::Builder::ok = sub { return &$ok || exit 1 };
}

# A server with room for the tests' sessions, not started.  Only those sessions
# write the sequences' pages and the log.
sub new_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%params);
	$node->append_conf('postgresql.conf', q{
max_connections = 30
shared_buffers = 32MB
autovacuum = off
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1d
log_statement = none
synchronous_commit = on
timezone = 'UTC'
});
	return $node;
}

# Make the portable edition, for "psql" or for "pg_tle"; returns its file.
sub portable_file
{
	my ($for) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$for.sql";

	system_or_bail('sh', '-c', "$top/portable/build $for >'$file'");
	return $file;
}

# Make a database with the portable edition, installed by its owner.
sub portable_database
{
	my ($node, $database, $owner) = @_;
	my @user = defined $owner ? ('-U', $owner) : ();

	$node->safe_psql('postgres', "CREATE DATABASE $database" . (defined $owner ? " OWNER $owner" : ''));
	$node->command_ok([ 'psql', '-X', '-q', @user, '-d', $database, '-f', portable_file('sql') ],
		"portable edition in database $database");
	return;
}

# SQL that makes a schema as the published design has it: a sequence, and its
# function in PL/pgSQL, word for word but for the names and the number.  It is what
# a user of snowid comes from.
sub snippet
{
	my ($schema, $sequence, $shard) = @_;

	return "CREATE SCHEMA $schema; CREATE SEQUENCE $schema.$sequence;\n"
	  . snippet_function("$schema.next_id", "$schema.$sequence", $shard);
}

sub snippet_function
{
	my ($function, $sequence, $shard) = @_;

	return <<"SQL";
CREATE OR REPLACE FUNCTION $function(OUT result bigint) AS \$\$
DECLARE
    our_epoch bigint := 1314220021721;
    seq_id bigint;
    now_millis bigint;
    shard_id int := $shard;
BEGIN
    SELECT nextval('$sequence') % 1024 INTO seq_id;

    SELECT FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) INTO now_millis;
    result := (now_millis - our_epoch) << 23;
    result := result | (shard_id << 10);
    result := result | (seq_id);
END;
\$\$ LANGUAGE PLPGSQL;
SQL
}

# Start a node whose clock can be set.  $clock is what set_clock takes.
sub start_with_clock
{
	my ($node, $clock) = @_;

	set_clock($node, $clock);
	local $ENV{LD_PRELOAD} = clock_library();
	local $ENV{TORTURE_CLOCK} = clock_file($node);
	local $ENV{TORTURE_DISK} = $node->data_dir;
	$ENV{LD_PRELOAD} .= ' ' . disk_library() if $node->{lossy_disk};
	$node->start;
	return;
}

# Set the clock of a node: "+3600" and "-0.005" are seconds off the true time,
# "2026-01-01 12:00:00" is a clock that stands still there.  What the node's
# processes read changes at once.
sub set_clock
{
	my ($node, $clock) = @_;
	my ($offset, $fixed) = (0, 0);

	if (my ($date, $time, $fraction) = $clock =~ /^(\d+-\d+-\d+) (\d+:\d+:\d+)(\.\d+)?$/)
	{
		my ($year, $month, $day) = split /-/, $date;
		$fixed = timegm(reverse(split /:/, $time), $day, $month - 1, $year) * 1_000_000_000;
		$fixed += sprintf '%.0f', ($fraction // 0) * 1e9;
	}
	else
	{
		$offset = sprintf '%.0f', $clock * 1e9;
	}

	write_clock($node, $offset, 0, 0, $fixed);
	return;
}

# What torture/clock.c reads: the entry in use, and 64 of them, of nanoseconds off the
# true time, since when there is a drift, how much of it in a million; or a fixed time.
sub write_clock
{
	my ($node, @entry) = @_;
	my ($file, $word);

	if (!-e clock_file($node))
	{
		open $file, '>', clock_file($node) or die "cannot write the clock: $!";
		syswrite $file, "\0" x (8 + 32 * 64);
		close $file;
	}
	open $file, '+<', clock_file($node) or die "cannot set the clock: $!";
	sysread $file, $word, 8;
	my $entry = (unpack('Q', $word) + 1) % 64;
	sysseek $file, 8 + 32 * $entry, 0;
	syswrite $file, pack('q4', @entry);
	sysseek $file, 0, 0;
	syswrite $file, pack('Q', $entry);
	close $file;
	return;
}

sub clock_file
{
	my ($node) = @_;
	return $node->basedir . '/clock';
}

sub clock_library
{
	return build('clock', '-shared', '-fPIC', '-ldl');
}

# What makes a disk lose what is not flushed, of servers with {lossy_disk}.
sub disk_library
{
	return build('disk', '-shared', '-fPIC');
}

# What stops PL/pgSQL at its statements, for session_preload_libraries.
sub points_library
{
	chomp(my $includes = `pg_config --includedir-server`);
	return build('points', '-shared', '-fPIC', "-I$includes");
}

my %built;

# Build a file of torture/, or of this directory, once.
sub build
{
	my ($name, @options) = @_;
	my ($source) = grep { -e } map { "$top/$_/$name.c" } 'torture', 't/lib';

	if (!$built{$name})
	{
		$built{$name} = PostgreSQL::Test::Utils::tempdir() . "/$name";
		system_or_bail('cc', '-O2', '-o', $built{$name},
			$source, @options);
	}
	return $built{$name};
}

# Wait until a standby has replayed all that another server has committed, also if their
# clocks stand still: then the one does not tell how far it is, and the other does not flush the
# rest of a record of hint bits that its last flush has cut.
sub await_replay
{
	my ($server, $standby) = @_;
	my $lsn = $server->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'test', '')});

	$standby->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'")
	  or die $standby->name . " does not replay\n";
	return;
}

# Kill all processes of a node at once, so that what they had not written to
# their files is lost.
sub crash
{
	my ($node) = @_;

	end_node($node, 'KILL', 1);
	return;
}

# End a server by a signal to its postmaster, or with $all to every process.
sub end_node
{
	my ($node, $signal, $all) = @_;
	my $postmaster = $node->{_pid};

	# A stopped postmaster starts no further process while we look.  It may be about to start
	# one, which would wait for a lock of the dead for ever.
	kill 'STOP', $postmaster;
	usleep(500) while (state_of($postmaster) // 'Z') !~ /[TZ]/;
	my @children = children($postmaster);
	kill $signal, $all ? ($postmaster, @children) : $postmaster;
	kill 'CONT', $postmaster;
	$node->{_pid} = undef;

	# The others end by themselves when they notice.
	my $end = time + 120;
	while (grep { (state_of($_) // 'Z') ne 'Z' } $postmaster, @children)
	{
		die 'the processes of ' . $node->name . " do not end\n" if time > $end;
		usleep(2000);
	}

	# While nobody has waited for the orphan, its number stays taken, and a
	# new postmaster would think that the old one lives.
	unlink $node->data_dir . '/postmaster.pid',
	  $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	return;
}

sub children
{
	my ($parent) = @_;
	my @children;

	foreach my $stat (glob '/proc/[0-9]*/stat')
	{
		open(my $file, '<', $stat) or next;
		my $line = <$file> // next;
		push @children, $1
		  if $line =~ /^(\d+) \(.*\) \S (\d+)/ && $2 == $parent;
	}
	return @children;
}

# R, S, T, Z, as ps shows it; undef if there is no such process
sub state_of
{
	my ($pid) = @_;

	open(my $file, '<', "/proc/$pid/stat") or return;
	return ((<$file> // '') =~ /^\d+ \(.*\) (\S)/)[0];
}

# The same, and what they had not flushed to a lossy disk is lost, too.
sub power_cut
{
	my ($node) = @_;

	crash($node);
	lose_unflushed('all', $node->data_dir);
	return;
}

# See torture/powercut.c.
sub lose_unflushed
{
	my (@arguments) = @_;

	system_or_bail(build('powercut'), @arguments);
	return;
}

my @stopped;

# Let only the sessions flush the log, until the next crash.  The walwriter is stopped where it
# sleeps: anywhere else it may hold a lock that they need.
sub stop_walwriter
{
	my ($node) = @_;
	my $pid = $node->safe_psql('postgres', q{
SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
	my $event;

	push @stopped, $pid;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		kill 'STOP', $pid;
		usleep(500) while state_of($pid) !~ /[TZ]/;
		$event = $node->safe_psql('postgres', qq{
SELECT wait_event FROM pg_stat_activity WHERE pid = $pid});
		return if $event eq 'WalWriterMain';
		kill 'CONT', $pid;
		usleep(100_000);
	}
	die "the walwriter never sleeps: $event";
}

# A test that ends here would wait a minute for a server that waits for it.
END { kill 'CONT', @stopped }

# The SQLSTATE that the statements end with; empty if they succeed.
sub sqlstate
{
	my ($node, $sql, %params) = @_;
	my ($ret, $stdout, $stderr) = $node->psql(
		$params{dbname} || 'postgres', $sql,
		extra_params => [ '-v', 'VERBOSITY=sqlstate', @{ $params{extra_params} || [] } ]);

	return $stderr =~ /ERROR:\s+(\w{5})/ ? $1 : '';
}

# Start $n clients, each of which takes ids from sequence s one by one, in
# transactions of their own, until it has lost its server; and wait until all
# are at it.
sub start_clients
{
	my ($node, $n) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my @clients;

	append_to_file("$dir/take", "SELECT snowid.next_id(5, 's');\n" x 100_000);
	for my $i (1 .. $n)
	{
		my $run = IPC::Run::start(
			[ 'psql', '-XAtq', '-f', "$dir/take", $node->connstr('postgres') ],
			'>', "$dir/$i", '2>', '/dev/null');
		push @clients, { run => $run, file => "$dir/$i" };
	}
	$node->poll_query_until('postgres', qq{
SELECT count(*) = $n FROM pg_stat_activity
WHERE query LIKE 'SELECT snowid.next_id%'}) or die 'clients do not start';
	return @clients;
}

# What a client saw, kept outside the server, once the server is gone.
sub ids_seen
{
	my ($client) = @_;

	$client->{run}->finish and die 'client has not lost its server';
	return split /\n/, slurp_file($client->{file});
}

# Wait until clients take ids at the time of the clock.
sub wait_for_clock
{
	my ($node) = @_;

	$node->poll_query_until('postgres', q{
SELECT ahead > '-1 s' FROM snowid.sequence_state('s')})
	  or die 'clients do not follow the clock';
	return;
}

# A table for calls of next_id() on sequence s, and a statement that makes $n
# of them.  A call's begin and end are told by a plain sequence: no clock can
# be trusted here, and two ticks are never the same.
sub make_calls
{
	my ($node, $n) = @_;

	$node->safe_psql('postgres', q{
CREATE EXTENSION IF NOT EXISTS snowid;
CREATE SEQUENCE s;
CREATE SEQUENCE tick;
CREATE TABLE calls (began bigint, id bigint, ended bigint);
});
	return qq{INSERT INTO calls
SELECT nextval('tick'), snowid.next_id(5, 's'), nextval('tick')
FROM generate_series(1, $n);
};
}

# Start pgbench with $clients sessions, each running the script $times times.
# Returns a handle to finish.
sub start_load
{
	my ($node, $clients, $times, $script) = @_;
	my $file = $node->basedir . '/load.sql';

	unlink $file;
	append_to_file($file, $script);
	return IPC::Run::start(
		[
			'pgbench', '-n', '-c', $clients, '-t', $times, '-f', $file,
			$node->connstr('postgres')
		],
		'>', '/dev/null');
}

# No id twice, and each id is larger than all ids of calls, of any session, that
# had ended before its own call began.
sub strict_order_ok
{
	my ($node, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is( $node->safe_psql('postgres', q{
SELECT count(*) > 0, count(*) - count(DISTINCT id) FROM calls}),
		't|0', "$name: no id twice");
	is( $node->safe_psql('postgres', q{
SELECT count(*) FROM (
	SELECT began, min(ended) OVER (ORDER BY id DESC
		ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS larger_ended
	FROM calls) AS c
WHERE larger_ended < began}),
		'0', "$name: every later id is larger");
	return;
}

1;
