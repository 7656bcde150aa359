# What doc/working-with-ids.md says of ids outside the database, in Node: a
# number in JSON loses digits, a text does not; and the public id under a key is
# what any program makes of id and key.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'package nodejs is not installed'
  unless grep { -x "$_/node" } split /:/, $ENV{PATH};

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
my $id = '3800086217995850759';
my $key = '00112233445566778899aabbccddeeff0123456789abcdef';
$node->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE EXTENSION pgcrypto');

my $number = $node->safe_psql('postgres', "SELECT jsonb_build_object('id', $id)");
my $text = $node->safe_psql('postgres', "SELECT jsonb_build_object('id', '$id'::text)");
is(javascript("JSON.parse('$number').id"), '3800086217995851000', 'a number loses digits');
is(javascript("JSON.parse('$text').id"), $id, 'a text does not');

my $hex = javascript(qq{(() => {
	const cipher = require('crypto').createCipheriv('des-ede3-ecb', Buffer.from('$key', 'hex'), null);
	const block = Buffer.alloc(8);
	cipher.setAutoPadding(false);
	block.writeBigInt64BE(${id}n);
	return Buffer.concat([cipher.update(block), cipher.final()]).toString('hex');
})()});
is($node->safe_psql('postgres', qq{
SELECT encode(encrypt(int8send($id), '\\x$key', '3des-ecb/pad:none'), 'hex')}),
	$hex, 'Node and pgcrypto make the same public id');

done_testing();

sub javascript
{
	my ($expression) = @_;
	my ($stdout, $stderr) = run_command([ 'node', '-e', "console.log($expression)" ]);
	diag($stderr) if $stderr;
	return $stdout;
}
