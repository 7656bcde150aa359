# The programs in examples/clients, each against the server, and through
# PgBouncer in transaction mode with the configuration that is there, and with the
# portable edition.
#
# PgBouncer is made to give every transaction another one of three connections:
# whatever a program leaves in one, the next transaction does not find.
#
# Then a shard moves to another server while programs write, and each must follow:
# those that come while it is open nowhere, and those that come after.  Last, that
# server is lost, and comes back elsewhere.
#
# A client whose runtime is missing is skipped; or fails, if CLIENTS is "all".  If it
# names some, as in CLIENTS="knex prisma", the others are left out.
use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename;
use FindBin;
use IPC::Run;
use POSIX qw(ceil);
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PoolerTest qw(pgbouncer_version);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest ();
use Test::More;
use Time::HiRes qw(usleep);

my $examples = abs_path(dirname(__FILE__) . '/../../examples/clients');
my $lost = abs_path(dirname(__FILE__) . '/lost');
my $tmp = PostgreSQL::Test::Utils::tempdir();
my @python = ('/usr/bin/python3', '-B');	# leaves no __pycache__
my $jdbc = '/usr/share/java/postgresql.jar';
my @hibernate = map { "/usr/share/java/$_.jar" } qw(hibernate-core antlr commons-collections3
  dom4j geronimo-jpa_2.0_spec geronimo-jta-1.2-spec hibernate-commons-annotations slf4j-api slf4j-nop javassist);
my $classes = join(':', "$tmp/classes", $jdbc, @hibernate);

# Go and Rust from Debian's packages, without network.
my @go = ('env', 'GO111MODULE=off', 'GOPATH=/usr/share/gocode', "GOCACHE=$tmp/go", 'go');
my @cargo = ('env', "CARGO_HOME=$tmp/cargo", "CARGO_TARGET_DIR=$tmp/rust", 'CARGO_PROFILE_DEV_DEBUG=0', '/usr/bin/cargo', '--offline',
	'--config', 'source.crates-io.replace-with="debian"',
	'--config', 'source.debian.directory="/usr/share/cargo/registry"');

# In which directory, what must run without error first, and what that needs; why it
# cannot go through Debian 12's PgBouncer.  What outlives its server, and what builds that.
my @clients = (
	{ name => 'psql', run => [ 'bash', 'photos' ], try => ['true'] },
	{
		name => 'django',
		run => [ @python, 'main.py' ],
		try => [ @python, '-c', 'import django, psycopg2' ],
		lost => [ 'env', 'PYTHONPATH=.', @python, "$lost/lost_django.py" ],
		json => 1,
		needs => 'packages python3-django, python3-psycopg2',
	},
	{
		name => 'sqlalchemy',
		run => [ @python, 'photos.py' ],
		try => [ @python, '-c', q{import sqlalchemy
try: import psycopg
except ImportError: import psycopg2} ],
		lost => [ 'env', 'PYTHONPATH=.', @python, "$lost/lost_sqlalchemy.py" ],
		needs => 'packages python3-sqlalchemy, python3-psycopg2',
		one_insert => 1,
	},
	{
		name => 'node-pg',
		run => [ 'node', 'photos.mjs' ],
		try => [ 'node', '-e', 'require("snowid/pg")' ],
		needs => 'Node 20, and npm install in its directory',
	},
	{
		name => 'sequelize',
		run => [ 'node', 'photos.mjs' ],
		try => [ 'node', '-e', 'require("sequelize"); require("snowid/pg")' ],
		needs => 'Node 20, and npm install in its directory',
	},
	{
		name => 'knex',
		run => [ 'node', 'photos.mjs' ],
		try => [ 'node', '--input-type=module', '-e', 'import "snowid/knex"' ],
		needs => 'Node 20, and npm install in its directory',
	},
	{
		name => 'drizzle',
		run => [ 'node', 'photos.mjs' ],
		try => [ 'node', '--input-type=module', '-e', 'import "snowid/drizzle"' ],
		json => 1,
		needs => 'Node 20, and npm install in its directory',
	},
	{
		name => 'typeorm',
		run => [ 'node', 'photos.mjs' ],
		try => [ 'node', '--input-type=module', '-e', 'import "snowid/typeorm"' ],
		needs => 'Node 20, and npm install in its directory',
	},
	{
		name => 'prisma',
		run => [ 'node', 'photos.mjs' ],

		# It would download a program that makes migrations.
		try => [ 'env', 'PRISMA_SCHEMA_ENGINE_BINARY=/bin/true', 'CHECKPOINT_DISABLE=1',
			'node_modules/.bin/prisma', 'generate', '--schema', 'schema.prisma' ],
		json => 1,
		needs => 'Node 20, and npm install --ignore-scripts in its directory',
	},
	{
		name => 'rails',
		run => [ '/usr/bin/ruby', 'photos.rb' ],
		try => [ '/usr/bin/ruby', '-e', 'require "active_record"; require "pg"' ],
		lost => [ '/usr/bin/ruby', "$lost/rails.rb" ],
		needs => 'packages ruby-activerecord, ruby-pg',
	},
	{
		name => 'jdbc',
		run => [ 'java', '-cp', "$tmp/jdbc:$jdbc", 'Photos' ],
		try => [ 'sh', '-c', "test -e $jdbc && javac -d $tmp/jdbc *.java" ],
		lost => [ 'java', '-cp', "$tmp/jdbc:$jdbc", 'Lost' ],
		build => [ 'javac', '-d', "$tmp/jdbc", '-cp', "$tmp/jdbc", "$lost/Lost.java" ],
		needs => 'packages default-jdk-headless, libpostgresql-jdbc-java',
	},
	{
		name => 'hibernate',
		run => [ 'java', '-cp', $classes, 'Main' ],
		try => [ 'sh', '-c', "javac -d $tmp/classes -cp $classes *.java ../jdbc/Shards.java" ],
		needs => 'packages default-jdk-headless, libpostgresql-jdbc-java, libhibernate3-java, libjavassist-java',
	},
	{
		name => 'laravel',
		run => [ 'php', 'photos.php' ],
		try => [ 'php', '-r', 'require "Illuminate/Database/autoload.php"; exit(in_array("pgsql", PDO::getAvailableDrivers()) ? 0 : 1);' ],
		lost => [ 'php', "$lost/laravel.php" ],
		json => 1,
		needs => 'packages php-cli, php-pgsql, php-illuminate-database',
	},
	{
		name => 'doctrine',
		run => [ 'php', 'photos.php' ],
		try => [ 'php', '-r', 'require "Doctrine/DBAL/autoload.php"; exit(in_array("pgsql", PDO::getAvailableDrivers()) ? 0 : 1);' ],
		lost => [ 'php', "$lost/doctrine.php" ],
		json => 1,
		needs => 'packages php-cli, php-pgsql, php-doctrine-dbal',
	},
	{
		name => 'lib-pq',
		run => ["$tmp/lib-pq"],
		try => [ @go, 'build', '-o', "$tmp/lib-pq", '.' ],
		lost => ["$tmp/lost-lib-pq/lost"],
		build => [ 'sh', '-c', "mkdir $tmp/lost-lib-pq && cp shards.go $lost/lib-pq.go $tmp/lost-lib-pq && cd $tmp/lost-lib-pq && @go build -o lost ." ],
		needs => 'packages golang-go, golang-github-lib-pq-dev',
	},
	{
		name => 'pgx',
		run => ["$tmp/pgx"],
		try => [ @go, 'build', '-o', "$tmp/pgx", '.' ],
		lost => ["$tmp/lost-pgx/lost"],
		build => [ 'sh', '-c', "mkdir $tmp/lost-pgx && cp shards.go $lost/pgx.go $tmp/lost-pgx && cd $tmp/lost-pgx && @go build -o lost ." ],
		needs => 'packages golang-go, golang-github-jackc-pgx-v4-dev',
	},
	{
		name => 'tokio-postgres',
		run => ["$tmp/rust/debug/photos"],
		try => [ @cargo, 'build' ],
		lost => [ @cargo, 'run', '-q', '--manifest-path', "$tmp/lost-rust/Cargo.toml" ],
		build => [ 'sh', '-c', "mkdir -p $tmp/lost-rust/src && cp Cargo.toml $tmp/lost-rust && cp src/shards.rs $tmp/lost-rust/src && cp $lost/tokio-postgres.rs $tmp/lost-rust/src/main.rs" ],
		needs => 'packages cargo, librust-tokio-postgres-dev, librust-tokio+macros-dev, librust-tokio+rt-dev',
		not_pooled => 'it names its prepared statements',
	},
);

# The same with psycopg 3 and Rails 7.2, of a directory into which Debian 13's packages have been unpacked.
my $newer = ($ENV{DEBIAN13} // '/none') . '/usr';
for ([ django => @python, '-c', 'import django, psycopg; assert django.VERSION > (4, 2)' ],
	[ sqlalchemy => @python, '-c', 'import psycopg, sqlalchemy; assert sqlalchemy.__version__ > "2"' ],
	[ rails => '/usr/bin/ruby', '-e', 'require "active_record"; require "pg"; exit ActiveRecord.version >= Gem::Version.new("7.1")' ])
{
	my ($name, @try) = @$_;
	my ($client) = grep { $_->{name} eq $name } @clients;
	my @path = ('env', "PYTHONPATH=.:$newer/lib/python3/dist-packages", 'RUBYLIB=' . join(':', glob "$newer/share/rubygems-integration/all/gems/*/lib"));
	push @clients, { %$client, name => "${name}13", dir => $name, run => [ @path, @{ $client->{run} } ], try => [ @path, @try ],
		lost => [ @path, grep { !/^(env|PYTHONPATH=.*)$/ } @{ $client->{lost} } ], needs => 'packages of Debian 13, in DEBIAN13: see .ci/clients' };
}

my $chosen = ($ENV{CLIENTS} // '') =~ s/^all$//r;
@clients = grep { $chosen =~ /(^| )\Q$_->{name}\E( |$)/ } @clients if $chosen;

# Some are built meanwhile.
$_->{trying} = eval { start_in($_, $_->{try}) } for @clients;

my $node = move_node('main');
my $other = move_node('other');
for ($node, $other)
{
	$_->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'\nlog_line_prefix = '%u '");
	$_->start;
	$_->safe_psql('postgres', 'CREATE DATABASE app');
}
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$examples/schema.sql", '-d', $node->connstr('app') ],
	'the tables are set up');
$node->safe_psql('postgres', 'CREATE DATABASE portable');
$node->safe_psql('portable', slurp_file(SnowidTest::portable_file('sql')) . slurp_file("$examples/schema.sql") =~ s/^CREATE ROLE.*//mr);

# An hour before and after what a program makes: not in its time range.
$node->safe_psql('app', q(
CALL snowid.for_each_shard($$
	INSERT INTO photos (id, user_id, caption)
	SELECT snowid.make_id(now() + ahead, snowid.id_shard(next_id()), 0), 0, 'not in the range'
	FROM (VALUES (interval '1 hour'), ('-1 hour')) AS v (ahead)
$$)));

# Blocks must come from the sequence alone: this clock opens no new ones.
$node->safe_psql('app', q(
CALL snowid.for_each_shard($$
	SELECT snowid.advance('events_id_seq', snowid.make_id(now() + interval '1 hour', 0, 0))
$$)));

my $pooled_port = start_pgbouncer();
if ($pooled_port)
{
	# What the programs must stand: a new connection for each transaction, and
	# settings that others left.
	my $connstr = "host=127.0.0.1 port=$pooled_port dbname=app";
	my $pids = $node->safe_psql('app', "SELECT pg_backend_pid();\n" x 4, connstr => $connstr);
	like($pids, qr/^(\d+)\n(?!\1)(\d+)\n(?!\1|\2)\d+\n\1$/, 'PgBouncer goes round three connections');
	# Servers report the path since 18; PgBouncer 1.26 keeps it for each client.
	my $kept = $node->pg_version >= 18 && pgbouncer_version() >= 1026;
	is($node->safe_psql('app', "SET search_path = insta1340;\n" . "SHOW search_path;\n" x 3, connstr => $connstr),
		join("\n", ($kept ? 'insta1340' : '"$user", public') x 2, 'insta1340'), 'a setting does not last, but stays behind');
}

for my $client (@clients)
{
	my $found = $client->{trying} && IPC::Run::finish($client->{trying}{harness});
	my $err = $client->{trying} ? $client->{trying}{err} : 'it cannot be run';
	if (!$found && !$ENV{CLIENTS})
	{
		SKIP: { skip "$client->{name} needs $client->{needs}", 1 }
		next;
	}
	ok($found, "$client->{name} has what it needs") or diag($err), next;
	$client->{found} = 1;
	check_photos($client, 31341, 'direct', $node->port);
	check_inserts($client) if $client->{one_insert};
	check_photos($client, -658, 'portable', $node->port);
	if ($pooled_port && !$client->{not_pooled})
	{
		check_photos($client, 31343, 'pooled', $pooled_port);
	}
}

answers_ok($node, 'at first');

# Two clients that take ids in blocks, at once, and the DEFAULT beside them.
my ($jdbc_client) = grep { $_->{name} eq 'jdbc' && $_->{found} } @clients;
if ($jdbc_client)
{
	my @runs = map {
		start_in($jdbc_client, [ 'java', '-cp', "$tmp/jdbc:$jdbc", 'Events', 31342 ], address('direct', $node->port))
	} 1 .. 2;
	$node->safe_psql('app', q(INSERT INTO insta1342.events (user_id, what) SELECT 0, 'by default' FROM generate_series(1, 100)));
	for my $run (@runs)
	{
		IPC::Run::finish($run->{harness});
		is($run->{out}, "inserted 1000 events, with ids of 20 calls\n", 'jdbc: a client with blocks inserts') or diag($run->{err});
	}
	is($node->safe_psql('app', 'SELECT count(*), min(snowid.id_shard(id)), max(snowid.id_shard(id)) FROM insta1342.events'),
		'2100|1342|1342', 'jdbc: blocks never overlap');
}

# Whoever asks for TLS by the environment does not go on without it.
my ($libpq_go) = grep { $_->{name} eq 'lib-pq' && $_->{found} } @clients;
if ($libpq_go)
{
	my $run = start_in($libpq_go, [ @{ $libpq_go->{run} }, 31341 ], address('direct', $node->port), PGSSLMODE => 'require');
	IPC::Run::finish($run->{harness});
	like($run->{out} . $run->{err}, qr/SSL is not enabled/, 'lib-pq: no rows go without TLS');
}

# A shard moves.  Between the decision and the opening the program that moves it is
# killed: the old server refuses writers (SN001), and the new one, too (SN002).  A few
# clients for each of the shards: all of them at once take so long to start that the
# first give up.
my @followers = grep { $_->{found} } @clients;
SKIP:
{
	skip 'no client is there', 1 unless @followers;
	$other->safe_psql('app', 'CREATE EXTENSION snowid; CREATE ROLE app LOGIN');
	$_->safe_psql('app', join('; ', map { qq(CREATE ROLE "app $_->{name}" LOGIN IN ROLE app) } @followers)) for $node, $other;
	local $MoveTest::database = 'app';
	local $MoveTest::host = '127.0.0.1';
	for my $shard (1340 .. 1343)
	{
		local $MoveTest::shard = $shard;
		follow_ok($shard, splice(@followers, 0, ceil(@followers / (1344 - $shard))));
	}
	answers_ok($other, 'after the move');
	lost_ok(grep { $_->{found} && $_->{lost} } @clients);
	tls_ok($jdbc_client) if $jdbc_client && grep { -x "$_/openssl" } split /:/, $ENV{PATH};
}

$_->stop for $node, $other;
done_testing();

# Clients follow a shard to the other server.
sub follow_ok
{
	my ($shard, @followers) = @_;
	my $user = 30000 + $shard;

	hold_and_kill($other, 'open', 1, 'move', $node, $other);
	for (@followers)
	{
		$_->{user} = $user += 2000;
		$_->{running} = start_in($_, [ @{ $_->{run} }, $user ], address('direct', $node->port, "app $_->{name}"));
	}
	for my $client (@followers)
	{
		my $refused = sub {
			my ($on, $how) = @_;
			return slurp_file($on->logfile) =~ /^app $client->{name} ERROR: .*shard $shard $how/m;
		};
		until ($refused->($other, 'is not open here yet') || !$client->{running}{harness}->pumpable)
		{
			$client->{running}{harness}->pump_nb;
			usleep(100_000);
		}
		ok($refused->($node, 'has moved') && $refused->($other, 'is not open here yet'), "$client->{name} is refused by both servers");
	}
	moves_ok($node, $other, $shard, [], 0, 'the move is completed');
	for (@followers)
	{
		my $ok = IPC::Run::finish($_->{running}{harness});
		follows_ok($_, $shard, 'while it was open nowhere', $ok, $_->{running}{out}, $_->{running}{err});
	}

	# The copy on the old server has another name now.
	for (@followers)
	{
		$_->{user} = $user += 2000;
		follows_ok($_, $shard, 'after the move', run_in($_, [ @{ $_->{run} }, $user ], address('direct', $node->port, "app $_->{name}")));
	}
	return;
}

# The server of the shard is gone, and each client is told; then the registry leads to several
# servers: one that is gone, a standby, and the right one.
sub lost_ok
{
	my (@clients) = @_;
	my $port = $other->port;
	my $read_only = move_node('read_only');

	$read_only->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
	$read_only->start;
	$read_only->safe_psql('postgres', 'CREATE DATABASE app');
	$read_only->safe_psql('app', 'CREATE SCHEMA insta1341; CREATE TABLE insta1341.photos (id bigint DEFAULT 1, user_id bigint, caption text)');
	$read_only->safe_psql('app', 'CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA insta1341 TO app; GRANT SELECT, INSERT ON insta1341.photos TO app');
	$read_only->stop;
	append_to_file($read_only->data_dir . '/standby.signal', '');
	$read_only->start;
	for my $client (@clients)
	{
		my ($built, undef, $err) = $client->{build} ? run_in($client, $client->{build}) : 1;
		ok($built, "$client->{name}: it is built") or diag($err);
		$client->{running} = start_in($client, $client->{lost}, address('direct', $node->port));
	}
	my $each = sub {
		my ($expected, $what) = @_;
		for my $client (@clients)
		{
			$client->{running}{in} .= "\n";
			$client->{running}{harness}->pump while $client->{running}{out} !~ /\n/ && $client->{running}{harness}->pumpable;
			like($client->{running}{out}, $expected, "$client->{name}: $what") or diag($client->{running}{err});
			$client->{running}{out} = '';
		}
	};
	$each->(qr/^$port$/, 'is where the shard has moved to');

	# One that nobody can write any more; then the right one.
	my $leads = sub { $node->safe_psql('app', "UPDATE snowid.shard_registry SET home = '$_[0]' WHERE shard = 1341"); return };
	my $ro = $read_only->port;
	for my $home ("host=127.0.0.1,127.0.0.1,127.0.0.1 port=$port,$ro,%d dbname=app target_session_attrs=read-write",
		"postgresql://app\@127.0.0.1:$port,127.0.0.1:$ro,127.0.0.1:%d/app?target_session_attrs=read-write")
	{
		my $new = PostgreSQL::Test::Cluster::get_free_port();
		$other->stop;
		$leads->("host=127.0.0.1 port=$ro dbname=app");
		$each->(qr/^lost /, 'is told that the server is lost');
		$each->(qr/^lost .*read-(only|write)/, 'a server that cannot be written');
		$other->append_conf('postgresql.conf', "port = $new");
		$other->{_port} = $new;
		$other->start;
		$leads->(sprintf($home, $new));
		$each->(qr/^$new$/, 'is where the registry leads to by now');
	}
	$_->{running}{harness}->kill_kill for @clients;
	$read_only->stop;
	return;
}

# What a home says of TLS is to Java what it is to libpq: who trusts which certificate.
sub tls_ok
{
	my ($client) = @_;
	my $port = $other->port;

	for my $name (qw(127.0.0.1 127.0.0.2))
	{
		system_or_bail('sh', '-c', qq{cd '$tmp' && openssl req -x509 -nodes -newkey rsa:2048 -days 2 -subj /CN=snowid -addext subjectAltName=IP:$name -keyout $name.key -out $name.crt 2>/dev/null &&
			chmod 600 $name.key && keytool -importcert -noprompt -alias snowid -file $name.crt -keystore $name.trust -storepass changeit 2>/dev/null});
	}
	append_to_file($other->data_dir . '/hba', "hostnossl all all all reject\n" . slurp_file($other->data_dir . '/pg_hba.conf'));
	$other->append_conf('postgresql.conf', "ssl = on\nhba_file = '" . $other->data_dir . "/hba'");
	my $home = "host=127.0.0.1 port=$port dbname=app";
	my $java = '&sslfactory=org.postgresql.ssl.DefaultJavaSSLFactory';
	for (
		# What the server is, what Java trusts, the home, what the first URL has besides.
		[ '127.0.0.1', '127.0.0.1', "$home sslrootcert=system", '', qr/^$port$/, 'system' ],
		[ '127.0.0.1', '127.0.0.1', "postgresql://127.0.0.1:$port/app?sslrootcert=system&sslmode=verify-full", '&sslmode=disable', qr/^$port$/, 'system, in a URI' ],
		[ '127.0.0.1', '127.0.0.2', "$home sslrootcert=system", '', qr/^lost .*PKIX/, 'system, and not trusted' ],
		[ '127.0.0.2', '127.0.0.2', "$home sslrootcert=system", '', qr/^lost .*hostname 127\.0\.0\.1 could not be verified/, 'system, and another name' ],
		[ '127.0.0.2', '127.0.0.2', "$home sslrootcert=system sslmode=require", '', qr/^lost .*too weak for sslrootcert=system/, 'system, and too weak a mode' ],
		[ '127.0.0.1', '127.0.0.1', "$home sslrootcert=system sslcert=/c sslkey=/k", '', qr/^lost .*javax\.net\.ssl\.keyStore/, 'system, and a certificate of the client' ],
		[ '127.0.0.1', '127.0.0.2', "$home sslmode=verify-full sslrootcert=$tmp/127.0.0.1.crt", $java, qr/^$port$/, 'a file, and system at first' ],
		[ '127.0.0.1', '127.0.0.1', "$home sslmode=require sslrootcert=$tmp/127.0.0.2.crt", '', qr/^lost .*PKIX/, 'require, with a file of another' ],
		[ '127.0.0.2', '127.0.0.1', "$home sslmode=require sslrootcert=$tmp/127.0.0.2.crt", '', qr/^$port$/, 'require, with a file, and another name' ],
		[ '127.0.0.1', '127.0.0.2', "postgresql://127.0.0.1:$port/app?ssl=true", '&sslmode=disable', qr/^$port$/, 'ssl=true' ],
		[ '127.0.0.1', '127.0.0.1', "$home sslfactory=Planted sslmode=require", '', qr/^$port$/, 'a class' ])
	{
		my ($is, $trusted, $home, $besides, $expected, $what) = @$_;
		$node->safe_psql('app', "UPDATE snowid.shard_registry SET home = '$home' WHERE shard = 1341");
		$other->append_conf('postgresql.conf', "ssl_cert_file = '$tmp/$is.crt'\nssl_key_file = '$tmp/$is.key'");
		$other->restart;
		my %env = address('direct', $node->port);
		my $run = start_in($client, $client->{lost}, %env, JDBC_URL => $env{JDBC_URL} . $besides, JAVA_TOOL_OPTIONS => "-Djavax.net.ssl.trustStore=$tmp/$trusted.trust -Djavax.net.ssl.trustStorePassword=changeit");
		$run->{in} = "\n";
		IPC::Run::finish($run->{harness});
		like($run->{out}, $expected, "$client->{name}, TLS: $what") or diag($run->{err});
	}
	return;
}

# A client has done all that it does, each row once, on the server that the shard has moved to.
sub follows_ok
{
	my ($client, $shard, $when, $ok, $out, $err) = @_;
	my $name = "$client->{name}, $when";

	ok($ok, "$name: runs") or diag($err);
	my ($newest) = $out =~ /^in the minute from then: \d+ photos, the newest (\d+)$/m;
	my ($oldest) = $out =~ /^in pages of 400: 1001 photos, the oldest (\d+)$/m;
	is($other->safe_psql('app', "SELECT count(*), min(id), count(*) FILTER (WHERE caption = 'the first') FROM insta$shard.photos WHERE user_id = $client->{user}"),
		'1001|' . ($oldest // '') . '|1', "$name: each row is there once") or diag($out, $err);
	is($other->safe_psql('app', "SELECT count(*) FROM insta$shard.events WHERE user_id = $client->{user}"), 1000, "$name: with ids of blocks, too")
	  if $out =~ /events/;
	return;
}

# Run a command in a client's directory: did it succeed, its output, its errors.
sub run_in
{
	my $run = eval { start_in(@_) } or return (0, '', $@);
	my $ok = IPC::Run::finish($run->{harness});
	return ($ok, $run->{out}, $run->{err});
}

sub start_in
{
	my ($client, $command, %env) = @_;
	local %ENV = (%ENV, %env);
	my $run = { in => '', out => '', err => '' };
	$run->{harness} = IPC::Run::start($command, '<', $client->{lost} && $command == $client->{lost} ? \$run->{in} : '/dev/null', '>', \$run->{out}, '2>', \$run->{err},
		init => sub { chdir "$examples/" . ($client->{dir} // $client->{name}) or die });
	return $run;
}

# Where a program shall connect to.
sub address
{
	my ($mode, $port, $user) = (@_, 'app');
	my $database = $mode eq 'portable' ? 'portable' : 'app';
	my $url = "jdbc:postgresql://127.0.0.1:$port/$database?user=$user";
	return (
		PGHOST => '127.0.0.1', PGPORT => $port, PGDATABASE => $database, PGUSER => $user,
		JDBC_URL => $mode eq 'pooled' ? "$url&prepareThreshold=0" : $url);
}

# Run a client, and compare what it says with what is in the shards.
sub check_photos
{
	my ($client, $user, $mode, $port) = @_;
	my $name = "$client->{name}, $mode";
	my $shard = $user % 2000;
	my $database = $mode eq 'portable' ? 'portable' : 'app';
	my ($ok, $out, $err) = run_in($client, [ @{ $client->{run} }, $user ], address($mode, $port));

	ok($ok, "$name: runs") or diag($err);
	like($out, qr/^user $user lives in shard $shard$/m, "$name: finds the user's shard");
	my ($first) = $out =~ /^inserted (\d+)$/m;
	like($out, qr/^in JSON: \{"id":"$first"\}$/m, "$name: JSON has the id as text") if $client->{json};
	my ($more, $last) = $out =~ /^inserted (\d+) more(?:, the last (\d+))?$/m;
	my ($made, $of_shard) = $out =~ /^made (.*) in shard (\d+)$/m;
	my ($count, $newest) = $out =~ /^in the minute from then: (\d+) photos, the newest (\d+)$/m;
	ok(defined $newest, "$name: tells all") or diag($out), return;

	# The first, then the others in the order in which the program made them.
	is($node->safe_psql($database, qq{
SELECT count(*), bool_and(rising), min(id), max(id), min(snowid.id_timestamp(id)) = '$made', bool_and(snowid.id_shard(id) = $shard)
FROM (SELECT id, id > lag(id, 1, 0::bigint) OVER (ORDER BY substring(caption from 'photo (\\d+)')::int NULLS FIRST) AS rising
	  FROM insta$shard.photos WHERE user_id = $user) AS p}),
		"1001|t|$first|$newest|t|t", "$name: ids, order and time are the server's");
	is("$more $of_shard $count", "1000 $shard 1001", "$name: bulk insert, shard and time range");
	is($last // $newest, $newest, "$name: the bulk insert told its ids");
	like($out, qr/^in pages of 400: 1001 photos, the oldest $first$/m, "$name: pages have all rows, once");

	my $all = join(' UNION ALL ', map { "SELECT * FROM insta$_.photos" } 1340 .. 1343);
	is($node->safe_psql($database, "SELECT count(*) FROM ($all) AS p WHERE user_id <> 0"), 1001, "$name: nothing is in another shard");
	is($node->safe_psql($database, "SELECT count(*) FROM insta$shard.events WHERE user_id = $user"), 1000, "$name: with ids of blocks, too")
	  if $out =~ /events/;
	$node->safe_psql($database, "DELETE FROM insta$shard.photos WHERE user_id <> 0");
	return;
}

# The first row and the thousand after it are an INSERT each.
sub check_inserts
{
	my ($client) = @_;
	my $before = -s $node->logfile;

	$node->safe_psql('postgres', 'ALTER ROLE app SET log_statement = mod');
	run_in($client, [ @{ $client->{run} }, 31341 ], address('direct', $node->port));
	$node->safe_psql('postgres', 'ALTER ROLE app RESET log_statement');
	is(scalar(() = slurp_file($node->logfile, $before) =~ /LOG:  (statement|execute [^:]*): INSERT/g), 2, "$client->{name}: a thousand rows are one INSERT");
	$node->safe_psql('app', 'DELETE FROM insta1341.photos WHERE user_id <> 0');
	return;
}

# Express sends ids as text, however it got them, from the server where the shard is.
sub answers_ok
{
	my ($at, $when) = @_;
	return if $chosen && $chosen !~ /(^| )express( |$)/;
	my $express = { name => 'express' };
	if (!(run_in($express, [ 'node', '--input-type=module', '-e', 'import "express"; import "snowid/pg"' ]))[0])
	{
		ok(0, 'express has what it needs') if $ENV{CLIENTS};
		SKIP: { skip 'express needs Node, and npm install in its directory', 1 }
		return;
	}
	my $id = $at->safe_psql('app', q(INSERT INTO insta1341.photos (user_id, caption) VALUES (31341, 'a') RETURNING id));
	my ($ok, $out, $err) = run_in($express, [ 'node', 'app.mjs', 31341 ], address('direct', $node->port));
	is($out, qq(first: {"id":"$id"}\nfirst/bigint: {"id":"$id"}\nalbum: [{"id":"$id","caption":"a"}]\n), "express, $when: ids are text") or diag($err);
	$at->safe_psql('app', "DELETE FROM insta1341.photos WHERE id = $id");
	return;
}

# Start PgBouncer with the example's configuration, on a port of ours.  Each
# transaction gets the connection that has been idle for longest.
sub start_pgbouncer
{
	my ($program) = grep { -x } '/usr/sbin/pgbouncer', '/usr/bin/pgbouncer';
	if (!$program)
	{
		fail('pgbouncer is there') if ($ENV{CLIENTS} // '') eq 'all';
		diag 'the package pgbouncer is missing: the clients run without it';
		return;
	}

	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $server = $node->port;
	my $ini = slurp_file("$examples/pgbouncer.ini");
	$ini =~ s/port=5432/port=$server/ or die;
	$ini =~ s/listen_port = 6432/listen_port = $port/ or die;
	append_to_file("$tmp/pgbouncer.ini", $ini . qq{
logfile = $tmp/pgbouncer.log
pidfile = $tmp/pgbouncer.pid
unix_socket_dir =
default_pool_size = 3
min_pool_size = 3
server_round_robin = 1
});
	my $err;
	IPC::Run::run([ $program, '-d', "$tmp/pgbouncer.ini" ], '2>', \$err) or die "pgbouncer does not start: $err";

	# It is in the background before it listens; then it answers in the server's place.
	{
		local @$node{qw(_host _port)} = ('127.0.0.1', $port);
		$node->poll_query_until('app', 'SELECT true') or die 'pgbouncer does not answer: ' . slurp_file("$tmp/pgbouncer.log");
	}

	# It fills the pool while a client is there, and keeps it.
	my $in = '';
	my $waiting = IPC::Run::start([ 'psql', '-Xq', "host=127.0.0.1 port=$port dbname=app" ], '<', \$in);
	$node->poll_query_until('app', q(SELECT count(*) = 3 FROM pg_stat_activity WHERE usename = 'app'))
	  or die 'pgbouncer does not fill its pool: ' . slurp_file("$tmp/pgbouncer.log");
	$waiting->finish;
	return $port;
}
END { kill 'TERM', slurp_file("$tmp/pgbouncer.pid") + 0 if -e "$tmp/pgbouncer.pid"; }
