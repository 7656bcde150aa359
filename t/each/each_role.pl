# A role that owns the shards, and is no superuser, can do all that snowid-each
# does, with the rights that doc/migrations.md names.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('main');
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CREATE ROLE maker LOGIN;
GRANT CREATE ON DATABASE postgres TO maker;
GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO maker;
GRANT pg_monitor TO maker});
$node->safe_psql('postgres', 'CALL snowid.create_shards(0, 2)', extra_params => [ '-U', 'maker' ]);

sub as_maker
{
	my ($expected, $like, @args) = @_;
	my ($code, $said) = snowid_each('--registry', $node->connstr('postgres') . ' user=maker', @args);

	ok($code == $expected && $said =~ $like, "@args") or diag "exit code $code, not $expected; said:\n$said";
	return;
}

as_maker(0, qr/3 shards done/, '--name', 'table', '--max-lag', '1MB', '--file',
	script_file('CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), n int)'));
as_maker(0, qr/3 shards done/, '--name', 'index', '--file',
	script_file("-- no transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS by_n ON photos (n)"));
as_maker(0, qr/shard 3 is there/, 'create', '--like', 2, '--shard', 3);
as_maker(0, qr/^index\n  done: 4 shards: 0-3\ntable\n  done: 4 shards: 0-3$/m, 'status');
as_maker(0, qr/^$/, 'diff');

# Code that a script runs can reset SET ROLE.  Connected as the owner, it stays the owner.
$node->safe_psql('postgres', q{
CREATE FUNCTION insta0.climb() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	SET ROLE NONE;
	ALTER ROLE maker SUPERUSER;
	RETURN NEW;
EXCEPTION WHEN insufficient_privilege THEN
	RAISE LOG 'climb stays %', session_user;
	RETURN NEW;
END $$;
CREATE TRIGGER climb BEFORE INSERT ON insta0.photos FOR EACH ROW EXECUTE FUNCTION insta0.climb()}, extra_params => [ '-U', 'maker' ]);
as_maker(0, qr/1 shards done/, '--name', 'row', '--shard', 0, '--file', script_file('INSERT INTO photos (n) VALUES (1)'));
like(slurp_file($node->logfile), qr/climb stays maker$/m, 'code of a trigger has run');
is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'maker'}), 'f', '... and has no other rights than the owner');
$node->safe_psql('postgres', 'DROP TRIGGER climb ON insta0.photos; DROP FUNCTION insta0.climb');

# Shards of others fail, and stay as they are.
$node->safe_psql('postgres', 'SELECT snowid.create_shard(4)');
as_maker(1, qr/4 shards done.*permission denied for schema insta4: 1 shard: 4/s, '--name', 'other', '--file',
	script_file('ALTER TABLE photos ADD COLUMN m int'));
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relnamespace = 'insta4'::regnamespace AND relkind = 'r'}), 0,
	'nothing is left in another role\'s shard');

done_testing();
