# What doc/citus.md says of the sequences that Citus makes on its workers:
# MINVALUE and START are (group << 48) + 1, MAXVALUE 2^48 more, and each node
# has a copy of its own.  Read as slots, those are times: group 1 began in
# 2020 and ends in 2029, group 2 begins in 2029.  Clocks that stand still make
# each of them today.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $today = '2026-06-01 00:00:00';
my $near = '2029-01-24 19:03:50';	# START of group 2 is 19:03:55.609
my $node = new_node('worker');

sub sql
{
	return $node->safe_psql($_[1] // 'postgres', $_[0]);
}

# As worker_apply_sequence_command() of Citus does on a worker.
sub distribute
{
	my ($name, $group) = @_;
	my $start = ($group << 48) + 1;
	my $max = $start + (1 << 48);

	sql("CREATE SEQUENCE IF NOT EXISTS $name");
	sql("ALTER SEQUENCE $name START $start MINVALUE $start MAXVALUE $max RESTART $start");
	return $start;
}

start_with_clock($node, $today);
sql('CREATE EXTENSION snowid');

# Any group starts from the clock, and goes on from there.
foreach my $group (1, 2, 3, 4, 100, 32766)
{
	distribute("g$group", $group);
	is(sql("SELECT snowid.id_timestamp(snowid.next_id(5, 'g$group')) AT TIME ZONE 'UTC'"),
		$today, "a sequence of group $group starts from now");
	is(sql("SELECT snowid.id_seq(snowid.next_id(5, 'g$group'))"),
		1, "... and goes on from there");
}

# Its last value is below MINVALUE then; a crash and nextval() respect it.
my $last = sql("SELECT snowid.next_id(5, 'g2')");
crash($node);
set_clock($node, '2026-05-31 23:59:59');
start_with_clock($node, '2026-05-31 23:59:59');
cmp_ok(sql("SELECT snowid.next_id(5, 'g2')"), '>', $last,
	'below its MINVALUE, a sequence survives a crash');
sql("SELECT nextval('g2')");
cmp_ok(sql("SELECT snowid.next_id(5, 'g2')"), '>', $last, '... and nextval()');

# On the day of a START, too.
set_clock($node, $near);
my $start = distribute('soon', 2);
is(sql("SELECT snowid.id_timestamp(snowid.next_id(5, 'soon')) AT TIME ZONE 'UTC'"),
	$near, 'a START of five seconds ahead is not followed');
distribute('setval', 2);
sql("SELECT setval('setval', $start + 1, false)");
cmp_ok(sql("SELECT snowid.id_timestamp(snowid.next_id(5, 'setval')) AT TIME ZONE 'UTC'"),
	'gt', $near, '... but what setval() names is');

# A node that Citus sets up anew forgets what it issued.
distribute('again', 2);
$last = sql("SELECT max(snowid.next_id(5, 'again')) FROM generate_series(1, 3000)");
set_clock($node, '2029-01-24 19:03:50.020');
sql("ALTER SEQUENCE again NO MINVALUE NO MAXVALUE");
distribute('again', 2);
cmp_ok(sql("SELECT snowid.next_id(5, 'again')"), '>', $last,
	'ids rise when Citus restarts a sequence');

# Group 1 ends that day.
set_clock($node, '2029-01-24 19:03:56');
my ($ret, $stdout, $stderr) = $node->psql('postgres', "SELECT snowid.next_id(5, 'g1')",
	extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($stderr, qr/2200H: reached maximum value of sequence "g1" \(562949953421313\)/,
	'a sequence of group 1 ends in 2029');
my ($command) = $stderr =~ /Type: (ALTER SEQUENCE.*;)/;
sql($command);
is(sql("SELECT snowid.id_timestamp(snowid.next_id(5, 'g1')) AT TIME ZONE 'UTC'"),
	'2029-01-24 19:03:56', '... unless one types what the hint says');
distribute('own', 1);
is(sql("SELECT snowid.id_timestamp(snowid.next_id(5, 'own', '2026-01-01'), '2026-01-01') AT TIME ZONE 'UTC'"),
	'2029-01-24 19:03:56', '... or has an own epoch of 2026');

# A dump of a value below MINVALUE cannot be restored, until the documented
# statement has taken the bound away.
sub restore
{
	my ($dbname) = @_;
	my $dump = $node->basedir . "/$dbname.sql";

	$node->command_ok([ 'pg_dump', '-f', $dump, '-t', 'g3', $node->connstr('postgres') ],
		"$dbname: dump");
	sql("CREATE DATABASE $dbname");
	return $node->psql($dbname, "\\i $dump", on_error_stop => 1);
}

isnt(restore('bounded'), 0, 'a value below MINVALUE cannot be restored');
my $doc = slurp_file("$FindBin::RealBin/../doc/citus.md");
my ($unbind) = $doc =~ /^(SET citus.*?\\gexec\n)/ms;
$node->safe_psql('postgres', $unbind);
is(restore('unbound'), 0, '... once it has no bounds it can');
is(sql("SELECT last_value FROM g3", 'unbound'), sql("SELECT last_value FROM g3"),
	'... with its value');

# Two nodes have two copies of a shard's sequence.
my $other = new_node('other');
start_with_clock($other, $today);
set_clock($node, $today);
$other->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE SEQUENCE s');
distribute('s', 3);
my $next = "SELECT snowid.next_id(5, 's')";
my $id = sql($next);
is($other->safe_psql('postgres', $next), $id, 'two nodes that write one shard can make the same id');
$id = sql($next);
my $at = sql("SELECT last_id_at FROM snowid.sequence_state('s')");
$other->safe_psql('postgres', "SELECT snowid.advance('s', snowid.max_id('$at'))");
cmp_ok($other->safe_psql('postgres', $next), '>', $id,
	'the node that is to write next goes on above, after advance()');

# A shard number for each node.
foreach my $case ([ $node, 1 ], [ $other, 2 ])
{
	my ($of, $number) = @$case;

	$of->safe_psql('postgres', "ALTER DATABASE postgres SET snowid.shard = $number");
	is($of->safe_psql('postgres', 'SELECT snowid.id_shard(snowid.next_id())'),
		$number, "node $number makes ids of its own shard number");
}

$node->stop;
$other->stop;
done_testing();
