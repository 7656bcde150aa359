# A server that fails over has several hosts.  Clients must be told all of them, or
# the next switch-over sends them to a standby; and a command that names fewer or
# other ones of them means the same server.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b', allows_streaming => 1);
my $c;
{
	local $ENV{INITDB_TEMPLATE};
	$c = move_node('c', extra => ['--no-locale']);
}
$_->start for $a, $b, $c;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $b, $c;
make_shard($a, 5, 'insta5');
$b->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($b, 'copy', has_streaming => 1);
$standby->start;

# The hosts of these servers; the standby first, so that libpq must choose.
sub home_of
{
	my (@nodes) = @_;
	return sprintf 'host=%s port=%s dbname=postgres target_session_attrs=read-write', join(',', map { $_->host } @nodes), join(',', map { $_->port } @nodes);
}

sub move_to
{
	my ($to, $expected, $name, $like, @args) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = '';

	IPC::Run::run([ 'snowid-move', @args, '--shard=5', '--from', $a->connstr('postgres'), '--to', $to ], '>', \$said, '2>&1');
	is($? >> 8, $expected, $name) or diag $said;
	like($said, $like, "$name: says so");
	return;
}

my $home = home_of($standby, $b);
move_to($b->connstr('postgres'), 0, 'plan with one host', qr/warning +home of the target: clients will be told "host=\S+ port=\d+ dbname=postgres", one host of a server that has standbys\n.*name all hosts/, 'plan');
move_to($home, 0, 'plan with all hosts', qr/ok +home of the target\n/, 'plan');

subtest 'other names of the same server' => sub {
	# Only the source knows of the move, so the name is all that tells.
	my $hold = hold_at_step($b, 'claimed', 0);
	my $tool = IPC::Run::start([ 'snowid-move', '--shard=5', '--from', $a->connstr('postgres'), '--to', $home ], '>', '/dev/null', '2>&1');
	wait_until_held($b) or die 'does not get there';
	$tool->kill_kill;
	$b->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	$hold->{run}->kill_kill;
	let_go_steps($b);
	move_to($c->connstr('postgres'), 2, 'another server', qr/the source moves shard 5 with another server than that of --to.*Its journal says: \Q$home\E\. Given was: /s, 'abort');
	$b->stop;
	move_to(home_of($b, $c), 2, 'another server under a name that has one of its hosts', qr/with another server than that of --to/, 'abort');
	$b->start;
	move_to($b->connstr('postgres'), 0, 'one of its hosts', qr/nothing is left|undone|aborted/, 'abort');
};

move_to($home, 0, 'move', qr/shard 5 now lives at \Q$home\E; /, '--pause-limit', 60000, '--lock-timeout', 1000);
is($a->safe_psql('postgres', 'SELECT snowid.shard_home(5)'), $home, 'clients are told all hosts');
like(($a->psql('postgres', q{INSERT INTO insta5_moved.users (name) VALUES ('old')}))[2], qr/Write to its new home: \Q$home\E/, '... by the error, too');
$b->wait_for_catchup($standby);
$b->stop;
$standby->promote;
is(`psql -XAtqc "INSERT INTO insta5.users (name) VALUES ('new') RETURNING name" -d "$home"`, "new\n", '... which leads to the standby that was promoted');

# The slot that the target has dropped is not missed there.
move_to($home, 0, 'finish', qr/is dropped/, 'finish');
$_->stop for $a, $c, $standby;
done_testing();
