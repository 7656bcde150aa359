# Shared tables: outside of shards, alike on all servers, brought by the directory, and
# led to by foreign keys of shards.  A move takes the keys along, and opens no row
# whose shared row the target lacks.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

my %node = map { $_ => move_node($_) } 'a', 'b', 'dir';
my ($a, $b, $dir) = @node{ 'a', 'b', 'dir' };

# As people have them: a key of text, one of two columns, a partitioned table.
my $tables = q{
CREATE EXTENSION IF NOT EXISTS snowid;
CREATE TABLE public.countries (name text, code text PRIMARY KEY);
CREATE TABLE public.plans (name text, version int, UNIQUE (version, name));
CREATE TABLE public.rates (currency int PRIMARY KEY) PARTITION BY LIST (currency);
CREATE TABLE public.rates_1 PARTITION OF public.rates FOR VALUES IN (1, 2, 3);
};
foreach my $node ($dir, $a, $b)
{
	$node->start;
	$node->safe_psql('postgres', $tables);
}
$dir->safe_psql('postgres', q{
CREATE PUBLICATION shard_registry FOR TABLE snowid.shard_registry, public.countries, public.plans, public.rates;
INSERT INTO public.countries (code) VALUES ('de'), ('fr'), ('is, "an ''odd''" one');
INSERT INTO public.plans VALUES ('free', 1), ('free', 2), (NULL, 1);
INSERT INTO public.rates VALUES (1), (2);
});
foreach my $name ('a', 'b')
{
	$node{$name}->safe_psql('postgres', "CREATE SUBSCRIPTION of_$name CONNECTION 'host=" . $dir->host . ' port=' . $dir->port . " dbname=postgres' PUBLICATION shard_registry");
}
synced($_) foreach $a, $b;

# Until a server has all that the directory has.
sub synced
{
	my ($node) = @_;
	my $rows = q{SELECT (SELECT count(*) FROM public.countries), (SELECT count(*) FROM public.plans), (SELECT count(*) FROM public.rates)};

	$node->poll_query_until('postgres', $rows, $dir->safe_psql('postgres', $rows)) or die 'no rows';
	return;
}

# What a shard has of them.
my $keys = q{
CREATE TABLE insta5.homes (id bigint PRIMARY KEY DEFAULT insta5.next_id(), land text DEFAULT 'de' REFERENCES public.countries ON UPDATE CASCADE,
	plan text DEFAULT 'free', v int DEFAULT 2, CONSTRAINT plan FOREIGN KEY (plan, v) REFERENCES public.plans (name, version) MATCH FULL);
CREATE TABLE insta5.bills (id bigint DEFAULT insta5.next_id() PRIMARY KEY, currency int DEFAULT 1) PARTITION BY RANGE (id);
CREATE TABLE insta5.bills_1 PARTITION OF insta5.bills DEFAULT;
ALTER TABLE insta5.bills ADD CONSTRAINT rate FOREIGN KEY (currency) REFERENCES public.rates DEFERRABLE INITIALLY DEFERRED;
INSERT INTO insta5.homes SELECT FROM generate_series(1, 100);
INSERT INTO insta5.homes (land) VALUES ('is, "an ''odd''" one');
INSERT INTO insta5.homes (plan, v) VALUES (NULL, NULL);
INSERT INTO insta5.bills SELECT FROM generate_series(1, 100);
ALTER TABLE insta5.users ADD home text DEFAULT 'fr', ADD CONSTRAINT late FOREIGN KEY (home) REFERENCES public.countries NOT VALID;
};

sub fresh
{
	my (@nodes) = @_;

	fresh_shard(@nodes);
	$nodes[0]->safe_psql('postgres', $keys);
	return;
}

# The keys of a shard, as they are: also of partitions.
sub keys_of
{
	my ($node, $schema) = @_;
	return $node->safe_psql('postgres', qq{
SELECT string_agg(concat_ws(' ', relname, conname, pg_get_constraintdef(k.oid), convalidated), E'\n' ORDER BY relname, confrelid::regclass::text, conname)
FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid WHERE contype = 'f' AND connamespace = '$schema'::regnamespace});
}

# Rows of the shard that lead nowhere.
my $lost = q{
SELECT (SELECT count(*) FROM insta5.homes WHERE land NOT IN (SELECT code FROM public.countries))
 + (SELECT count(*) FROM insta5.bills WHERE currency NOT IN (SELECT currency FROM public.rates))};

sub stop_replication
{
	$b->safe_psql('postgres', 'ALTER SUBSCRIPTION of_b DISABLE');
	$b->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_subscription WHERE subname = 'of_b' AND pid IS NOT NULL}) or die 'not disabled';
	return;
}

sub go_on
{
	$b->safe_psql('postgres', 'ALTER SUBSCRIPTION of_b ENABLE');
	synced($b);
	return;
}

subtest 'moved there and back, with writers' => sub {
	fresh($a, $b);
	my $wanted = keys_of($a, 'insta5');
	like($wanted, qr/NOT VALID.*/, 'the keys are there');
	my @writers = start_writers('insta5', $a, $b);
	await_writers($writers[0]);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied', '--reverse' ], 0, 'copied');

	# A row of the directory that comes meanwhile, and is used at once.
	$dir->safe_psql('postgres', q{INSERT INTO public.countries (code) VALUES ('new'); INSERT INTO public.rates VALUES (3)});
	synced($a);
	$a->safe_psql('postgres', q{INSERT INTO insta5.homes (land) VALUES ('new'); INSERT INTO insta5.bills (currency) VALUES (3)});
	moves_ok($a, $b, 5, ['--reverse'], 0, 'moved');
	is(keys_of($b, 'insta5'), $wanted, 'the target has the keys, as they were');
	is($b->safe_psql('postgres', $lost), 0, 'each row has its shared row');
	await_writers($writers[1]);
	is(sqlstate($b, q{INSERT INTO insta5.homes (land) VALUES ('none')}), '23503', 'the key is looked at');
	is(sqlstate($b, q{INSERT INTO insta5.homes (v) VALUES (NULL)}), '23503', '... with MATCH FULL');
	is(sqlstate($b, q{INSERT INTO insta5.bills (currency) VALUES (4)}), '23503', '... that of a partition, at the end of the transaction');
	is(sqlstate($b, q{DELETE FROM public.countries WHERE code = 'new'}), '23503', '... from both sides');

	# The way back, with a row that is newer there.
	$dir->safe_psql('postgres', q{INSERT INTO public.countries (code) VALUES ('newer')});
	synced($_) foreach $a, $b;
	$b->safe_psql('postgres', q{INSERT INTO insta5.homes (land) VALUES ('newer')});
	moves_ok($a, $b, 5, ['back'], 0, 'back');
	stop_writers(@writers);
	is(keys_of($a, 'insta5'), $wanted, 'the keys are there again');
	is($a->safe_psql('postgres', $lost), 0, 'each row has its shared row');
	is($a->safe_psql('postgres', q{SELECT count(*) FROM insta5.homes WHERE land IN ('new', 'newer')}), 2, '... and all have come');

	# Dropping the copy locks shared tables: nobody queues behind that.
	my $reader = $b->background_psql('postgres');
	$reader->query_safe(q{SET idle_in_transaction_session_timeout = '30s'; BEGIN; TABLE public.countries});
	my $tool = IPC::Run::start([ move_command($a, $b, 5, 'finish') ], '>', '/dev/null', '2>', \my $said);
	$tool->pump until $said =~ /lock timeout/;
	is($b->safe_psql('postgres', q{SET statement_timeout = '60s'; INSERT INTO public.countries (code) VALUES ('by hand') RETURNING code}), 'by hand', 'others go on');
	$b->safe_psql('postgres', q{DELETE FROM public.countries WHERE code = 'by hand'});
	$reader->quit;
	$tool->finish;
	is($? >> 8, 0, 'finished') or diag $said;
	nothing_left_but($_) foreach $a, $b;
};

# Nothing but the directory's subscription.
sub nothing_left_but
{
	my ($node) = @_;
	is($node->safe_psql('postgres', q{
SELECT count(*) FROM snowid.moves UNION ALL SELECT count(*) FROM pg_subscription WHERE subname NOT LIKE 'of\_%' UNION ALL SELECT count(*) FROM pg_publication}), "0\n0\n0", 'nothing is left');
	return;
}

# A moment later there is always one more; those that the shard leads to are waited for.
subtest 'rows that come all the time' => sub {
	fresh($a, $b);
	my @runs = map { IPC::Run::start([ 'psql', '-Xq', '-d', $_->[0]->connstr('postgres'), '-c', qq{
DO \$\$
BEGIN
	FOR i IN 1..100000 LOOP
		$_->[1];
		COMMIT;
		PERFORM pg_sleep(0.001);
	END LOOP;
END \$\$} ], '>', '/dev/null', '2>', '/dev/null') }
	  [ $dir, q{INSERT INTO public.countries (code, name) VALUES (gen_random_uuid(), lpad(i::text, 9, '0'))} ],
	  [ $a, q{INSERT INTO insta5.homes (land) SELECT code FROM public.countries ORDER BY name DESC NULLS LAST LIMIT 1} ];
	$a->poll_query_until('postgres', q{SELECT count(*) > 200 FROM insta5.homes JOIN public.countries ON code = land WHERE name IS NOT NULL}) or die 'no rows';
	moves_ok($a, $b, 5, [], 0, 'moved');
	$_->kill_kill foreach @runs;
	$_->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^\\s*DO .*100000' AND pid <> pg_backend_pid()}) foreach $a, $dir;
	is($b->safe_psql('postgres', $lost), 0, 'each row has its shared row');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	synced($_) foreach $a, $b;
};

subtest 'a row that the target lacks' => sub {
	fresh($a, $b);
	stop_replication();
	$dir->safe_psql('postgres', q{INSERT INTO public.countries (code) VALUES ('late')});
	synced($a);
	moves_ok($a, $b, 5, ['plan'], 1, 'plan sees it',
		qr/FAILED +rows of shared tables: public\.countries lacks rows that the source has: \(late\)\n +Shared tables have.*pg_stat_subscription/);
	go_on();
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');

	# It comes after all was looked at, and so does the row that leads to it.
	stop_replication();
	$dir->safe_psql('postgres', q{INSERT INTO public.countries (code) VALUES ('later')});
	synced($a);
	$a->safe_psql('postgres', q{INSERT INTO insta5.homes (land) VALUES ('later')});
	moves_ok($a, $b, 5, [], 1, 'no decision', qr/target: public\.countries lacks rows that the source has: \(later\).*pg_stat_subscription.*type the same command again/s);
	lives_on_ok($a, $b, 'the shard is where it was');
	go_on();
	moves_ok($a, $b, 5, [], 0, 'moved');
	is($b->safe_psql('postgres', $lost), 0, 'each row has its shared row');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# In the pause: what has come since the last look, and reaches the target within it, or not.
foreach my $comes (1, 0)
{
subtest 'a row of the last moment comes ' . ($comes ? 'just in time' : 'too late') => sub {
	fresh($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');

	# Whoever closes the shard waits for one that has taken an id; and whose row is older than
	# that look, but not seen by it.
	my $holder = $a->background_psql('postgres');
	my $id = $holder->query_safe(q{BEGIN; SAVEPOINT s; INSERT INTO public.countries (code) VALUES ('last'); SELECT insta5.next_id()});
	my $tool = IPC::Run::start([ move_command($a, $b, 5, '--verify', 'none', '--verbose', '--lock-timeout', 8000, '--pause-limit', $comes ? 60000 : 8000, '--retries', 0) ],
		'>', '/dev/null', '2>', \my $said);
	$a->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'insta5.id_seq'::regclass AND NOT granted)}) or die 'does not wait';
	$holder->query_safe("INSERT INTO insta5.users (id, home) VALUES ($id, 'last')");
	$holder->query_safe('COMMIT');
	$holder->quit;
	my $looks = q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query ~ '"\(last\)".* EXCEPT ')};
	while ($tool->pumpable && $b->safe_psql('postgres', $looks) ne 't')
	{
		$tool->pump_nb;
		usleep(20_000);
	}
	$b->safe_psql('postgres', q{INSERT INTO public.countries (code) VALUES ('last')}) if $comes;
	$tool->finish;
	if ($comes)
	{
		is($? >> 8, 0, 'moved') or diag $said;
		is($b->safe_psql('postgres', q{SELECT count(*) FROM insta5.users WHERE home = 'last'}), 1, 'the row has come');
		moves_ok($a, $b, 5, ['finish'], 0, 'finished');
		drop_shards($a, $b);
		$_->safe_psql('postgres', q{DELETE FROM public.countries WHERE code = 'last'}) foreach $a, $b;
		return;
	}
	is($? >> 8, 1, 'no decision') or diag $said;
	like($said, qr/on the other server, public\.countries lacks rows that the source has: \(last\)/, '... and it says why');
	lives_on_ok($a, $b, 'the shard is where it was');
	$b->safe_psql('postgres', q{INSERT INTO public.countries (code) VALUES ('last')});
	moves_ok($a, $b, 5, [], 0, 'moved');
	is($b->safe_psql('postgres', q{SELECT count(*) FROM insta5.users WHERE home = 'last'}), 1, 'the row has come');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	drop_shards($a, $b);
	$_->safe_psql('postgres', q{DELETE FROM public.countries WHERE code = 'last'}) foreach $a, $b;
};
}

subtest 'what plan finds' => sub {
	fresh($a, $b);
	my %made = (
		'ALTER TABLE public.countries RENAME TO c' => [ 'ALTER TABLE public.c RENAME TO countries',
			qr/FAILED +shared tables: public\.countries is missing, to which homes_land_fkey of insta5\.homes leads\n +Make it there.*"Shared tables" in doc\/across\.md/ ],
		'ALTER TABLE public.plans RENAME name TO n' => [ 'ALTER TABLE public.plans RENAME n TO name',
			qr/FAILED +shared tables: public\.plans has no such key as plan of insta5\.homes leads to: \(name text, version integer\)/ ],
		'ALTER TABLE public.plans ALTER version TYPE bigint' => [ 'ALTER TABLE public.plans ALTER version TYPE int', qr/FAILED +shared tables: public\.plans has no such key/ ]);
	stop_replication();
	foreach my $change (sort keys %made)
	{
		$b->safe_psql('postgres', $change);
		moves_ok($a, $b, 5, ['plan'], 1, $change, $made{$change}[1]);
		$b->safe_psql('postgres', $made{$change}[0]);
	}
	go_on();
	$a->safe_psql('postgres', 'SELECT snowid.create_shard(6); CREATE TABLE insta6.t (id int PRIMARY KEY); ALTER TABLE insta5.users ADD other int REFERENCES insta6.t');
	moves_ok($a, $b, 5, ['plan'], 1, 'a key to another shard', qr/FAILED +foreign keys: users_other_fkey leads from insta5\.users to insta6\.t, in another shard/);
	$a->safe_psql('postgres', 'ALTER TABLE insta5.users DROP other; CREATE TABLE public.fans (u bigint REFERENCES insta5.users)');
	moves_ok($a, $b, 5, ['plan'], 1, 'a key into the shard', qr/FAILED +foreign keys: fans_u_fkey leads from public\.fans to insta5\.users, into the shard/);
	$a->safe_psql('postgres', 'DROP TABLE public.fans');
	moves_ok($a, $b, 5, ['plan'], 0, 'and else it passes', qr/ok +rows of shared tables/);
};

# Reading them would run what is constant in an index, and a superuser reads.
subtest 'an owner who is no superuser' => sub {
	my $superuser = $a->safe_psql('postgres', 'SELECT current_user');
	my $ran = sub { return scalar(() = slurp_file($b->logfile, $_[0]) =~ /RAN as \Q$superuser\E$/mg) };

	fresh($a, $b);
	$_->safe_psql('postgres', 'CREATE ROLE app') foreach $a, $b;
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->safe_psql('postgres', q{
ALTER TABLE public.rates_1 OWNER TO app;
GRANT CREATE ON SCHEMA public TO app;
SET ROLE app;
CREATE FUNCTION public.note() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN as %', current_user; RETURN 1; END$$;
CREATE INDEX ON public.rates_1 ((public.note()))});
	my $since = -s $b->logfile;
	my $why = qr/public\.\w+ is not read: app owns it, its schema, or what its indexes call, and is no superuser \(--trust-owners\)/;
	moves_ok($a, $b, 5, [], 1, 'it is not read', $why);
	lives_on_ok($a, $b, 'the shard is where it was');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	moves_ok($a, $b, 5, ['plan'], 1, 'plan sees it', qr/FAILED +rows of shared tables: $why\n +If you trust that role with both servers, say so: --trust-owners/);
	is($ran->($since), 0, 'and nothing of his has run as a superuser');
	moves_ok($a, $b, 5, [ 'plan', '--trust-owners' ], 0, 'but if he is trusted');
	isnt($ran->($since), 0, '... as it would have');
	$b->safe_psql('postgres', 'DROP INDEX public.rates_1_note_idx; ALTER TABLE public.rates_1 OWNER TO CURRENT_USER; ALTER SCHEMA public OWNER TO app');
	moves_ok($a, $b, 5, ['plan'], 1, "nor what its schema's owner could exchange", $why);
	$b->safe_psql('postgres', 'ALTER SCHEMA public OWNER TO pg_database_owner');
	moves_ok($a, $b, 5, ['plan'], 0, "the database's owner is a superuser");
};

done_testing();
