# What holds a move behind PgBouncer up, or endangers it, is named: by plan, if it is there
# before; a transaction that PAUSE waits for; a client that keeps its session; a pooler
# that answers nothing.  Nobody waits longer than he must.
use strict;
use warnings;

use FindBin;
use IO::Socket::UNIX;
use POSIX ();
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'pgbouncer is not installed' unless have_pgbouncer();

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
fresh_set($a, $b);
$a->safe_psql('postgres', q{UPDATE snowid.shard_registry SET pool = 'both' WHERE shard IN (2, 3)});
my $p = start_pooler($a);
my @options = pooler_options($p);

my @false;	# process groups

# A pooler that says what is given, and nothing to what is not.
sub false_pooler
{
	my (%answers) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $listener = IO::Socket::UNIX->new(Local => "$dir/.s.PGSQL.$port", Listen => 9) or die $!;
	my $pid = fork() // die $!;
	push @false, $pid;
	return { dir => $dir, port => $port } if $pid;

	setpgrp;

	local $SIG{CHLD} = 'IGNORE';
	while (my $client = $listener->accept)
	{
		next if fork();
		my $message = sub { my ($type, $body) = @_; return $client->syswrite($type . pack('N', 4 + length $body) . $body) };
		my $read = sub { my ($n) = @_; my $got = ''; while (length $got < $n) { $client->sysread($got, $n - length $got, length $got) or POSIX::_exit(0) } return $got };
		$read->(unpack('N', $read->(4)) - 4);
		$message->('R', pack 'N', 0);
		$message->('Z', 'I');
		while (1)
		{
			$read->(1);
			my $query = $read->(unpack('N', $read->(4)) - 4);
			my ($rows) = map { $answers{$_} } grep { index($query, $_) == 0 } keys %answers or next;
			my @columns = @{ $rows->[0] };
			$message->('T', pack('n', scalar @columns) . join '', map { "$_\0" . pack('NnNnNn', 0, 0, 25, 65535, -1, 0) } @columns);
			for my $row (@$rows[ 1 .. $#$rows ])
			{
				$message->('D', pack('n', scalar @columns) . join '', map { pack('N', length) . $_ } @$row);
			}
			$message->('C', "SHOW\0");
			$message->('Z', 'I');
		}
	}
	POSIX::_exit(0);
}

# plan, with a pooler.
sub plan_says
{
	my ($name, $pooler, $shard, $like) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (undef, $said) = snowid_move($a, $b, $shard, 'plan', '--pooler', console($pooler), '--pooler-file', $p->{file});

	like($said, $like, $name);
	return;
}

subtest 'plan' => sub {
	my ($ini, $file) = map { slurp_file($_) } "$p->{dir}/ini", $p->{file};
	my $with = sub { my ($line) = @_; return ($ini . $line, $file) };
	my ($old) = $file =~ /^insta1 = (.*)/m;
	my @cases = (
		[ 'nothing wrong', 1, $with->(''), qr/^ok +poolers$/m ],
		[ 'a part of a pool', 2, $with->(''), qr/FAILED +poolers: pool "both" has shards in two places: 3 at .*; 2 at .*\n.*All shards of a pool move together/ ],
		[ 'a time-out as short', 1, $with->('query_wait_timeout = 1'), qr/FAILED +poolers: .* ends clients that wait for 1 s \(query_wait_timeout\)/ ],
		[ 'no time-out', 1, $with->('query_wait_timeout = 0'), qr/warning +poolers: .* has query_wait_timeout = 0: should this program be killed/ ],
		[ 'session mode', 1, $with->('pool_mode = session'), qr/warning +poolers: pool "insta1" is in session mode at .*; now kept by: client .*, process \d+ of / ],
		[ 'too many connections', 1, $with->('default_pool_size = 500'), qr/warning +poolers: .* may open 500 connections to the target, for each user; that allows 100/ ],
		[ 'another include', 1, $ini =~ s/include .*/include $p->{dir}\/other/r, $file, qr/FAILED +poolers: .* reads .*, which does not include/ ],
		[ 'an include in another', 1, $ini =~ s/include .*/include $p->{dir}\/nested/r, $file, qr/^ok +poolers$/m ],
		[ 'an include that is nowhere', 1, $ini =~ s/include .*/include $p->{dir}\/chain/r, $file, qr/warning +poolers: .* reads nowhere, which cannot be read here/ ],
		[ 'blanks after the include', 1, $ini =~ s/include .*/$&  /r, $file, qr/^ok +poolers$/m ],
		(map { [ "another entry later: $_->[0]", 1, $ini . $_->[0], $file, qr/FAILED +poolers: \S+$_->[1] has another entry of pool "insta1", after the %include\n +Remove that line/ ] }
			[ "[databases]\n\"insta1\" = $old\n", 'ini' ], [ "%include $p->{dir}/later\n", 'later' ]),
		[ 'another entry before', 1, "[databases]\ninsta1 = host=x\n$ini\n[databases]\n;insta1 = $old\ninsta99 = host=x\n[users]\ninsta1 = pool_mode=transaction\n", $file, qr/^ok +poolers$/m ],
		[ 'an old entry', 1, $ini, $file =~ s/^(insta1 .*port=)'\d+'/$1'1'/mr, qr/FAILED +poolers: .* does not lead pool "insta1" to/ ],
		[ 'another registry', 1, $ini, $file =~ s/registry at/registry at x/r, qr/FAILED +poolers: file .* is not of the registry at/ ]);
	# Of a set, too: what is wrong with one pool holds up its shards; with the pooler, all.
	push @cases, [ 'a set: an old entry', '1-3', $ini, $file =~ s/^(both .*port=)'\d+'/$1'1'/mr, qr/FAILED +poolers: .* does not lead pool "both" to.*\nshards 2-3 cannot be moved yet; nothing was changed\nshard 1, /s ],
	  map { [ "a set: $_->[0]", $_->[0] eq 'a part of a pool' ? '1,2' : '1-3', @$_[ 2 .. 4 ] ] } grep { $_->[4] =~ /FAILED/ && $_->[0] ne 'an old entry' } @cases;
	my $client;
	append_to_file("$p->{dir}/other", $file);
	append_to_file("$p->{dir}/nested", "%include $p->{file}\n");
	append_to_file("$p->{dir}/chain", "%include nowhere\n");
	append_to_file("$p->{dir}/later", "[databases]\n  insta1=$old\n");
	for (@cases)
	{
		my ($name, $shard, @texts) = @$_;
		my $like = pop @texts;
		for my $path ("$p->{dir}/ini", $p->{file})
		{
			unlink $path;
			append_to_file($path, shift @texts);
		}
		system_or_bail('psql', '-Xqc', 'RELOAD', console($p));

		# A client that keeps its connection.
		$client = clients($p, 'insta1', 0, 1) if $name eq 'session mode';
		await_pooler($p, 'SHOW SERVERS', qr/\|insta1\|(\w*\|)?active\|/) if $name eq 'session mode';
		plan_says($name, $p, $shard, $like);
	}
	$client->{run}->kill_kill;
	unlink "$p->{dir}/ini", $p->{file};
	plan_says("no file, $_", $p, $_, qr/FAILED +poolers: file .*: No such file/) for 1, '1-3';
	append_to_file("$p->{dir}/ini", $ini);
	append_to_file($p->{file}, $file);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($p));

	# What looks like a console, and is none that lets us pause.
	my $stats = start_pooler($a, 'stats_users = app', $p->{file});
	append_to_file("$stats->{dir}/users", qq{"app" ""\n});
	system_or_bail('psql', '-Xqc', 'RELOAD', console($stats));
	for ([ console($stats) =~ s/ user=\S+/ user=app/r, qr/[^\n]*: admin access needed\n +Name a role of its admin_users/ ],
		[ $a->connstr('postgres'), qr/[^\n]* says: unrecognized .*\n +It takes the console of .* dbname is pgbouncer(?!.*does not lead)/s ])
	{
		moves_ok($a, $b, 1, [ 'plan', '--pooler', $_->[0], '--pooler-file', $p->{file} ], 1, $_->[0], qr/FAILED +poolers: $_->[1]/);
	}
	stop_pooler($stats);

	# A pause of all is shown by newer ones.
	for (['insta1', qr/pool "insta1" at .*\n +If nobody needs that any more, type there: RESUME "insta1"/], pgbouncer_version() < 1023 ? () : [ '', qr/.*, or told it to end/ ])
	{
		my ($pool, $like) = @$_;
		system_or_bail('psql', '-Xqc', "PAUSE $pool", console($p));
		moves_ok($a, $b, 1, [ 'plan', @options ], 1, "PAUSE $pool", qr/FAILED +poolers: somebody has paused $like/m);
		system_or_bail('psql', '-Xqc', "RESUME $pool", console($p));
	}
};

subtest 'several processes on one port' => sub {
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $shared = "listen_addr = 127.0.0.1\nso_reuseport = 1\n";
	my @p = map { start_pooler($a, $shared, $p->{file}, $port) } 1 .. 4;
	my @plan = ('plan', '--pooler-file', $p->{file});
	my $user = getpwuid($<);
	my $tcp = "host=127.0.0.1 port=$port user=$user dbname=pgbouncer";
	my $named = sub { return map { ('--pooler', console($_)) } @_ };
	my $logins = sub { return scalar map { slurp_file("$_->{dir}/log") =~ /127\.0\.0\.1:\d+ login attempt: db=pgbouncer/g } @p };

	moves_ok($a, $b, '1,4', [ @plan, '--pooler', $tcp ], 1, 'by the port', qr/FAILED +poolers: .* leads to any of the processes on its port/);
	my $said = moves_ok($a, $b, '1,4', [ @plan, $named->(@p[ 0, 1 ]) ], 1, 'two of four', qr/FAILED +poolers: a process with unix_socket_dir = .* shares port $port \(so_reuseport\), and is not named/);
	is_deeply([ sort $said =~ /Add: --pooler '(.*)'/g ], [ sort map { console($_) } @p[ 2, 3 ] ], '... each other one once, as it is to be named');
	moves_ok($a, $b, '1,4', [ @plan, $named->(@p[ 0 .. 2 ]), '--pooler', console($p[0]) =~ s/ port/\/ port/r ], 1, 'one of them twice', qr/unix_socket_dir = \Q$p[3]{dir}\E /);
	my $before = $logins->();
	moves_ok($a, $b, '1,4', [ @plan, $named->(@p) ], 0, 'each', qr/ok +poolers/);
	cmp_ok((4 / 5)**($logins->() - $before), '<', 1e-6, '... of a fifth would have been missed once in a million times');
	stop_pooler($_) for @p;

	append_to_file("$p->{dir}/hba", "local all all trust\n");
	my $closed = start_pooler($a, "${shared}auth_type = hba\nauth_hba_file = $p->{dir}/hba", $p->{file}, $port);
	moves_ok($a, $b, '1,4', [ @plan, $named->($closed) ], 0, 'no login at the port', qr/warning +poolers: how many processes share port $port \(so_reuseport\) cannot be seen/);
	stop_pooler($closed);

	# The first to have peers.
	return if pgbouncer_version() < 1019;
	my @port = map { PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
	for my $listed ([ 1, 2 ], undef)
	{
		@p = map { my $id = $_; start_pooler($a, "peer_id = $id\nlisten_addr = 127.0.0.1\n[peers]\n" . join('', map { "$_ = host=127.0.0.1 port=$port[$_ - 1]\n" } $listed ? @$listed : 3 - $id), $p->{file}, $port[ $id - 1 ]) } 1, 2;
		my $name = $listed ? 'a peer' : 'a peer that lists only the other';
		moves_ok($a, $b, '1,4', [ @plan, $named->($p[0]) ], 1, $name, qr/FAILED +poolers: peer 2, host=127.0.0.1 port=$port[1], gets clients, and is not named/);
		moves_ok($a, $b, '1,4', [ @plan, $named->(@p) ], 0, "$name: each", qr/ok +poolers/);
		stop_pooler($_) for @p;
	}
};

# What is not named has no effect, so it is refused.
subtest 'the file without a pooler' => sub {
	moves_ok($a, $b, 1, [ $_, '--pooler-file', $p->{file} ], 2, $_, qr/--pooler-file and --pooler-command need --pooler/) for qw(plan move back);
};

subtest 'what other versions say' => sub {
	my @nothing = ('SHOW DATABASES' => [ ['name'] ], 'SHOW STATE' => [ [ 'key', 'value' ] ], 'SHOW PEERS' => [ ['peer_id'] ]);
	my @config = ([ 'key', 'value' ], [ conffile => '/not/there' ], [ track_extra_parameters => 'IntervalStyle, search_path' ]);
	my $false = false_pooler('SHOW VERSION' => [ ['version'], ['PgBouncer 1.17.0'] ], 'SHOW CONFIG' => \@config, @nothing);
	plan_says('1.17', $false, 1, qr/FAILED +poolers: .* says: PgBouncer 1\.17\.0\n.*1\.18/);
	plan_says('tracking, before 1.25.1', $false, 1, qr/FAILED +poolers: .* has search_path in track_extra_parameters: .*CVE-2025-12819/);
	plan_says('on another machine', $false, 1, qr/warning +poolers: .* reads \/not\/there, which cannot be read here/);
	$false = false_pooler('SHOW VERSION' => [ ['version'], ['PgBouncer 1.25.1'] ], 'SHOW CONFIG' => \@config, @nothing);
	unlike((snowid_move($a, $b, 1, 'plan', '--pooler', console($false), '--pooler-file', $p->{file}))[1], qr/CVE|1\.18/, 'tracking, since then');
	$false = false_pooler('SHOW VERSION' => [ ['version'], ['PgBouncer 1.25.1'] ], 'SHOW CONFIG' => [ @config, [ so_reuseport => 1 ] ], @nothing[ 0 .. 3 ]);
	unlike((snowid_move($a, $b, 1, 'plan', '--pooler', console($false), '--pooler-file', $p->{file}))[1], qr/leads to any of/, 'no word of peers: it has its socket still');
};

subtest 'a pooler that is down' => sub {
	my $second = start_pooler($a, '', $p->{file});
	my @both = (pooler_options($p), '--pooler', console($second));
	moves_ok($a, $b, '1,4', [ @both, '--stop-after', 'copied' ], 0, 'copied');
	stop_pooler($second);
	my ($code, $said) = snowid_move($a, $b, '1,4', @both, '--retries', 3, '--verify', 'none');
	is($code, 1, 'given up');
	is_deeply([ $said =~ /error: the pooler at .*\n.* after (\d+) attempts/g ], [ 4, 1 ], '... it is waited for once, not for each pool') or diag $said;
	moves_ok($a, $b, '1,4', ['abort'], 0, '... the copies can go');
};

subtest 'what keeps clients from being paused' => sub {
	moves_ok($a, $b, 1, [ pooler_options($p), '--stop-after', 'copied' ], 0, 'copied');
	my ($in, $out) = ("BEGIN;\nINSERT INTO insta1.users (name) VALUES ('slow') RETURNING 'open';\n", '');
	my $slow = IPC::Run::start([ 'psql', '-XAtq', '-d', pooled($p, 'insta1') ], '<', \$in, '>', \$out, '2>', \my $err);
	$slow->pump until $out =~ /open/;
	my ($code, $said) = snowid_move($a, $b, 1, '--pooler', console($p), '--pooler-file', $p->{file}, '--pause-limit', 2000, '--retries', 1, '--verify', 'none');
	is($code, 1, 'a transaction: given up');
	like($said, qr/error: pool "insta1" at the pooler at .* is held by client .*, process \d+ of .* since 20.*: INSERT INTO insta1/, 'it is named');
	is(led_to($p, 'insta1'), $a->port, 'the others go on');
	$in .= "COMMIT;\n\\q\n";
	$slow->finish;
	clients_ok('then', $a, [ clients($p, 'insta1', 0, 1) ], qr/^$/);

	my @columns = qw(name host port database pool_mode paused);
	my $stubborn = false_pooler('SHOW CONFIG' => [ [ 'key', 'value' ], [ server_login_retry => 15 ] ], 'SHOW DATABASES' => [ \@columns ],
		'SHOW POOLS' => [ ['database'] ], q{SET server_login_retry = '0} => [ ['none'] ], RESUME => [ ['none'] ]);
	($code, $said) = snowid_move($a, $b, 1, pooler_options($p), '--pooler', console($stubborn), '--retries', 0, '--pause-limit', 2000, '--verify', 'none');
	like("$code $said", qr/^1 .*warning: the pooler at .* has another server_login_retry than it had\n[^\n]*hint: Type there: SET server_login_retry = '15'/s, 'one that does not put server_login_retry back');
	like($a->safe_psql('postgres', "SELECT details->>'poolers' FROM snowid.moves WHERE shard = 1"), qr/$stubborn->{dir}/, '... stays in the journal, for the next command');
	my $forget = 'UPDATE snowid.moves SET details = details - $$poolers$$ WHERE shard IN (1)';
	$a->safe_psql('postgres', $forget);

	my $silent = false_pooler('SHOW CONFIG' => [ [ 'key', 'value' ], [ server_login_retry => 15 ] ], 'SET server_login_retry' => [ ['none'] ]);
	($code, $said) = snowid_move($a, $b, 1, pooler_options($p), '--pooler', console($silent), '--retries', 0, '--pause-limit', 2000, '--verify', 'none');
	is($code, 1, 'a pooler that does not answer: given up');
	like($said, qr/warning: the pooler at .* its pools may be paused.*error: the pooler at .* gives no answer.*again when it answers;/s, 'it is named');
	is(led_to($p, 'insta1'), $a->port, 'the clients of the other go on');
	moves_ok($a, $b, 1, [ pooler_options($p), '--retries', 0 ], 1, 'without it, as long as the journal names it', qr/error: the pooler of an earlier command may have paused pools; name it, too; if one is gone for good, type at .*: UPDATE/);
	$a->safe_psql('postgres', $forget);
	moves_ok($a, $b, 1, [pooler_options($p)], 0, 'then it is moved');
};

subtest 'a client that keeps its session' => sub {
	append_to_file("$p->{dir}/ini", "pool_mode = session\n");
	system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
	my $keeper = clients($p, 'insta4', 0, 4);
	moves_ok($a, $b, 4, [ '--pooler', console($p), '--pooler-file', $p->{file}, '--retries', 30, '--pause-limit', 2000 ], 0, 'moved without it');
	is(led_to($p, 'insta4'), $b->port, 'the pool leads there');
	my @new = clients($p, 'insta4', 1, 4);
	clients_ok('new sessions', $b, \@new, qr/^$/);
	$keeper->{run}->kill_kill;
	like(slurp_file($keeper->{errors}), qr/SN001: shard 4 has moved/, 'the old one gets SN001');
};

subtest 'what fails after the decision' => sub {
	$a->safe_psql('postgres', 'CREATE TABLE insta3.no_key (n int); INSERT INTO insta3.no_key VALUES (1)');
	moves_ok($a, $b, '2,3', [ pooler_options($p) ], 1, 'a shard that fails a check', qr/pool "both" cannot be moved as a whole.*shards 2.3 cannot be moved yet/s);
	$a->safe_psql('postgres', 'DROP TABLE insta3.no_key');
	moves_ok($a, $b, '2,3', [ pooler_options($p), '--pooler-command', 'false' ], 3, '--pooler-command', qr/warning: --pooler-command failed/);
	is(living($b), '1,2,3,4', 'the decision stands');
	moves_ok($a, $b, '2,3', [ pooler_options($p), '--pooler-command', "sleep 300 & echo \$! > $p->{dir}/child; wait; :" ], 3, '--pooler-command that does not end', qr/longer than 10 s/);
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $child = slurp_file("$p->{dir}/child") + 0;
	usleep(10_000) while kill(0, $child) && time < $end && slurp_file("/proc/$child/stat") !~ /\) Z/;
	cmp_ok(time, '<', $end, '... ends, and what it has begun');
	moves_ok($a, $b, '2,3', ['abort'], 1, 'abort without the file', qr/no --pooler-file was given/);
	moves_ok($a, $b, '2,3', [ pooler_options($p) ], 0, 'the same command');
	my @strangers = map { $_->background_psql('postgres') } $a, $b;
	my @pids = map { $_->query_safe('SELECT pg_backend_pid() FROM pg_advisory_lock(x\'534E4F57\'::int, -1)') } @strangers;
	moves_ok($a, $b, 5, [ pooler_options($p) ], 1, 'who has locked the file', qr/FAILED +poolers: registry: .*by the session with process id ($pids[0]|$pids[1])$/m);
	$_->quit for @strangers;
	chmod 0500, $p->{dir};
	unlike(moves_ok($a, $b, 5, [ pooler_options($p) ], 1, 'a directory that cannot be written', qr/FAILED +poolers: could not write file .*\.new/), qr/move together/, '... which is no matter of pools');
	chmod 0700, $p->{dir};
	my $hold = hold_at_step($b, 'open', 1);
	my $run = IPC::Run::start([ move_command($a, $b, 5, pooler_options($p)) ], '>', \my $out, '2>', \my $err);
	wait_until_held($b) or die "does not get there: $err";
	chmod 0500, $p->{dir};
	$hold->{run}->kill_kill;
	$run->finish;
	is($? >> 8, 3, '... since the decision');
	like($err, qr/warning: could not write file .*\.new.*does not lead shard 5 to/s, 'says so');
	chmod 0700, $p->{dir};
	let_go_steps($b);
	chmod 0640, $p->{file};
	moves_ok($a, $b, 5, [ pooler_options($p) ], 0, 'the same command');
	is(sprintf('%o', (stat $p->{file})[2] & oct 7777), '640', 'the file keeps its mode');
	my $ini = slurp_file("$p->{dir}/ini");
	append_to_file("$p->{dir}/old", slurp_file($p->{file}));
	moves_ok($a, $b, 6, [ pooler_options($p), '--pooler-command', "sed -i s,$p->{file},$p->{dir}/old, $p->{dir}/ini; :" ], 3, 'an entry that the pooler does not read', qr/does not lead shard 6 to/);
	is(led_to($p, 'insta6'), $a->port, 'the clients are not paused');
	unlink "$p->{dir}/ini";
	append_to_file("$p->{dir}/ini", $ini);
	moves_ok($a, $b, 6, [ pooler_options($p) ], 0, 'the same command');
	is(led_to($p, $_->[0]), $_->[1]->port, "$_->[0] leads there") for [ both => $b ], [ insta5 => $b ], [ insta6 => $b ], [ insta7 => $a ];
};

subtest 'a login in flight at the pause' => sub {
	moves_ok($a, $b, 7, [ pooler_options($p), '--stop-after', 'copied' ], 0, 'copied');
	my $hold = hold_at_step($a, 'verified');
	my $pause = hold_at_step($b, 'ready');
	my $run = IPC::Run::start([ move_command($a, $b, 7, pooler_options($p)) ], '>', \my $out, '2>', \my $err);
	wait_until_held($a) or die "does not get there: $err";

	# A backend that begins reads this table.
	my $lock = $a->background_psql('postgres');
	$lock->query_safe('BEGIN; LOCK TABLE pg_db_role_setting');
	my $client = IPC::Run::start([ 'psql', '-XAtqc', "SELECT current_setting('port')", '-d', pooled($p, 'insta7') ], '>', \my $home, '2>', \my $error);
	await_pooler($p, 'SHOW SERVERS', qr/^S\|[^|]*\|insta7\|(\w+\|)?new\|/m);
	$hold->{run}->kill_kill;
	wait_until_held($b) or die "does not get there: $err";
	like(led_to($p, 'insta7'), qr/ paused/, 'in the pause');
	cmp_ok(login_retry($p), '<', 0.01, 'nothing waits for server_login_retry');
	$lock->query_safe('COMMIT');
	my $start = time;
	$pause->{run}->kill_kill;
	$run->finish;
	let_go_steps($b);
	is($? >> 8, 0, 'moved') or diag($err);
	$client->finish;
	is("$error$home", $b->port . "\n", 'the client goes on at the new home') or diag(slurp_file("$p->{dir}/log"));
	cmp_ok(time - $start, '<', 12, '... at once, not after server_login_retry');
	is(login_retry($p), 15, 'which is put back');
};

subtest 'resumed by somebody' => sub {
	moves_ok($a, $b, 8, [ pooler_options($p), '--stop-after', 'copied' ], 0, 'copied');
	my $hold = hold_at_step($b, 'ready');
	my $run = IPC::Run::start([ move_command($a, $b, 8, pooler_options($p), '--retries', 0, '--verify', 'none') ], '>', \my $out, '2>', \my $err);
	wait_until_held($b) or die "does not get there: $err";
	system_or_bail('psql', '-Xqc', 'RESUME insta8', console($p));
	$hold->{run}->kill_kill;
	$run->finish;
	is($? >> 8, 1, 'not decided') or diag($err);
	like($err, qr/somebody resumed pool "insta8" at the pooler at/, 'it is said');
	let_go_steps($b);
	system_or_bail('psql', '-Xqc', 'PAUSE insta8', console($p));
	moves_ok($a, $b, 8, [ pooler_options($p), '--retries', 0 ], 1, 'paused by somebody', qr/somebody has paused pool "insta8" at .*type there: RESUME "insta8"/);
	is(led_to($p, 'insta8'), $a->port . ' paused', '... it stays paused');
	system_or_bail('psql', '-Xqc', 'RESUME insta8', console($p));

	# So another move has it in its pause, or has left it, if it was 2.5.
	system_or_bail('psql', '-Xqc', q(SET server_login_retry = '0.002508'), console($p));
	moves_ok($a, $b, 8, [ pooler_options($p) ], 0, 'then it is moved');
	is(login_retry($p), 2.5, 'server_login_retry is what it was');
};

# PAUSE would end it, and until the next one is through, PgBouncer would refuse who asks then.
subtest 'a login that comes through before the pause' => sub {
	make_shard($a, 9, 'insta9');
	my $own = start_pooler($a);
	moves_ok($a, $b, 9, [ pooler_options($own), '--stop-after', 'copied' ], 0, 'copied');
	my ($in, $out, $err) = ("SELECT 'first';\n", '', '');
	my $keeper = IPC::Run::start([ 'psql', '-XAtq', '-d', pooled($own, 'insta9') ], '<', \$in, '>', \$out, '2>', \$err, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$keeper->pump until $out =~ /first/;
	my $hold = hold_at_step($a, 'verified');
	my $run = IPC::Run::start([ move_command($a, $b, 9, pooler_options($own), '--pause-limit', 30_000) ], '>', \my $said, '2>', \my $errors);
	wait_until_held($a) or die "does not get there: $errors";

	my ($lock, $later) = map { my $psql = $_->background_psql('postgres'); $psql->query_safe('BEGIN; LOCK TABLE pg_db_role_setting'); $psql } $a, $b;
	system_or_bail('psql', '-Xqc', 'RECONNECT insta9', console($own));
	my $client = IPC::Run::start([ 'psql', '-XAtqc', "SELECT current_setting('port')", '-d', pooled($own, 'insta9') ], '>', \my $home, '2>', \my $error);
	await_pooler($own, 'SHOW SERVERS', qr/^S\|[^|]*\|insta9\|(\w+\|)?new\|/m);
	$hold->{run}->kill_kill;
	$a->poll_query_until('postgres', "SELECT details ? 'poolers' FROM snowid.moves WHERE shard = 9", 't') or die "does not get there: $errors";
	usleep(300_000);	# in which a PAUSE that does not look would come
	$lock->query_safe('COMMIT');
	await_pooler($own, 'SHOW DATABASES', qr/^insta9\|[^|]*\|@{[$b->port]}\|/m);
	usleep(10_000) while led_to($own, 'insta9') =~ /paused/;
	$in .= "SELECT current_setting('port');\n";
	for (1 .. 5)
	{
		$keeper->pump_nb if $keeper->pumpable;
		usleep(100_000);
	}
	$later->query_safe('COMMIT');
	$keeper->finish;
	is("$out$err", "first\n" . $b->port . "\n", 'a client that keeps its connection is not refused');
	$client->finish;
	is($error, '', '... nor one that waits');
	$run->finish;
	is($? >> 8, 0, 'moved') or diag($errors);
	let_go_steps($a);
	stop_pooler($own);
};

# The PAUSE of another pool, which goes with it, may wait for a transaction; what was seen before that is no longer so.
subtest 'a login that has begun since the pause of another pool' => sub {
	make_shard($a, $_, "insta$_") for 10, 11;
	$a->safe_psql('postgres', 'CREATE TABLE insta10.tied (id int PRIMARY KEY); CREATE TABLE insta11.tied (id int PRIMARY KEY REFERENCES insta10.tied)');
	my $own = start_pooler($a);
	moves_ok($a, $b, '10,11', [ pooler_options($own), '--stop-after', 'copied' ], 0, 'copied');
	my ($other, $keeper) = map {
		my $client = { in => "BEGIN; SELECT 'first';\n" x ($_ == 10) || "SELECT 'first';\n", out => '', err => '' };
		$client->{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', pooled($own, "insta$_") ], '<', \$client->{in}, '>', \$client->{out}, '2>', \$client->{err}, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		$client->{run}->pump until $client->{out} =~ /first/;
		$client;
	} 10, 11;
	my $hold = hold_at_step($a, 'verified');
	my $run = IPC::Run::start([ move_command($a, $b, '10,11', pooler_options($own), '--pause-limit', 30_000) ], '>', \my $said, '2>', \my $errors);
	wait_until_held($a) or die "does not get there: $errors";

	my ($lock, $later) = map { my $ownsql = $_->background_psql('postgres'); $ownsql->query_safe('BEGIN; LOCK TABLE pg_db_role_setting'); $ownsql } $a, $b;
	$hold->{run}->kill_kill;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	usleep(10_000) until led_to($own, 'insta10') =~ /paused/ || time > $end;
	unlike(led_to($own, 'insta11'), qr/paused/, 'one is paused, and not the other yet');
	system_or_bail('psql', '-Xqc', 'RECONNECT insta11', console($own));
	my $client = IPC::Run::start([ 'psql', '-XAtqc', "SELECT current_setting('port')", '-d', pooled($own, 'insta11') ], '>', \my $home, '2>', \my $error);
	await_pooler($own, 'SHOW SERVERS', qr/^S\|[^|]*\|insta11\|(\w+\|)?new\|/m);
	$other->{in} .= "COMMIT;\n";
	$other->{run}->finish;
	usleep(300_000);	# in which a PAUSE that does not look would come
	$lock->query_safe('COMMIT');
	await_pooler($own, 'SHOW DATABASES', qr/^insta11\|[^|]*\|@{[$b->port]}\|/m);
	usleep(10_000) while led_to($own, 'insta11') =~ /paused/ && time < $end;
	$keeper->{in} .= "SELECT current_setting('port');\n";
	for (1 .. 5)
	{
		$keeper->{run}->pump_nb if $keeper->{run}->pumpable;
		usleep(100_000);
	}
	$later->query_safe('COMMIT');
	$keeper->{run}->finish;
	is("$keeper->{out}$keeper->{err}", "first\n" . $b->port . "\n", 'a client that keeps its connection is not refused');
	$client->finish;
	is($home, $a->port . "\n", '... and the login was waited for') or diag($error);
	$run->finish;
	let_go_steps($a);
	is($? >> 8, 0, 'moved') or diag($errors);
	stop_pooler($own);
};

# Another user has a pool of that entry, too, which comes first.
subtest 'a user in session mode' => sub {
	my $user = getpwuid $<;
	make_shard($a, 14, 'insta14');
	$a->safe_psql('postgres', 'CREATE ROLE app LOGIN');
	my $own = start_pooler($a, "[users]\n$user = pool_mode=session");
	append_to_file("$own->{dir}/users", qq{"app" ""\n});
	system_or_bail('psql', '-Xqc', 'RELOAD', console($own));
	system_or_bail('psql', '-Xqc', '', '-d', pooled($own, 'insta14') =~ s/user=\S+/user=app/r);
	my $keeper = clients($own, 'insta14', 0, 14);
	moves_ok($a, $b, 14, [ 'plan', pooler_options($own) ], 0, 'plan', qr/warning +poolers: pool "insta14" is in session mode at .*; now kept by: client/);
	moves_ok($a, $b, 14, [ '--pooler', console($own), '--pooler-file', $own->{file}, '--retries', 30, '--pause-limit', 2000 ], 0, 'moved without the client that keeps its session');
	$keeper->{run}->kill_kill;

	# Who is not in that mode is waited for.
	make_shard($a, 17, 'insta17');
	write_entries($own, $a);
	system_or_bail('psql', '-Xqc', $_->[0], '-d', $_->[1]) for [ 'RELOAD', console($own) ], [ '', pooled($own, 'insta17') ];
	my ($in, $out) = ("BEGIN;\nSELECT 'open';\n", '');
	my $slow = IPC::Run::start([ 'psql', '-XAtq', '-d', pooled($own, 'insta17') =~ s/user=\S+/user=app/r ], '<', \$in, '>', \$out);
	$slow->pump until $out =~ /open/;
	moves_ok($a, $b, 17, [ '--pooler', console($own), '--pooler-file', $own->{file}, '--retries', 0, '--pause-limit', 1000, '--verify', 'none' ], 1,
		'a transaction of another user', qr/error: pool "insta17" at the pooler at .* is held by client/);
	$in .= "COMMIT;\n\\q\n";
	$slow->finish;
	moves_ok($a, $b, 17, ['abort'], 0, '... the copy can go');
	stop_pooler($own);
};

subtest 'moved without the poolers' => sub {
	make_shard($a, $_, "insta$_") for 15, 16;
	my $own = start_pooler($a);
	my $reloads = sub { return scalar(() = slurp_file("$own->{dir}/log") =~ /RELOAD command issued/g) };
	moves_ok($a, $b, '15,16', [], 0, 'moved');
	is(led_to($own, 'insta16'), $a->port, 'the pooler has the old entries');
	moves_ok($a, $b, '15,16', [ pooler_options($own) ], 0, 'the same command, with the pooler', qr/moved already/);
	is_deeply([ map { led_to($own, $_) } qw(insta15 insta16) ], [ ($b->port) x 2 ], '... leads its clients there');
	moves_ok($a, $b, '15,16', [ pooler_options($own) ], 0, 'and again', qr/moved already/);
	is($reloads->(), 1, '... does nothing more');
	stop_pooler($own);
};

# PgBouncer takes the last entry of a name.
subtest 'another entry of one of the pools' => sub {
	make_shard($a, $_, "insta$_") for 12, 13;
	$a->safe_psql('postgres', 'CREATE TABLE insta12.tied (id int PRIMARY KEY); CREATE TABLE insta13.tied (id int PRIMARY KEY REFERENCES insta12.tied)');
	my $own = start_pooler($a);
	my ($ini, $old) = (slurp_file("$own->{dir}/ini"), slurp_file($own->{file}) =~ /^(insta13 = .*)/m);
	append_to_file("$own->{dir}/more", "[databases]\n$old\n");
	my $said = moves_ok($a, $b, '12,13', [ pooler_options($own), '--pooler-command', "cat $own->{dir}/more >> $own->{dir}/ini; :" ], 3, 'moved',
		qr/does not lead shards 12-13 to .*hint: Its clients get SN001.* no other entry of pool "insta13" after that, type the same/s);
	unlike($said, qr/done;/, '... it is not done');
	is_deeply([ map { led_to($own, $_) } qw(insta12 insta13) ], [ $b->port, $a->port ], '... one leads there');
	unlink "$own->{dir}/ini";
	append_to_file("$own->{dir}/ini", $ini);
	moves_ok($a, $b, '12,13', [ pooler_options($own) ], 0, 'the same command');
	is(led_to($own, 'insta13'), $b->port, '... leads the other there, too');
	stop_pooler($own);
};

$_->stop for $a, $b;
done_testing();
END { kill 'KILL', map { -$_ } grep { $_ > 0 } @false if @false && $false[-1] > 0 }
