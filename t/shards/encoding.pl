# A text key is in the same shard whatever the encoding of the database: it is
# the key's UTF-8 bytes that count.
use strict;
use warnings;

use Digest::MD5 qw(md5);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# U&'' is ASCII in this file and the same characters in each database.
my $shard = q(SELECT snowid.shard_of(U&'K\00FCche', 2000));
my %of;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

for my $encoding ('UTF8', 'LATIN1')
{
	$node->safe_psql('postgres', qq(
CREATE DATABASE "$encoding" TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'));
	$node->safe_psql($encoding, 'CREATE EXTENSION snowid');
	$of{$encoding} = $node->safe_psql($encoding, $shard);
}
is($of{UTF8}, unpack('Q>', md5("K\xC3\xBCche")) % 2000, 'the UTF-8 bytes count');
is($of{LATIN1}, $of{UTF8}, 'also in a database of another encoding');

$node->stop;
done_testing();
