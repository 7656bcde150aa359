# Sessions of the portable edition wait for each other, and no longer, as those
# of the extension do: the isolation specs, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $top = "$FindBin::RealBin/../..";
chomp(my $pgxs = `pg_config --pgxs`);
my $runner = ($pgxs =~ s{/makefiles/[^/]*$}{}r) . '/test/isolation/pg_isolation_regress';
plan skip_all => 'pg_isolation_regress is not installed' unless -x $runner;

# A snapshot from before a fence meets another error there, so not fence_waits.
my @specs = qw(order lock advance set_default safe_upper create_partition);
my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('isolation');
$node->start;
portable_database($node, 'isolation');

# It is installed once: its script has braces, which end a block of a spec.
mkdir "$dir/$_" or die "$dir/$_: $!" for qw(specs expected);
for my $spec (@specs)
{
	append_to_file("$dir/specs/$spec.spec",
		slurp_file("$top/specs/$spec.spec") =~ s/\b(CREATE|DROP) EXTENSION snowid;/RESET ALL;/gr);
	append_to_file("$dir/expected/$spec.out", slurp_file("$top/expected/$spec.out"));
}
$node->command_ok([ $runner, '--use-existing', "--inputdir=$dir", "--outputdir=$dir", '--dbname=isolation', '--bindir=', @specs ],
	'the specs print the same')
  or diag -e "$dir/regression.diffs" ? slurp_file("$dir/regression.diffs") : 'no differences';

$node->stop;
done_testing();
