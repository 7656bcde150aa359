# A session's first call that is cancelled half-way leaves nothing behind that a
# later one trusts.  The session looks up what its callbacks need, and waits there for
# a lock on pg_class, as beside VACUUM FULL; a statement_timeout ends that.  If it
# went on without callbacks, it would keep a page that the buffer no longer has.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use Test::More;

my $node = new_node('main');
$node->append_conf('postgresql.conf', "shared_buffers = 128kB\nenable_seqscan = off");
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CREATE SEQUENCE s;
SELECT snowid.next_id(5, 's');
CREATE TABLE large AS SELECT g AS id, repeat('x', 7000) AS filler FROM generate_series(1, 60) AS g;
CREATE UNIQUE INDEX ON large (id)});
my $oid = $node->safe_psql('postgres', q{SELECT 's'::regclass::oid});

# By number: to find the name would fill the cache.
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe("PREPARE take AS SELECT snowid.next_id(5, ${oid}::oid::regclass) FROM generate_series(1, 1000)");
my $other = $node->background_psql('postgres');
$other->query_safe('BEGIN; LOCK TABLE pg_class');
$session->query("SET statement_timeout = '100ms'; EXECUTE take; RESET statement_timeout");
like($session->{stderr}, qr/canceling statement due to statement timeout/, 'the first call is cancelled');
$session->{stderr} = '';
$other->query_safe('ROLLBACK');

my @ids;
for (1 .. 3)
{
	push @ids, split /\n/, $session->query('EXECUTE take');
	# The page of the sequence leaves its buffer.
	$other->query_safe('SELECT count(filler) FROM large WHERE id > 0');
	push @ids, split /\n/, $other->query_safe(q{SELECT snowid.next_id(5, 's') FROM generate_series(1, 1000)});
}
is($session->{stderr}, '', 'later ones keep nothing');
is(scalar(grep { $ids[$_] <= $ids[ $_ - 1 ] } 1 .. $#ids), 0, 'ids of both sessions rise');
is($node->safe_psql('postgres', 'SELECT last_value FROM s') >> 10, $ids[-1] >> 23, 'the page has the last one');

$_->quit for $session, $other;
$node->stop;
done_testing();
