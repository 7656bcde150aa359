# From PostgreSQL 16 on, the role that moves need be no superuser on either
# server.  Whatever right that takes is a line of plan, with the command that
# grants it: the test types what plan says, and moves a set, under writers; and
# once more for a way back, there and back.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
plan skip_all => 'before PostgreSQL 16, only superusers make subscriptions' if $a->pg_version < 16;
my $b = move_node('b');

# Who connects by TCP must have a password, which a subscription can name.
for ($a, $b)
{
	$_->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
	unlink $_->data_dir . '/pg_hba.conf';
	$_->append_conf('pg_hba.conf', "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nlocal replication all trust\nhost replication all 127.0.0.1/32 scram-sha-256\n");
	$_->start;
}
$_->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE ROLE owner; CREATE ROLE mover LOGIN; CREATE ROLE reader LOGIN REPLICATION PASSWORD \'pass word\'') for $a, $b;
$a->safe_psql('postgres', q{
GRANT CREATE ON DATABASE postgres TO owner;
GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.shard_registry TO owner;
SET ROLE owner;
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), name text);');
INSERT INTO insta5.users (name) SELECT 'user' FROM generate_series(1, 100);
INSERT INTO insta6.users (name) SELECT 'user' FROM generate_series(1, 100)});
my %reader = map { $_->name => 'host=127.0.0.1 port=' . $_->port . ' dbname=postgres user=reader' } $a, $b;
my @move = ('snowid-move', '--shard', '5-6', '--from', $a->connstr('postgres') . ' user=mover', '--to', $b->connstr('postgres') . ' user=mover');

sub run_move
{
	my (@args) = @_;
	my $said = '';

	IPC::Run::run([ @move, @args ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return ($? >> 8, $said);
}

my ($code, $said);
my @with_password = ('--source-for-target', "$reader{a} password='pass word'");

# Type what plan says, until it has nothing more to say; returns what that was.
sub type_rights
{
	my (@args) = @_;
	my %typed;

	for (1 .. 10)
	{
		my $typed = 0;

		($code, $said) = run_move('plan', @with_password, @args);
		while ($said =~ /^(?:warning|FAILED|snowid-move: error:) +(.*)\n.*?[Tt]ype: ((?:GRANT|ALTER ROLE) .*;)$/mg)
		{
			my ($check, $sql) = ($1, $2);
			my $node = $check =~ /^((rights|ownership) on the )?target/ ? $b : $a;

			$node->safe_psql('postgres', $sql);
			$typed{ $node->name . ": $sql" } = 1;
			$typed++;
		}
		last if !$typed;
	}
	is($code, 0, 'a plan passes once that has been typed which it says') or diag $said;
	my @sorted = sort keys %typed;
	return @sorted;
}

my @typed = type_rights();
is_deeply(
	[ grep { /^b/ } @typed ],
	[
		'b: GRANT CREATE ON DATABASE postgres TO mover;',
		'b: GRANT CREATE ON DATABASE postgres TO owner;',
		'b: GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.moves TO mover;',
		'b: GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.shard_registry TO mover;',
		'b: GRANT SET ON PARAMETER deadlock_timeout TO mover;',
		'b: GRANT owner TO mover;',
		'b: GRANT pg_create_subscription TO mover;',
		'b: GRANT pg_read_all_stats TO mover;'
	],
	'on the target it was these') or diag join "\n", @typed;
($code, $said) = run_move('plan', '--source-for-target', $reader{a});
is($code, 1, 'without a password');
like($said, qr/^FAILED +connection from the target.*\n +A role that is no superuser must name a password/m, 'plan says so');

my $script = $a->basedir . '/write.sql';
append_to_file($script, "INSERT INTO insta5.users (name) VALUES ('new');\n");
my $load = IPC::Run::start([ 'pgbench', '-n', '-R', 200, '-T', 600, '-f', $script, $a->connstr('postgres') ], '>&', '/dev/null');
$a->poll_query_until('postgres', q{SELECT count(*) > 110 FROM insta5.users}) or die 'nobody writes';
($code, $said) = run_move('--verify', 'checksums', '--retries', 50, @with_password);
is($code, 0, 'moved') or diag $said;
$load->finish;
unlike($said, qr/pass word/, 'no password is shown');
is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_subscription}), '0', 'nor kept');
is($b->safe_psql('postgres', q{SELECT count(*) FROM snowid.moves WHERE details::text LIKE '%pass word%'}), '0', 'nor in the journal');
is($b->safe_psql('postgres', 'SELECT count(*), max(id) FROM insta5.users'),
	$a->safe_psql('postgres', 'SELECT count(*), max(id) FROM insta5_moved.users'), 'all rows are there');
is($b->safe_psql('postgres', q{SELECT string_agg(DISTINCT tableowner, ',') FROM pg_tables WHERE schemaname ~ '^insta'}), 'owner', 'with their owner');
is($b->safe_psql('postgres', q{SET ROLE owner; INSERT INTO insta6.users (name) VALUES ('there') RETURNING name}), 'there', 'who writes');
is((run_move('finish'))[0], 0, 'finished');
nothing_left_ok($_, 'finished') for $a, $b;

# With a way back, and what was written there.
$a->safe_psql('postgres', q{
SET ROLE owner;
CALL snowid.create_shards(7, 7, ddl => 'CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), name text);');
INSERT INTO insta7.users (name) SELECT 'user' FROM generate_series(1, 100)});
@move[1, 2] = ('--shard', 7);
my @both_ways = ('--reverse', '--target-for-source', "$reader{b} password='pass word'");
is_deeply(
	[ type_rights(@both_ways) ],
	[
		'a: GRANT EXECUTE ON FUNCTION pg_replication_origin_advance(text,pg_lsn) TO mover;',
		'a: GRANT pg_create_subscription TO mover;',
		'b: ALTER ROLE mover REPLICATION;'
	],
	'the way back takes these as well');
($code, $said) = run_move(@with_password, @both_ways);
is($code, 0, 'moved, with a way back') or diag $said;
my $last = $b->safe_psql('postgres', q{SET ROLE owner; INSERT INTO insta7.users (name) VALUES ('there') RETURNING id});
($code, $said) = run_move('back', @with_password, grep { $_ ne '--reverse' } @both_ways);
is($code, 0, 'moved back') or diag $said;
is($a->safe_psql('postgres', 'SELECT count(*), max(id) FROM insta7.users'), "101|$last", 'with what was written there');
cmp_ok($a->safe_psql('postgres', q{SET ROLE owner; INSERT INTO insta7.users (name) VALUES ('here') RETURNING id}), '>', $last, 'and ids go on');
is((run_move('finish'))[0], 0, 'finished');
nothing_left_ok($_, 'a way back: finished') for $a, $b;

# Undone, too.
($code, $said) = run_move(@with_password, '--stop-after', 'copied');
is($code, 0, 'copied') or diag $said;
($code, $said) = run_move('abort');
is($code, 0, 'aborted') or diag $said;
nothing_left_ok($_, 'aborted') for $a, $b;
done_testing();
