# A fail-over of the source or the target to its standby, at each step of a move.
# Asynchronous standbys lose what was committed last: the new target then lacks rows
# that the source's slot thinks it has, and the new source those that the target has.
# Whatever was lost, the same command must end with the same rows on both servers.
#
# All steps with SNOWID_FAIL_OVER=all; else those where rows would be lost.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

my $all = ($ENV{SNOWID_FAIL_OVER} // '') eq 'all';
my %now = (source => move_node('source', allows_streaming => 1), target => move_node('target', allows_streaming => 1));
my %standby;
my $count = 0;

$_->start for values %now;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for values %now;
my $slots = $now{source}->pg_version >= 17;

# Give a server a standby that follows it.
sub add_standby
{
	my ($side) = @_;
	my $name = $side . ++$count;

	$now{$side}->backup($name);
	$standby{$side} = PostgreSQL::Test::Cluster->new($name);
	$standby{$side}->init_from_backup($now{$side}, $name, has_streaming => 1);
	$standby{$side}->start;
	return;
}

# Have the source's standby get the slots, too, and wait until it has that of a move.
sub synchronize_slots
{
	my $name = $standby{source}->name;

	$now{source}->safe_psql('postgres', "SELECT pg_create_physical_replication_slot('standby')");
	$standby{source}->append_conf('postgresql.conf', "primary_conninfo = 'host=" . $now{source}->host . ' port=' . $now{source}->port . qq{ dbname=postgres application_name=$name'
primary_slot_name = standby
hot_standby_feedback = on
});
	$standby{source}->restart;

	# Its slot is kept only when that of the primary has come as far.
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$now{source}->safe_psql('postgres', 'SELECT pg_log_standby_snapshot()');
		$now{source}->wait_for_catchup($standby{source});
		my (undef, $kept) = $standby{source}->psql('postgres',
			'SELECT FROM pg_sync_replication_slots(); SELECT count(*) FROM pg_replication_slots WHERE synced AND NOT temporary');
		return if $kept =~ /1$/;
		usleep(100_000);
	}
	die 'the standby does not get the slot';
}

# From here on the standby gets nothing more.
sub cut_off
{
	my ($side) = @_;

	$now{$side}->wait_for_catchup($standby{$side});
	$standby{$side}->append_conf('postgresql.conf', "primary_conninfo = ''");
	$standby{$side}->reload;
	$now{$side}->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE slot_type IS DISTINCT FROM $$logical$$)')
	  or die 'the standby still follows';
	return;
}

sub fail_over
{
	my ($side) = @_;

	$now{$side}->stop('immediate');
	$standby{$side}->promote;
	$now{$side} = delete $standby{$side};
	return;
}

# All hosts of a server, the standby first.
sub home_of
{
	my ($side) = @_;
	my @nodes = grep { defined } $standby{$side}, $now{$side};

	return sprintf 'host=%s port=%s dbname=postgres target_session_attrs=read-write', join(',', map { $_->host } @nodes), join(',', map { $_->port } @nodes);
}

sub command
{
	my (@args) = @_;
	return ('snowid-move', @args, '--shard=5', '--from', home_of('source'), '--to', home_of('target'), '--pause-limit', 60000, '--lock-timeout', 60000);
}

sub run_move
{
	my (@args) = @_;
	my $said = '';

	IPC::Run::run([ command(@args) ], '>', \$said, '2>&1');
	return ($? >> 8, $said);
}

sub write_rows
{
	my ($name) = @_;

	$now{source}->safe_psql('postgres', qq{
UPDATE insta5.users SET name = '$name', photos = photos + 1 WHERE id IN (SELECT id FROM insta5.users ORDER BY id LIMIT 50);
INSERT INTO insta5.users (name) SELECT '$name' FROM generate_series(1, 20);
DELETE FROM insta5.photos WHERE id IN (SELECT id FROM insta5.photos ORDER BY id LIMIT 30);
INSERT INTO insta5.likes DEFAULT VALUES});
	return;
}

sub rows_of
{
	my ($node, $s) = @_;

	return $node->safe_psql('postgres', join ' UNION ALL ',
		map { "SELECT '$_', count(*), md5(string_agg(t::text, ';' ORDER BY id)) FROM $s.$_ t" } qw(users photos likes));
}

# Start a move, and hold it at a step of the journal.
sub hold_move
{
	my ($node, $step, $in_commit, $said) = @_;
	my $hold = hold_at_step($node, $step, $in_commit);
	my $tool = IPC::Run::start([ command() ], '>&', $said);

	wait_until_held($node) or die 'does not get there';
	return ($hold, $tool);
}

# Cut the standby off, and have the target get rows of which the slot is told.
sub lose_rows
{
	my ($side) = @_;

	cut_off($side);
	write_rows('lost');
	my $lsn = $now{source}->lsn('write');
	$now{source}->poll_query_until('postgres', qq{
SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_type = 'logical' AND confirmed_flush_lsn < '$lsn'})
	  if $now{target}->safe_psql('postgres', 'SELECT count(*) FROM pg_subscription') > 0;
	return;
}

# Hold a move at a step of the journal of one server, have the side fail over, and
# go on.  Its standby has nothing of what is written since a step; "now": this one.
sub fail_over_ok
{
	my ($side, $step_side, $step, $in_commit, $since, %expected) = @_;
	my $name = "$side, at $step of the $step_side" . ($in_commit ? ', in COMMIT' : '') . ($since ? ", without what was written since $since" : '');
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	subtest $name => sub {
		my ($said, $code) = ('', 0);
		my ($hold, $tool, $earlier);

		fresh_shard($now{source}, $now{target});
		my $photo = $now{source}->safe_psql('postgres', 'SELECT min(id) FROM insta5.photos');
		add_standby($side);
		if ($since && $since ne 'now')
		{
			my $node = $now{ $since eq 'open' ? 'target' : 'source' };

			($earlier, $tool) = hold_move($node, $since, 0, \$said);
			if ($step_side eq 'source')
			{
				$tool->kill_kill;
				$node->safe_psql('postgres', q{
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
				$earlier->{run}->kill_kill;
				let_go_steps($node);
			}
			lose_rows($side);
		}
		if ($earlier && $step_side eq 'target')
		{
			$hold = hold_at_step($now{target}, $step, $in_commit);
			$earlier->{run}->kill_kill;
			wait_until_held($now{target}) or die 'does not get there';
		}
		else
		{
			($hold, $tool) = hold_move($now{$step_side}, $step, $in_commit, \$said);
		}
		lose_rows($side) if $since && $since eq 'now';
		$now{$side}->wait_for_catchup($standby{$side}) if !$since;
		fail_over($side);
		$hold->{run}->kill_kill;
		$tool->finish;
		$code = $? >> 8;
		let_go_steps($_) for values %now;
		if (living($now{source}) eq '5')
		{
			write_rows('later');
			$now{source}->safe_psql('postgres', "INSERT INTO insta5.photos (id, user_id) SELECT $photo, min(id) FROM insta5.users") if $expected{comes_back};
		}
		$said .= (run_move('status'))[1];
		for (1 .. 3)
		{
			last if $code == 0;
			$said .= "--- $code\n";
			($code, my $more) = run_move();
			$said .= $more;
		}
		$said =~ s/^ok .*\n//mg;
		is($code, 0, "$name: it comes to an end") or diag $said;
		like($said, $expected{says}, "$name: says so") if $expected{says};
		my $old = $now{source}->safe_psql('postgres', 'SELECT schema FROM snowid.moves');
		my ($here, $there) = map { rows_of(@$_) } [ $now{target}, 'insta5' ], [ $now{source}, $old ];
		if ($expected{reopened})
		{
			isnt($here, $there, "$name: the source's copy has rows of its own");
			like((run_move('finish'))[1], qr/may have rows that are nowhere else/, "$name: finish refuses to drop them");
		}
		else
		{
			is($here, $there, "$name: the same rows") or diag $said;
		}
		lives_on_ok($now{target}, $now{source}, $name);
		($code, my $more) = run_move('finish', $expected{reopened} ? '--cascade' : ());
		is($code, 0, "$name: finished") or diag $more;
		nothing_left_ok($_, $name) for values %now;
		note $said;
	};
	return;
}

my $anew = qr/the target has failed over/;
my $undone = qr/the target has failed over, and lacks what it had of shard 5 when the move was decided.*the move is undone/s;
my $gone = $slots ? qr/the source has failed over/ : qr/slots of its primary/;

fail_over_ok('target', 'source', 'copied', 0, 'now', says => qr/differs: .*shard 5: copied anew, since the target has failed over/s);
fail_over_ok('target', 'source', 'verified', 0, 'now', comes_back => 1, says => qr/cannot apply what has come since the fail-over.*copied anew/s);
fail_over_ok('target', 'source', 'fenced', 1, 'open', says => qr/differs: .*$undone/s);
fail_over_ok('source', 'source', 'verified', 0, 'now', says => $gone);
fail_over_ok('source', 'target', 'open', 1, 'verified', reopened => 1, says => qr/open on both servers.*shard 5 was open at .*, too/s);
fail_over_ok('target', 'source', 'moved', 1, 'verified', says => qr/has failed over and is closed.*$undone/s);

# The source's copy stays until the target's standby has the shard, too; and there is
# no way back after that was promoted.
subtest 'after the move' => sub {
	fresh_shard($now{source}, $now{target});
	add_standby('target');
	$now{target}->wait_for_catchup($standby{target});
	my $receiver = $standby{target}->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
	kill 'STOP', $receiver;
	my ($code, $said) = run_move('--reverse');
	is($code, 3, 'a standby that does not follow');
	like($said, qr/now lives at.*a standby of .* does not have the shard yet/s, '... is waited for');
	is(journal_step($now{source}), 'fenced', '... and the copy stays');
	kill 'CONT', $receiver;
	is((run_move('--reverse'))[0], 0, 'it follows');
	$now{target}->wait_for_catchup($standby{target});
	fail_over('target');
	($code, $said) = run_move('back');
	is($code, 1, 'back');
	like($said, qr/is lost.*There is no way back any more/s, '... finds its slot lost');
	lives_on_ok($now{target}, $now{source}, 'the shard');
	is((run_move('finish'))[0], 0, 'finished');
	nothing_left_ok($_, 'no way back') for values %now;
};

# The copy goes on, since the new primary has its slot; but not if the target has
# rows that the new primary lacks.
for my $loss ($slots ? (0, 1) : ())
{
	subtest 'source, with its slot' . ($loss ? ', without what was written since' : '') => sub {
		fresh_shard($now{source}, $now{target});
		add_standby('source');
		is((run_move('--stop-after', 'copied'))[0], 0, 'copied');
		synchronize_slots();
		$loss ? lose_rows('source') : $now{source}->wait_for_catchup($standby{source});
		fail_over('source');
		write_rows('later');
		my ($code, $said) = run_move();
		is($code, 0, 'it goes on') or diag $said;
		like($said, $loss ? qr/differs.*copied anew/s : qr/going on after step "copied".*compared, no difference/s, 'as it must');
		unlike($said, qr/copied anew/, 'without a new copy') if !$loss;
		is(rows_of($now{target}, 'insta5'), rows_of($now{source}, 'insta5_moved'), 'the same rows');
		is((run_move('finish'))[0], 0, 'finished');
		nothing_left_ok($_, 'with the slot') for values %now;
	};
}

if ($all)
{
	for my $side ('target', 'source')
	{
		# Without loss, and with loss of what is written then.
		for my $since (undef, 'now')
		{
			fail_over_ok($side, @$_, $since)
			  for [ 'source', 'claimed', 0 ], [ 'target', 'claimed', 0 ], [ 'source', 'published', 0 ], [ 'target', 'schema', 0 ], [ 'target', 'rows', 0 ],
			  [ 'target', 'subscribed', 0 ], [ 'target', 'subscribed', 1 ], [ 'target', 'copied', 0 ], [ 'source', 'copied', 0 ], [ 'source', 'verified', 0 ];
		}

		# Within the pause, and after it.
		fail_over_ok($side, @$_, undef)
		  for [ 'target', 'ready', 0 ], [ 'target', 'open', 0 ], [ 'source', 'fenced', 0 ], [ 'source', 'fenced', 1 ], [ 'target', 'open', 1 ],
		  [ 'source', 'moved', 0 ], [ 'source', 'moved', 1 ];
	}
	fail_over_ok('target', @$_, 'verified') for [ 'target', 'ready', 0 ], [ 'source', 'fenced', 0 ];
	fail_over_ok('target', @$_, 'verified', says => $undone) for [ 'source', 'fenced', 1 ], [ 'target', 'open', 1 ], [ 'source', 'moved', 0 ];
	fail_over_ok('source', @$_, 'verified') for [ 'target', 'ready', 0 ], [ 'source', 'fenced', 1 ];
	fail_over_ok('source', @$_, 'verified', reopened => 1) for [ 'source', 'moved', 0 ], [ 'source', 'moved', 1 ];
}

done_testing();
