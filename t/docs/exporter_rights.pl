# doc/monitoring.md gives the exporter's role what the queries of examples/monitoring need,
# and no more: without any one of its GRANTs an answer is another one, and with all of them
# they are those of a superuser.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $top = "$FindBin::RealBin/../..";
my ($block) = slurp_file("$top/doc/monitoring.md") =~ /```sql\n(CREATE ROLE prometheus .*?)```/s or die 'no block makes the role';
my @statements = grep { /\S/ } split /;[^\n]*\n/, $block;
my $make = shift @statements;
my @queries = slurp_file("$top/examples/monitoring/queries.yaml") =~ /^  query: \|\n((?:    .*\n)+)/mg;
cmp_ok(scalar(@queries), '>=', 6, 'there are queries');

my $node = new_node('main');
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CALL snowid.create_shards(0, 3, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id()); INSERT INTO photos DEFAULT VALUES');
SELECT snowid.advance('insta3.id_seq', snowid.make_id(now() + interval '1 hour', 3, 0));
INSERT INTO snowid.moves (shard, schema, role, step, peer, details) VALUES (2, 'insta2', 'source', 'copied', 'host=b', '{"move_id": "x"}'),
	(1, 'insta1', 'source', 'closed', NULL, '{}')});

# All answers, but what time changes, with these GRANTs.
sub answers
{
	my ($user, @grants) = @_;
	my $answers = '';

	$node->safe_psql('postgres', join ';', 'DROP OWNED BY prometheus', @grants) if $user eq 'prometheus';
	for my $query (@queries)
	{
		my (undef, $out, $err) = $node->psql('postgres', $query, extra_params => [ '-U', $user ]);
		$answers .= $out =~ s/\d+\.\d+/n/gr . "\n" . $err . "\n";
	}
	return $answers;
}

$node->safe_psql('postgres', $make);
my $right = answers($node->safe_psql('postgres', 'SELECT current_user'));
is(answers('prometheus', @statements), $right, 'the role sees what a superuser sees');
is($node->safe_psql('postgres', q{SELECT has_column_privilege('prometheus', 'snowid.moves', 'details', 'SELECT')}), 'f', 'but not all that a move keeps');
for my $i (0 .. $#statements)
{
	isnt(answers('prometheus', @statements[ grep { $_ != $i } 0 .. $#statements ]), $right, 'it needs: ' . $statements[$i] =~ s/\A(--.*\n)+//r);
}
$node->stop;
done_testing();
