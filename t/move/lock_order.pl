# A shard moves away from many clients that lock in either order: those that take
# an id first, and so lock the sequence before the table, and those that lock the
# table first.  A few attempts are enough, and no client is cancelled for a deadlock.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $from = move_node('a');
my $to = move_node('b');
$_->start for $from, $to;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $from, $to;

# What clients do.  They take their time in between, so that at any time some have an id and
# not yet the table.
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/id first", q{
SET search_path = insta5, public;
BEGIN;
SELECT next_id() AS id \gset
\sleep 20 ms
INSERT INTO users (id, name) VALUES (:id, 'id first');
COMMIT;
});
append_to_file("$dir/table first", q{
SET search_path = insta5, public;
BEGIN;
INSERT INTO users (name) VALUES ('table first') RETURNING id AS user \gset
\sleep 20 ms
INSERT INTO photos (user_id) VALUES (:user);
COMMIT;
});
append_to_file("$dir/id first, slowly", slurp_file("$dir/id first") =~ s/20 ms/100 ms/r);

# Start twelve of them, and wait until they write.
sub start_crowd
{
	my ($script, $written) = @_;
	my $log = '';
	my $run = IPC::Run::start(
		[ 'pgbench', '-n', '-c', 12, '-T', 100, '-f', "$dir/$script", $from->connstr('postgres') ],
		'>', \$log, '2>&1');

	$from->poll_query_until('postgres', "SELECT count(*) > 20 FROM insta5.$written") or die 'no load';
	return { run => $run, log => \$log };
}

sub sent_away_ok
{
	my ($crowd) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$crowd->{run}->finish;
	unlike(${ $crowd->{log} }, qr/deadlock detected/, 'no client was cancelled for a deadlock');
	like(${ $crowd->{log} }, qr/shard 5 has moved/, '... and each was sent to the new server');
	return;
}

subtest 'closed by hand, though clients take ids first' => sub {
	fresh_shard($from, $to);
	my $crowd = start_crowd('id first, slowly', q{users WHERE name = 'id first'});
	is(sqlstate($from, 'SELECT snowid.fence_shard(5)'), '', 'fence_shard()');
	$crowd->{run}->finish;
	unlike(${ $crowd->{log} }, qr/deadlock detected/, 'no client was cancelled for a deadlock');
	$from->safe_psql('postgres', 'SELECT snowid.unfence_shard(5)');
};

# The first attempt does not know that sequence; the next one begins there.
subtest 'clients take ids of another sequence first' => sub {
	fresh_shard($from, $to);
	my $next = $from->safe_psql('postgres', q{
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'insta5.likes'::regclass AND adnum = 1});
	append_to_file("$dir/other sequence", slurp_file("$dir/id first, slowly") =~ s/next_id\(\)/$next/r
		  =~ s/users \(id, name\) VALUES \(:id, 'id first'\)/likes (id) VALUES (:id)/r);
	my $crowd = start_crowd('other sequence', 'likes');
	moves_ok($from, $to, 5, [ '--retries', 3, '--lock-timeout', 500, '--pause-limit', 5000 ], 0, 'moved', qr/now lives at/);
	sent_away_ok($crowd);
	moves_ok($from, $to, 5, ['finish'], 0, 'finished');
};

subtest 'clients lock in either order' => sub {
	fresh_shard($from, $to);
	my @crowds = map { start_crowd($_, "users WHERE name = '$_'") } 'id first', 'table first';
	moves_ok($from, $to, 5, [ '--retries', 3, '--keep-name' ], 0, 'moved', qr/now lives at/);
	sent_away_ok($_) for @crowds;
	moves_ok($from, $to, 5, ['finish'], 0, 'finished');
};

done_testing();
