# snowid-move diff: a shard in two places, as of a server that was recovered beside it, or of a
# copy.  What is only in one place, and what differs, is told by key, whatever the two
# sides' settings are; what is alike is never told; memory does not grow with the rows.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

# Sorted by ICU, texts come in another order than their bytes.
my $live = move_node('live', extra => [ '--locale-provider=icu', '--icu-locale=en' ]);
$live->start;
make_shard($live, 5, 'insta5');
$live->safe_psql('postgres', q{
CREATE TABLE insta5.kinds (a text, b int, f float8, d timestamptz, i interval, x bytea, m money, j jsonb, n numeric[],
	PRIMARY KEY (b, a));
INSERT INTO insta5.kinds SELECT chr(65 + i % 58) || '%s "' || i, i % 7, random() / 3, now() - i * interval '1 day', i * interval '30 hours',
	sha256(i::text::bytea), i * 1.25, jsonb_build_object('i', i), ARRAY[i / 3.0] FROM generate_series(1, 300) i;
CREATE TABLE insta5.no_key (t text);
INSERT INTO insta5.no_key SELECT NULLIF(i % 5, 0) FROM generate_series(1, 20) i;
INSERT INTO insta5.no_key VALUES ('a'), ('b'), ('B'), ('c');
CREATE TABLE insta5.empty ();
CREATE TABLE insta5.many (id text PRIMARY KEY);
INSERT INTO insta5.many SELECT repeat('x', 200) || i FROM generate_series(1, 300000) i;
});
$live->backup('then');

# As of that time, with settings of its own: of the database, and of the role.
my $then = PostgreSQL::Test::Cluster->new('then');
$then->init_from_backup($live, 'then');
$then->start;
$then->safe_psql('postgres', q{
ALTER DATABASE postgres SET datestyle = 'SQL, DMY';
ALTER DATABASE postgres SET timezone = 'Asia/Tokyo';
ALTER DATABASE postgres SET extra_float_digits = 0;
ALTER DATABASE postgres SET bytea_output = 'escape';
DO $$ BEGIN EXECUTE format('ALTER ROLE %I SET intervalstyle = sql_standard', current_user); END $$;
});

# Its exit status, and what it says of tables: 'only there, only here, differ', where that is not 0.
sub diff
{
	my ($from, $to, $expected, $name, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($code, $said) = snowid_move($from, $to, 5, 'diff', @options);

	is($code, $expected, "$name: exit status") or diag $said;
	my %found = map { m/^(\S+): (\d+) only at --from, (\d+) only at --to, (\d+) differ, of/ && "$2$3$4" ne '000' ? ($1 => "$2 $3 $4") : () } split /\n/, $said;
	return ($said, \%found);
}

my ($said, $found) = diff($then, $live, 0, 'the same, with other settings');
is_deeply($found, {}, 'nothing differs');
like($said, qr/^insta5\.kinds: .* of 300 rows$/m, 'all rows were read');
like($said, qr/^insta5\.likes: .* of 1 rows$/m, 'partitions as one table');
unlike($said, qr/likes_0/, 'and not by themselves');

# What holds all rows of the largest table needs more than 100 MB.
my ($out, $errors) = ('', '');
IPC::Run::run([ 'sh', '-c', 'ulimit -v 100000; exec "$@"', 'sh', move_command($then, $live, 5, 'diff') ], '>', \$out, '2>', \$errors);
like($out, qr/^insta5\.many: .* of 300000 rows$/m, 'memory does not grow with the rows') or diag $errors;

# A mistake, and what others wrote since.
$live->safe_psql('postgres', q{
DELETE FROM insta5.kinds WHERE b = 3 AND a = 'K%s "10';
UPDATE insta5.kinds SET f = f + 1e-15 WHERE b = 4 AND a = 'L%s "11';
INSERT INTO insta5.kinds (a, b) VALUES ('new', 1), ('', 1);
UPDATE insta5.no_key SET t = '' WHERE ctid = (SELECT min(ctid) FROM insta5.no_key WHERE t IS NULL);
INSERT INTO insta5.no_key VALUES ('1');
DELETE FROM insta5.no_key WHERE t = 'b';
ALTER TABLE insta5.users ADD later text DEFAULT 'x';
UPDATE insta5.users SET name = NULL WHERE name = 'user 7';
CREATE TABLE insta5.later (id bigint PRIMARY KEY); INSERT INTO insta5.later VALUES (1), (2);
});
($said, $found) = diff($then, $live, 1, 'a mistake');
is_deeply($found, { 'insta5.kinds' => '1 2 1', 'insta5.no_key' => '2 2 0', 'insta5.users' => '0 0 1', 'insta5.later' => '0 2 0' }, 'each is counted')
  or diag $said;
like($said, qr/^insta5\.users: .* of 200 rows, without columns that one side lacks: later$/m, 'and a column that one side lacks is named');
like($said, qr/^insta5\.later: .*, all of the table$/m, 'and a table');
unlike($said, qr/=\(/, 'keys only on request');
($said) = diff($then, $live, 1, 'with keys', '--keys');
like($said, qr/^insta5\.kinds: \(b, a\)=\(3,"K%s ""10"\) only at --from$/m, 'a key of what is gone');
like($said, qr/^insta5\.kinds: \(b, a\)=\(4,"L%s ""11"\) differ$/m, 'a key of what differs');
like($said, qr/^insta5\.no_key: \(t\)=\(""\) only at --to$/m, 'a row without a key: an empty text');
like($said, qr/^insta5\.no_key: \(t\)=\(\) only at --from$/m, '... is not NULL');
is(() = ($said =~ /=\(/g), 8 + 3, 'as many as were counted') or diag $said;

# What others have called so, or written, obeys nobody's terminal, and begins no line.
$live->safe_psql('postgres', qq{CREATE TABLE insta5."\x1b[2J" (t text PRIMARY KEY); INSERT INTO insta5."\x1b[2J" VALUES (E'\\x1b]0;x\\nall is well')});
($said) = diff($then, $live, 1, 'with control characters', '--keys');
like($said, qr/^insta5\."\?\[2J": \(t\)=.*\?\]0;x only at --to$/m, 'they are not shown');
unlike($said, qr/\x1b|^all is well/m, '... anywhere');
$live->safe_psql('postgres', qq{DROP TABLE insta5."\x1b[2J"});

# Beside a copy of another name, on one server.
$live->safe_psql('postgres', 'CREATE SCHEMA insta5_copy; CREATE TABLE insta5_copy.users AS SELECT * FROM insta5.users LIMIT 199');
(undef, $found) = diff($live, $live, 1, 'a copy', '--as', 'insta5_copy');
is($found->{'insta5.users'}, '1 0 0', 'by the names of a copy');

# Trouble has a code of its own.
diff($live, $live, 2, 'no such copy', '--as', 'insta5_gone');
is((snowid_move($live, $then, 9, 'diff'))[0], 2, 'no such shard');
like((snowid_move($live, $then, 5, 'diff', '--reverse'))[1], qr/the command diff has no option --reverse/, 'options of moves are refused');
is($live->safe_psql('postgres', q{SELECT count(*) FROM snowid.moves}), '0', 'and nothing was written');

$_->stop for $live, $then;
done_testing();
