# Tools that others run on tables of ids: pg_repack, pg_partman, pg_cron, pglogical.
# doc/working-with-ids.md has a line for each.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

chomp(my $share = `pg_config --sharedir`);

sub has_extension
{
	my ($name) = @_;
	return -e "$share/extension/$name.control";
}

plan skip_all => 'none of pg_repack, pg_partman, pg_cron, pglogical here'
  unless grep { has_extension($_) } qw(pg_repack pg_partman pg_cron pglogical);

my @preload = grep { has_extension($_) } qw(pg_cron pglogical);
my $node = new_node('tools', allows_streaming => 'logical');

$node->append_conf('postgresql.conf', "shared_preload_libraries = '" . join(',', @preload) . "'\n");
$node->append_conf('postgresql.conf', "cron.use_background_workers = on\n") if has_extension('pg_cron');
start_with_clock($node, '2026-11-21 12:00:00');
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
SELECT snowid.create_shard(5);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), user_id bigint);
CREATE TABLE insta5.days (id bigint PRIMARY KEY DEFAULT insta5.next_id()) PARTITION BY RANGE (id);
CREATE TABLE insta5.months (id bigint PRIMARY KEY DEFAULT insta5.next_id()) PARTITION BY RANGE (id);
INSERT INTO insta5.photos (user_id) SELECT generate_series(1, 1000);
});

# Make something, and wait until this query is true.
sub comes_true
{
	my ($query, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok($node->poll_query_until('postgres', $query), $what);
	return;
}

SKIP:
{
	skip 'no pg_repack here', 1
	  unless has_extension('pg_repack') && grep { -x "$_/pg_repack" } split /:/, $ENV{PATH};
	my $state = q{SELECT md5(string_agg(p::text, ',' ORDER BY id)), (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
		WHERE adrelid = 'insta5.photos'::regclass) FROM insta5.photos p};
	my $before = $node->safe_psql('postgres', $state);

	$node->safe_psql('postgres', 'CREATE EXTENSION pg_repack; DELETE FROM insta5.photos WHERE user_id > 1000');
	$node->command_ok([ 'pg_repack', '-t', 'insta5.photos', $node->connstr('postgres') =~ s/.*/postgres/r ], 'pg_repack rewrites a table of ids');
	is($node->safe_psql('postgres', $state), $before, '... with all rows, and its DEFAULT');
	is($node->safe_psql('postgres', q{INSERT INTO insta5.photos (user_id) VALUES (0) RETURNING id > (SELECT max(id) FROM insta5.photos)}),
		't', '... and ids go on above the last');
}

SKIP:
{
	skip 'no pg_partman here', 1 unless has_extension('pg_partman');
	my $version = $node->safe_psql('postgres', q{CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
		SELECT split_part(extversion, '.', 1) FROM pg_extension WHERE extname = 'pg_partman'});
	my $type = $version < 5 ? 'native' : 'range';

	# A day of ids; its partitions are named by their first id.
	$node->safe_psql('postgres', qq{
INSERT INTO partman.part_config (parent_table, control, partition_type, partition_interval) SELECT 'none', 'none', '$type', '1' WHERE false;
SELECT partman.create_parent(p_parent_table => 'insta5.days', p_control => 'id', p_type => '$type',
	p_interval => (86400000::bigint << 23)::text, p_premake => 3, p_start_partition => (snowid.min_id(now()))::text);
INSERT INTO insta5.days DEFAULT VALUES;
});
	is($node->safe_psql('postgres', 'SELECT tableoid::regclass::text ~ \'days_p\d+$\' FROM insta5.days'), 't', 'pg_partman makes partitions of ids');
	$node->safe_psql('postgres', q{INSERT INTO insta5.days VALUES (snowid.make_id(now() + interval '2 days', 5, 0)); CALL partman.run_maintenance_proc()});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'insta5.days'::regclass}) >= 6, 1, '... and more as ids come');
	isnt(sqlstate($node, qq{CREATE TABLE d (LIKE insta5.days INCLUDING ALL) PARTITION BY RANGE (id);
		SELECT partman.create_parent(p_parent_table => 'public.d', p_control => 'id', p_type => '$type', p_interval => '1 day')}), '',
		'... but an interval of time is refused');
}

SKIP:
{
	skip 'no pg_cron here', 1 unless has_extension('pg_cron');

	# Its minute passes when the clock is moved.
	$node->safe_psql('postgres', q{CREATE EXTENSION pg_cron; SET timezone = 'UTC';
		SELECT cron.schedule('* * * * *', $$SELECT count(snowid.create_partition('insta5.months', month, month + interval '1 month'))
			FROM generate_series(date_trunc('month', now()), now() + interval '3 months', interval '1 month') AS month$$)});
	$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name LIKE 'pg_cron%' OR backend_type = 'pg_cron launcher'});
	set_clock($node, '+0');
	comes_true(q{SELECT count(*) = 4 FROM pg_inherits WHERE inhparent = 'insta5.months'::regclass}, 'pg_cron calls create_partition()');
}

SKIP:
{
	skip 'no pglogical here', 1 unless has_extension('pglogical');
	my $dsn = $node->connstr('postgres') =~ s/dbname=\S+//r =~ s/'//gr;

	# The newest minor versions ask which libraries may decode the log.
	if ($node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'}))
	{
		$node->safe_psql('postgres', q{ALTER SYSTEM SET output_plugin_libraries = 'pglogical_output'});
		$node->reload;
	}
	$node->safe_psql('postgres', qq{CREATE EXTENSION pglogical; CREATE DATABASE other;
		SELECT pglogical.create_node('old', '$dsn dbname=postgres');
		SELECT pglogical.replication_set_add_table('default', 'insta5.photos', true)});
	$node->safe_psql('other', qq{CREATE EXTENSION snowid; CREATE EXTENSION pglogical;
		SELECT snowid.create_shard(5);
		CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), user_id bigint);
		SELECT pglogical.create_node('new', '$dsn dbname=other');
		SELECT pglogical.create_subscription('s', '$dsn dbname=postgres')});
	my $rows = 'SELECT count(*), max(id) FROM insta5.photos';
	my $last = $node->safe_psql('postgres', q{INSERT INTO insta5.photos (user_id) VALUES (1) RETURNING id});
	ok($node->poll_query_until('other', $rows, $node->safe_psql('postgres', $rows)), 'pglogical carries rows with their ids');
	$node->safe_psql('other', q{SELECT pglogical.drop_subscription('s')});
	$node->safe_psql('other', "SELECT snowid.advance('insta5.id_seq', $last)");
	is($node->safe_psql('other', "INSERT INTO insta5.photos (user_id) VALUES (2) RETURNING id > $last"), 't', '... and ids go on, after advance()');
}

$node->stop;
done_testing();
