# Whatever the settings of a server's databases and roles are, a shard arrives as it
# was, its definitions and its bytes: each setting that a user can change has an unusual
# value, on the source, on the target, and on both.  What the workers of
# replication take from there, and nobody can fix, is found by the plan.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $neutral = '';

# Another country's money, if the system knows one.
my $money = 'POSIX';
my $locales = PostgreSQL::Test::Utils::tempdir();
if (system("localedef -i de_DE -f UTF-8 $locales/de_DE.UTF-8 2>&1") == 0)
{
	$ENV{LOCPATH} = $locales;
	$money = 'de_DE.UTF-8';
}
note "lc_monetary: $money";
my %node = map { $_ => move_node($_) } 'a', 'b';

for (values %node)
{
	$_->append_conf('postgresql.conf', "allow_in_place_tablespaces = on\nlog_statement = all");
	$_->start;
	ask($_, 'CREATE EXTENSION snowid', 'CREATE ROLE lesser', q{CREATE TABLESPACE other LOCATION ''},
		'CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler',
		'CREATE SCHEMA trap', q{CREATE FUNCTION trap.quote_ident(text) RETURNS text LANGUAGE sql AS 'SELECT 1/0'});
}
ask($node{a}, 'SELECT snowid.create_shard(5)');
$node{a}->command_ok(
	[ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-v', 'schema=insta5', '-v', 'role=lesser',
		'-f', "$FindBin::RealBin/objects.sql", '-d', $node{a}->connstr('postgres') ], 'a shard with everything');

# What has no other value by itself, and what is left as it is: what no session can have, or logs with.
my %wanted = (
	DateStyle => 'SQL, DMY', TimeZone => 'Asia/Kathmandu', search_path => 'trap, pg_catalog', default_tablespace => 'other',
	temp_tablespaces => 'other', default_table_access_method => 'other', client_encoding => 'LATIN1', application_name => 'x',
	default_text_search_config => 'german', timezone_abbreviations => 'India', restrict_nonsystem_relation_kind => 'view',
	backslash_quote => 'off', IntervalStyle => 'sql_standard', lc_monetary => $money, lc_numeric => $money, lc_time => $money,
	local_preload_libraries => undef, createrole_self_grant => 'set, inherit',
	# What a system was built without has one value only.
	default_toast_compression => undef,
	# Less ends the walsender while a busy machine starts the workers that apply in parallel; and
	# errors that it would get over end it, too, of which the plan warns.  For developers: to send each
	# change at once starts a worker for each of a move's messages, and they come faster than workers do.
	wal_sender_timeout => '20s', transaction_timeout => '20s', exit_on_error => undef,
	debug_logical_replication_streaming => undef, logical_decoding_mode => undef);
my (@settings, @forgotten);

# It is always on there.
$wanted{standard_conforming_strings} = undef if ask($node{a}, 'SHOW server_version_num') >= 190000;
for (split /\n/, ask($node{a}, q{
SELECT name, vartype, reset_val, min_val, max_val, array_to_string(array_remove(enumvals, reset_val), ',') FROM pg_settings
WHERE (context = 'user' OR name IN ('session_replication_role', 'event_triggers', 'zero_damaged_pages', 'lo_compat_privileges'))
AND name !~ '^(transaction_(iso|read|def)|snowid)' ORDER BY 1}))
{
	my ($name, $type, $value, $min, $max, $others) = split /\|/, $_, -1;
	my $unusual = exists $wanted{$name} ? $wanted{$name}
	  : $type eq 'bool' ? ($value eq 'on' ? 'off' : 'on')
	  : $type eq 'enum' ? (split /,/, $others)[-1]
	  : $name =~ /_timeout$/ ? 300
	  : $type =~ /integer|real/ ? ($value != $min ? $min : $max) : undef;

	push @settings, [ $name, $unusual ] if defined $unusual;
	push @forgotten, $name if !defined $unusual && !exists $wanted{$name};
	$neutral .= " -c $name=" . ($value =~ s/([ \\])/\\$1/gr);
}
# With some of these, replication begins anew again and again on a busy machine.
$MoveTest::patience *= 3;
cmp_ok(scalar @settings, '>', 110, 'settings');
is("@forgotten", '', 'all that a user can set');
my @found_by_plan = qw(array_nulls xmloption lc_monetary);

ask($node{a}, 'REFRESH MATERIALIZED VIEW insta5.moods');
my $definitions = definitions($node{a});
my $rows = rows($node{a});

# As if nothing cost anything, a query of the program's can take minutes: it is planned as by default.
ask($node{a}, 'CREATE TABLE trap.costs (cost text)', q{CREATE FUNCTION trap.note_cost() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN INSERT INTO trap.costs SELECT current_setting(''cpu_tuple_cost''); RETURN NULL; END'},
	'CREATE TRIGGER costs AFTER UPDATE ON snowid.moves EXECUTE FUNCTION trap.note_cost()');

# The source's database, the target's role, and both.
check_move('a', 'b', '%s DATABASE postgres', 'a');
is(ask($node{a}, 'SELECT DISTINCT cost FROM trap.costs', 'DROP TRIGGER costs ON snowid.moves'), '0.01', 'how its queries are planned');
for my $name (@found_by_plan)
{
	my ($value) = map { $_->[0] eq $name ? $_->[1] : () } @settings;

	ask($node{a}, "ALTER ROLE CURRENT_USER IN DATABASE postgres SET $name = '$value'");
	moves_ok($node{b}, $node{a}, 5, [ 'plan', '--trust-owners' ], 1, "plan: $name", qr/FAILED[^\n]*$name/);
	ask($node{a}, "ALTER ROLE CURRENT_USER IN DATABASE postgres RESET $name");
}
check_move('b', 'a', '%s ROLE CURRENT_USER', 'a');
check_move('a', 'b', '%s ROLE CURRENT_USER IN DATABASE postgres', 'a', 'b');

# Rows go in binary form where that is the same on both sides; names of objects as texts.
my $log = slurp_file($node{a}->logfile);
like($log, qr/COPY insta5\.letters_rest .*\(FORMAT binary\)$/m, 'a table in binary form');
unlike($log, qr/COPY insta5\.$_ .*\(FORMAT binary\)$/m, "not $_") for qw(names odd people);
ask($node{a}, 'SELECT snowid.create_shard(6)', 'SET search_path = insta6, public', q{CREATE TYPE mood AS ENUM ('sad', 'ok')},
	'CREATE TYPE place AS (street text, mood mood)', 'CREATE DOMAIN moods AS mood[]', 'CREATE TYPE span AS RANGE (SUBTYPE = float8)',
	'CREATE TABLE own (id bigint PRIMARY KEY, moods moods, places place[], spans span[], texts text[])');
my $insert = q{INSERT INTO insta6.own VALUES (%s, '{ok,NULL}', '{"(a,ok)",NULL}', '{"[1,2)"}', '{a,NULL,"NULL"}')};
ask($node{a}, sprintf $insert, 1);
moves_ok($node{a}, $node{b}, 6, [ '--stop-after', 'copied' ], 0, 'types of its own: copied');
is(ask($node{b}, 'SELECT subbinary FROM pg_subscription'), 't', 'they are followed in binary form');
ask($node{a}, sprintf $insert, 2);
moves_ok($node{a}, $node{b}, 6, [ '--verify', 'checksums' ], 0, 'types of its own: moved', qr/no difference/);
done_testing();

# Move the shard with unusual settings of these servers.
sub check_move
{
	my ($from, $to, $what, @where) = @_;
	my $name = "settings of @where, from $from to $to";
	my $alter = sprintf $what, 'ALTER';

	for my $where (@where)
	{
		# Money must be the same on both; lists and XML as the copy needs them on the target.
		my $skip = join '|', grep { $_ eq 'lc_monetary' ? @where == 1 : $where eq $to } @found_by_plan;
		ask($node{$where}, map { "$alter SET $_->[0] = " . ($_->[0] eq 'search_path' ? $_->[1] : "'$_->[1]'") }
			  grep { $_->[0] !~ /^($skip|)$/ } @settings);
	}
	moves_ok($node{$from}, $node{$to}, 5, [ '--verify', 'checksums', '--trust-owners', '--stop-after', 'copied' ], 0, "$name: copied");
	ask($node{$from}, q{INSERT INTO insta5.odd SELECT 77 + id, path, bytes, texts, ago, price, doc FROM insta5.odd WHERE price < '0'::money});
	my $more = rows($node{$from});
	ask($node{$from}, 'INSERT INTO insta5.names DEFAULT VALUES') if $more !~ /names.*names/s;
	$more = rows($node{$from});
	moves_ok($node{$from}, $node{$to}, 5, [ '--verify', 'checksums', '--trust-owners', '--pause-limit', 5000 ], 0, "$name: moved", qr/no difference/);
	is(rows($node{$to}), $more, "$name: the bytes");
	ask($node{$to}, 'DELETE FROM insta5.names WHERE id > (SELECT min(id) FROM insta5.names)', 'DELETE FROM insta5.odd WHERE id IN (SELECT 77 + id FROM insta5.odd)');
	is(rows($node{$to}), $rows, "$name: all of them");
	moves_ok($node{$from}, $node{$to}, 5, ['finish'], 0, "$name: finished");
	is(definitions($node{$to}), $definitions, "$name: the definitions");
	ask($node{$_}, "$alter RESET ALL") for @where;
	return;
}

# Ask in a session that has the settings of initdb.
sub ask
{
	my ($node, @sql) = @_;
	local $ENV{PGOPTIONS} = $neutral;
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	my ($stdout, $stderr) = ('', '');

	IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), map { ('-c', $_) } @sql ],
		'>', \$stdout, '2>', \$stderr) or die $stderr;
	chomp $stdout;
	return $stdout;
}

sub definitions
{
	my ($node) = @_;
	local $ENV{PGOPTIONS} = $neutral;
	my ($script) = run_command([ 'pg_dump', '--schema-only', '--schema=insta5', '-d', $node->connstr('postgres') ]);

	return $script =~ s/^\\(un)?restrict .*\n//mgr;
}

# All rows, as they are stored.
sub rows
{
	my ($node) = @_;

	return ask($node, map { "SELECT '$_', t::text FROM insta5.$_ t ORDER BY t::text COLLATE \"C\"" }
		  qw(people letters facts notes typed odd names moods backslashes));
}
