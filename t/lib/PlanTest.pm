# What the tests of snowid-move plan share: two servers with a shard that can
# move, and cases, each of which makes one thing wrong, looks at the plan, and
# puts it right again.
package PlanTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

our @EXPORT = qw(%node start_nodes sql plan_of subject case_ok with_settings done_planning);

$SnowidTest::keeps_sessions = 1;

our %node;			# a, the source, and b, the target
my $clean;			# the plan at the beginning
my %has_settings;	# of a case, until the next case or subject
my @plan;			# of the case before

# Make and start both servers.  The clock of b can be set if it is started with
# one.
sub start_nodes
{
	my ($clock) = @_;

	$node{$_} = new_node($_, allows_streaming => 'logical') for 'a', 'b';
	$node{a}->append_conf('postgresql.conf', q{
max_prepared_transactions = 5
max_slot_wal_keep_size = '1GB'
});
	$node{a}->start;
	defined $clock ? start_with_clock($node{b}, $clock) : $node{b}->start;
	sql($_, 'CREATE EXTENSION snowid; CREATE ROLE app LOGIN; GRANT SELECT ON snowid.moves TO app') for 'a', 'b';
	sql('a', 'CREATE TABLE public.users (id bigint PRIMARY KEY)');
	fresh_shards();
	$clean = tidy((plan_of())[1]);
	return;
}

sub sql
{
	my ($name, $sql, $dbname) = @_;
	return $node{$name}->safe_psql($dbname // 'postgres', $sql);
}

# Whether a plan passes, its lines (findings, each with what to do), and its
# errors.
sub plan_of
{
	my (%options) = (
		'--shard' => 5,
		'--from' => $node{a}->connstr('postgres'),
		'--to' => $node{b}->connstr('postgres'),
		@_);
	my ($stdout, $stderr) = ('', '');
	my $passed = IPC::Run::run(
		[ 'snowid-move', 'plan', map { ($_, $options{$_} // ()) } sort keys %options ],
		'>', \$stdout, '2>', \$stderr);

	return ($passed, $stdout, $stderr);
}

# A subtest that begins with a new shard 5 on a, which can move to b.
sub subject
{
	my ($name, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return subtest $name => sub {
		drop_settings();
		fresh_shards();
		$code->();
	};
}

sub fresh_shards
{
	sql('a', q{
SELECT snowid.drop_shard(shard, cascade => true) FROM snowid.shards;
SELECT snowid.create_shard(5);
SELECT snowid.create_shard(6);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), user_id bigint NOT NULL);
CREATE TABLE insta5.likes (id bigint PRIMARY KEY DEFAULT insta5.next_id(), photo_id bigint NOT NULL REFERENCES insta5.photos)});
	return;
}

# At the end all is as at the beginning, and no plan has left anything.
sub done_planning
{
	drop_settings();
	my (undef, $plan, $stderr) = plan_of();
	is(tidy($plan), $clean, 'at the end, all is as at the beginning') or diag($stderr);
	is(sql('a', 'SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots)'),
		0, 'no plan has left a publication or a slot');
	is(sql('b', q{SELECT (SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_namespace WHERE nspname = 'insta5')}),
		0, '... or a subscription or a schema');
	$node{$_}->stop for sort keys %node;
	done_testing();
	return;
}

# A plan, but for what differs from one to the next.
sub tidy
{
	my ($text) = @_;

	$text =~ s/behind|ahead/off/g;
	$text =~ s/\d+/0/g;
	return $text;
}

# Make something wrong, and expect a finding.
#
#	name of the check, severity, what it found and what to do (as patterns)
#	do, undo: [ server, statements ... ]
#	options: of the plan
#	same_plan: the plan of the case before has this finding, too
sub case_ok
{
	my ($check, $severity, $what, $to_do, %case) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $do (@{ $case{do} || [] })
	{
		sql(@$do);
	}
	@plan = plan_of(@{ $case{options} || [] }) unless $case{same_plan};
	my ($passed, $plan, $stderr) = @plan;
	foreach my $undo (@{ $case{undo} || [] })
	{
		sql(@$undo);
	}
	ok($plan =~ /^\Q$severity\E +\Q$check\E: .*$what.*\n +.*$to_do/m,
		"$check: $severity " . ($what =~ s/\\//gr))
	  or diag($plan, $stderr);
	ok($severity eq 'FAILED' ? !$passed : $passed, '... and the plan '
		  . ($severity eq 'FAILED' ? 'fails' : 'passes')) or diag($plan)
	  unless $case{also_fails};
	return;
}

# The same with settings of a server that need a restart.  Cases in which nothing else is made
# wrong have the same options.
sub with_settings
{
	my ($name, $settings, @cases) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $file = $node{$name}->data_dir . '/postgresql.conf';
	my $before = slurp_file($file);
	$node{$name}->append_conf('postgresql.conf', $settings);
	$node{$name}->restart;
	my $is_looked_at = 0;
	foreach my $case (@cases)
	{
		my (undef, undef, undef, undef, %case) = @$case;
		case_ok(@$case, also_fails => 1, same_plan => $is_looked_at++ && !$case{do});
	}
	truncate $file, length $before;
	$has_settings{$name} = 1;
	return;
}

# Its file is as before, the server not yet.
sub drop_settings
{
	$node{$_}->restart foreach sort keys %has_settings;
	%has_settings = ();
	return;
}

1;
