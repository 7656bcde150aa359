# The promise under faults, briefly: torture/run with every fault once and
# more at random.  SNOWID_TORTURE_SECONDS asks for longer.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'the harness needs Linux' if $^O ne 'linux';

my $seconds = $ENV{SNOWID_TORTURE_SECONDS} // 12;
my ($output, $passed, $failed);

IPC::Run::run([ 'torture/run', '--seconds', $seconds, '--sessions', 4 ], '>&', \$output);
note($output);

($passed, $failed) = $output =~ /^(\d+) passed, (\d+) failed$/m;
is($failed, 0, 'torture: nothing failed') or diag($output);
ok($passed, 'torture: something was checked');

done_testing();
