# snowid-move status without --shard: every move that a server, or those of a registry, have in
# their journals, with the sides that it was begun with; with -v, times; and a server with a version
# that the program does not know is refused.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use JSON::PP;
use MoveTest;
use SnowidTest;
use Test::More;

my ($a, $b, $c) = map { move_node($_) } qw(a b c);
$_->start for $a, $b, $c;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b, $c;
my %home = map { ($_->name => 'host=' . $_->host . ' port=' . $_->port . ' dbname=postgres') } $a, $b, $c;

sub says
{
	my ($expected, $name, $like, @arguments) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'snowid-move', 'status', @arguments ], '>', \$out, '2>', \$err);
	is($? >> 8, $expected, "$name: exit status") or diag "$out$err";
	like("$out$err", $_, $name) for @$like;
	return $out;
}

says(0, 'nothing', [qr/no move at host=/], '--from', $home{a});

$a->safe_psql('postgres', 'CALL snowid.create_shards(1, 6)');
$c->safe_psql('postgres', 'CALL snowid.create_shards(8, 9)');
$a->safe_psql('postgres', "INSERT INTO snowid.shard_registry (shard, schema, sequence, home) SELECT n, 'insta' || n, 'id_seq', '$home{c}' FROM generate_series(8, 9) n");
moves_ok($a, $b, '1-2,4', [ '--stop-after', 'copied' ], 0, 'three under way', qr/follows/);
moves_ok($a, $b, 5, [], 0, 'one has moved', qr/now lives at/);
moves_ok($c, $b, 9, [ '--stop-after', 'copied' ], 0, 'one from elsewhere', qr/follows/);
$a->safe_psql('postgres', 'SELECT snowid.fence_shard(6)');

my %at = map { ($_->name => "[^']*port=" . $_->port . "\\b[^']*") } $a, $b, $c;
my $ab = qr/--from '$at{a}' --to '$at{b}'/;
my @of_ab = (qr/^shards 1-2,4: under way, not decided\n  To go on, type: snowid-move move --shard 1-2,4 $ab/m,
	qr/^shard 5: moved\n.*: snowid-move finish --shard 5 $ab/m);
my $of_c = qr/^shard 9: under way.*\n.*--shard 9 --from '$at{c}'/m;

says(1, 'of the source', [ @of_ab, qr/^shard 6: closed by hand at \Q$home{a}\E/m ], '--from', $home{a});
says(1, 'of the target', [ @of_ab, $of_c ], '--to', $home{b});
{
	# A journal's peer names no role: it is that of the server which tells of it.
	local $ENV{PGUSER} = 'nobody_here';
	my $user = ' user=' . $a->safe_psql('postgres', 'SELECT current_user', extra_params => [ '-U', getpwuid($<) ]);
	says(1, 'of whom the given server has', [ @of_ab, qr/^shard 6: closed by hand/m ], '--from', $home{a} . $user);
	IPC::Run::run([ 'snowid-move', 'audit', '--registry', $home{b} . $user ], '>&', \my $said);
	unlike($said, qr/nobody_here|knows nothing/, 'audit asks as he, and all servers of its own moves');
}
my $all = says(1, 'of a registry', [ @of_ab, $of_c, qr/^shard 6: closed by hand/m ], '--registry', $home{a});
is(() = $all =~ /^shards 1-2,4: /mg, 1, '... each move once');

# As JSON, an object on each line.
my @objects = map { decode_json($_) } split /\n/, says(1, 'as JSON', [], '--json', '--registry', $home{a});
my ($under_way) = grep { ($_->{outlook} // '') =~ /^under way/ && @{ $_->{shards} } == 3 } @objects;
is_deeply($under_way->{shards}, [ 1, 2, 4 ], 'the shards of a move');
like($under_way->{to_type}[0], qr/^snowid-move move --shard 1-2,4 $ab/, '... and what to type');
is(scalar(grep { ($_->{step} // '') eq 'copied' && $_->{shard} == 2 } @objects), 2, '... and where each shard is');
is(scalar(grep { ($_->{slot} // '') =~ /^snowid_move_/ } @objects), 2, '... and slots');
like((grep { ($_->{outlook} // '') eq 'closed by hand' } @objects)[-1]{home}, qr/host=/, '... and what was closed by hand');
{
	IPC::Run::run([ 'snowid-move', 'plan', '--json', '--shard', 3, '--from', $home{a}, '--to', $home{b} ], '>', \my $out, '2>', \my $err);
	my @found = map { decode_json($_) } split /\n/, $out;
	is(scalar(grep { ($_->{severity} // '') eq 'ok' } @found) > 10, 1, 'a plan as JSON') or diag "$out$err";
	is_deeply($found[-2]{batch}, [3], '... its batch');
	is_deeply($found[-1], { movable => 1, of => 1, failures => 0, warnings => $found[-1]{warnings} }, '... and its sum');
	IPC::Run::run([ 'snowid-move', 'finish', '--json', '--shard', 5, '--from', $home{a}, '--to', $home{b} ], '>', \$out, '2>', \$err);
	like($err, qr/the command finish has no option --json/, 'no other command has it');
}

# Of another server, while one is down.
$b->stop;
says(1, 'with one down', [ qr/^shards 1-2,4: under way, and not decided/m, qr/warning: target: .*failed/ ], '--from', $home{a});
$b->start;
moves_ok($a, $b, '1-2,4', ['-v'], 0, 'with times', qr/^\d\d:\d\d:\d\d\.\d{3} snowid-move: source: verified$/m);

# A version that is not known.
$b->safe_psql('postgres', q{COMMENT ON FUNCTION snowid.version() IS 'version of snowid in this database: 1.9'});
moves_ok($a, $b, 3, [], 1, 'another version', qr/target has snowid 1\.9, and this is snowid-move 1\.0\n.*ALTER EXTENSION/);
like(living($a), qr{^3$}, '... and nothing is done');
IPC::Run::run([ 'snowid-each', 'status', '--registry', $home{b} ], '>', \my $out, '2>', \my $err);
like($err, qr/registry has snowid 1\.9, and this is snowid-each 1\.0/, 'nor does the other program know it');

$_->stop for $a, $b, $c;
done_testing();
