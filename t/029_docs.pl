# Runs the SQL of the documentation: every ```sql block of README.md and
# doc/*.md, in order, each file in a fresh database, which has the extension
# unless the file creates it.
#
# A ```text block that follows is what psql -q prints for it, character by
# character but for spaces at the end of lines.  A comment before a block
# changes that:
#
#	<!-- output varies -->	digits may be others, and columns wider
#	<!-- not run -->		an SQL block that needs what the test has not
#
# A block without expected output must not fail.
use strict;
use warnings;

use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = dirname(__FILE__) . '/..';
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "wal_level = logical\ntimezone = 'UTC'");
$node->start;

for my $file ("$top/README.md", sort glob("$top/doc/*.md"))
{
	my @blocks = blocks_of(slurp_file($file));
	my $name = basename($file, '.md');
	next unless @blocks;

	# As one session, with a line after each block to tell the outputs apart.
	my $mark = '--- end of block ---';
	my $script = "\\set SHOW_CONTEXT never\n" . join('', map { "$_->{sql}\n\\echo $mark\n" } @blocks);
	$node->safe_psql('postgres', qq(CREATE DATABASE "$name"));
	$node->safe_psql($name, 'CREATE EXTENSION snowid')
	  unless grep { $_->{sql} =~ /CREATE EXTENSION snowid/ } @blocks;
	my $all = '';
	IPC::Run::run([ 'psql', '-Xq', '-f', '-', '-d', $node->connstr($name) ], '<', \$script, '>', \$all, '2>&1');
	my @outputs = split /^\Q$mark\E\n/m, $all, -1;

	for my $block (@blocks)
	{
		my $where = basename($file) . ":$block->{line}";
		my $output = tidy(shift(@outputs) // 'psql ended');
		if (!defined $block->{expected})
		{
			unlike($output, qr/^(ERROR|FATAL|psql ended)/m, "$where runs") or diag($output);
			next;
		}
		my $expected = tidy($block->{expected});
		($output, $expected) = map { vague($_) } ($output, $expected) if $block->{varies};
		is($output, $expected, "$where prints what it says");
	}
}

$node->stop;
done_testing();

# The SQL blocks of a file, each with the output that follows it.
sub blocks_of
{
	my ($text) = @_;
	my (@blocks, $last);
	my $line = 1;
	while ($text =~ /\G(.*?)^```(\w*)\n(.*?)^```\n/gms)
	{
		my ($between, $language, $body) = ($1, $2, $3);
		$line += ($between =~ tr/\n//) + 1;
		if ($language eq 'sql')
		{
			$last = undef;
			if ($between !~ /<!-- not run -->\s*\z/)
			{
				$last = { sql => $body, line => $line };
				push @blocks, $last;
			}
		}
		elsif ($language eq 'text' && $last && $between =~ /\A\s*(<!-- output varies -->\s*)?\z/)
		{
			$last->{expected} = $body;
			$last->{varies} = defined $1;
			$last = undef;
		}
		$line += ($body =~ tr/\n//) + 1;
	}
	return @blocks;
}

sub tidy
{
	my ($text) = @_;
	$text =~ s/^psql:<stdin>:\d+: //mg;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/\A\n+|\n+\z//g;
	return $text;
}

sub vague
{
	my ($text) = @_;
	$text =~ s/\d+/0/g;
	$text =~ s/0(\.0)?/0/g;
	$text =~ s/-{2,}/-/g;
	$text =~ s/ {2,}/ /g;
	$text =~ s/^ //mg;
	return $text;
}
