# What the tests of moves behind PgBouncer share: a pooler whose entries
# snowid-move writes, and clients of it that note each row that they were told of,
# and each error.
package PoolerTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(have_pgbouncer pgbouncer_version start_pooler restart_pooler stop_pooler console pooler_options entries write_entries pooled clients clients_ok led_to await_pooler login_retry);

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
my $user = getpwuid($<);
my @running;

sub have_pgbouncer
{
	return defined $pgbouncer;
}

# As a number: 1018 for 1.18.
sub pgbouncer_version
{
	return `$pgbouncer --version` =~ /(\d+)\.(\d+)/ ? 1000 * $1 + $2 : die 'no version';
}

# Start a pooler whose file has the entries of that server's registry, or is another
# pooler's; on a port of its own, if none is given.
sub start_pooler
{
	my ($node, $conf, $file, $port) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $p = { dir => $dir, port => $port // PostgreSQL::Test::Cluster::get_free_port(), file => $file // "$dir/shards.ini" };

	write_entries($p, $node) unless defined $file;
	append_to_file("$dir/users", qq{"$user" ""\n});
	append_to_file("$dir/ini", qq{
%include $p->{file}
[pgbouncer]
listen_addr =
listen_port = $p->{port}
unix_socket_dir = $dir
auth_type = trust
auth_file = $dir/users
admin_users = $user
pool_mode = transaction
default_pool_size = 3
logfile = $dir/log
pidfile = $dir/pid
@{[$conf // '']}
});
	push @running, $p;
	return restart_pooler($p);
}

# Start it, or again after it was killed.
sub restart_pooler
{
	my ($p) = @_;

	unlink "$p->{dir}/pid";
	system_or_bail($pgbouncer, '-q', '-d', "$p->{dir}/ini");
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	until (IPC::Run::run([ 'psql', '-XAtqc', 'SHOW VERSION', console($p) ], '>', \my $out, '2>', \my $err))
	{
		die "PgBouncer does not answer: $err" if time > $end;
		usleep(10_000);
	}
	return $p;
}

sub stop_pooler
{
	my ($p, $signal) = @_;
	my $pid = slurp_file("$p->{dir}/pid") + 0;

	kill $signal // 'TERM', $pid;
	usleep(10_000) while kill 0, $pid;
	return;
}

sub write_entries
{
	my ($p, $node) = @_;
	my $text = entries($node);

	open my $file, '>', $p->{file} or die $!;
	print $file $text;
	close $file;
	return;
}

# What snowid-move route says.
sub entries
{
	my ($node) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'snowid-move', 'route', '--from', MoveTest::address($node) ], '>', \$out, '2>', \$err)
	  or die "route: $err";
	return $out;
}

sub console
{
	my ($p) = @_;
	return pooled($p, 'pgbouncer');
}

sub pooled
{
	my ($p, $pool) = @_;
	return "host=$p->{dir} port=$p->{port} user=$user dbname=$pool";
}

# The port that a pool leads to, and whether it is paused.
sub led_to
{
	my ($p, $pool) = @_;
	IPC::Run::run([ 'psql', '-XAqc', 'SHOW DATABASES', console($p) ], '>', \my $out) or die;
	my ($names, @rows) = map { [ split /\|/ ] } split /\n/, $out;
	my ($row) = grep { $_->[0] eq $pool } @rows;
	my %entry;
	@entry{@$names} = @$row;
	return $entry{port} . ($entry{paused} ? ' paused' : '');
}

# Wait until a console shows that.
sub await_pooler
{
	my ($p, $show, $like) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $out = '';

	while ($out !~ $like)
	{
		die "never $like: $out" if time > $end;
		usleep(10_000);
		IPC::Run::run([ 'psql', '-XAtqc', $show, console($p) ], '>', \$out);
	}
	return;
}

# How long it opens no connection of a pool after a login has failed, in seconds.
sub login_retry
{
	my ($p) = @_;
	IPC::Run::run([ 'psql', '-XAtqc', 'SHOW CONFIG', console($p) ], '>', \my $out) or die;
	return ($out =~ /^server_login_retry\|([^|]+)/m)[0];
}

# A machine that is busy is no reason to give up.
sub pooler_options
{
	my (@poolers) = @_;
	return ((map { ('--pooler', console($_)) } @poolers), '--pooler-file', $poolers[0]{file},
		'--pause-limit', 20000, '--lock-timeout', 1000);
}

# Start clients of a pool that insert into its shards by turns: one that keeps its
# connection, or, in session mode, one that connects for each row.
sub clients
{
	my ($p, $pool, $each_connects, @shards) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $insert = join '', map { "INSERT INTO insta$_.users (name) VALUES ('pooled') RETURNING id;\n" } @shards;
	my @psql = ('psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', pooled($p, $pool));
	my @command = @psql;

	append_to_file("$dir/write", $insert x ($each_connects ? 1 : 40_000));
	@command = ('sh', '-c', 'while :; do "$@" || echo "exit $?" >&2; done', 'sh', @psql) if $each_connects;
	my $run = IPC::Run::start([ @command, '-f', "$dir/write" ], '>', "$dir/ids", '2>', "$dir/errors");
	my $client = { run => $run, ids => "$dir/ids", errors => "$dir/errors", shards => \@shards, name => "clients of $pool" };
	more_rows($client);
	return $client;
}

# Wait until each has been told of more rows than now.
sub more_rows
{
	for my $client (@_)
	{
		my $size = -s $client->{ids} // 0;
		my $end = time + $PostgreSQL::Test::Utils::timeout_default;

		while ((-s $client->{ids} // 0) <= $size)
		{
			die 'no more rows: ' . slurp_file($client->{errors}) if time > $end;
			usleep(10_000);
		}
	}
	return;
}

# After they were told of more rows, they end; each row is there, once, and there was no
# error but those that are expected.
sub clients_ok
{
	my ($name, $node, $clients, $expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	more_rows(@$clients);
	$_->{run}->kill_kill for @$clients;
	for my $client (@$clients)
	{
		my %told = map { $_ => 1 } grep { /^\d+$/ } split /\n/, slurp_file($client->{ids});
		my $tables = join ' UNION ALL ', map { "SELECT id FROM insta$_.users WHERE name = 'pooled'" } @{ $client->{shards} };
		my %there;
		$there{$_}++ for split /\n/, $node->safe_psql('postgres', $tables);
		is_deeply([ grep { ($there{$_} // 0) != 1 } keys %told ], [], "$name: each of " . keys(%told) . ' rows is there once');
		my @errors = grep { !/$expected/ } grep { /ERROR|FATAL|exit/ } split /\n/, slurp_file($client->{errors});
		is_deeply(\@errors, [], "$name: no error at the $client->{name}") or diag(slurp_file($client->{errors}));
	}
	return;
}

END
{
	for my $p (@running) { kill 'TERM', slurp_file("$p->{dir}/pid") + 0 if -e "$p->{dir}/pid" }
}

1;
