# An error can come at each call of the server: a cancel, a timeout, an out-of-memory.
# Wherever it comes, no pin, lock or state is left that later calls of this or of
# another session would trust.  The library is built with inject.c, and each
# of its functions is called with an error at its first call, its second, and so on
# until it passes: in a session's first call and in later ones, inside and outside
# of savepoints.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('main');
$node->append_conf('postgresql.conf', 'fsync = off');
$node->start;
my $library = injecting_library($node->config_data('--pkglibdir'), $node->config_data('--includedir-server'));
my ($status, undef, $stderr) = $node->psql('postgres', slurp_file("$FindBin::RealBin/errors.sql"),
	extra_params => [ '-q', '-v', "library=$library" ], on_error_stop => 1);
is($status, 0, 'functions that have errors injected') or diag $stderr;

is( $node->safe_psql('postgres', q{
SELECT p.prosrc FROM pg_proc AS p WHERE p.probin LIKE '%/snowid%' AND p.proname <> 'inject' AND p.prorettype <> 'trigger'::regtype
	AND NOT EXISTS (SELECT FROM cases AS c WHERE c.call LIKE '%' || p.proname || '(%')}),
	'', 'each function of the library is called');

foreach my $is_cancel (0, 1)
{
	my ($status, $stdout, $stderr) = $node->psql('postgres', qq{
SET client_min_messages = warning;
SELECT connect('o');
SELECT call, before, is_first, is_sub, try(call, before, is_first, is_sub, ${is_cancel}::boolean)
FROM cases, unnest('{t,f}'::boolean[]) AS is_first, unnest('{t,f}'::boolean[]) AS is_sub
WHERE is_first <= NOT is_short});
	note $stdout;
	is($status, 0, 'errors at each call') or diag $stderr;
	is($stderr, '', $is_cancel ? 'cancels leave nothing behind' : 'nor do errors of memory');
}
is(join("\n", grep { /fault:|leak|PANIC|TRAP/ } split /\n/, slurp_file($node->logfile)), '', 'no pin is left');

$node->stop;
done_testing();

# Build the library of the tree so that each function that it takes from the server is
# a macro first, but the C library's, and what raises errors itself.  A lookup in a
# table can't fail; callbacks of the caches make it, where an error would break the server.
sub injecting_library
{
	my ($libdir, $include) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $top = "$FindBin::RealBin/../..";
	my %headers = map { $_ => 1 } map { slurp_file($_) =~ /^#include "(\w+\/[\w\/]+\.h|\w+\.h)"/mg } glob "$top/src/*.[ch]";
	my @symbols = grep { !/^_|^err/ } `nm -u '$libdir/snowid.so'` =~ /U (\w+)$/mg;

	delete @headers{ map { s/.*\///r } glob("$top/src/*.h") };
	delete @headers{ slurp_file("$top/src/compat.h") =~ /"(.*)"/g };
	append_to_file("$dir/calls.h", join '', map { "#include \"$_\"\n" } 'postgres.h', 'compat.h', sort keys %headers);
	append_to_file("$dir/calls.h", join '', map { "#define $_(...) (inject(), $_(__VA_ARGS__))\n" } @symbols);
	append_to_file("$dir/calls.h", <<'C');
extern void inject(void);
#undef CHECK_FOR_INTERRUPTS
#define CHECK_FOR_INTERRUPTS() (inject(), InterruptPending ? ProcessInterrupts() : (void) 0)
#undef hash_search
#define hash_search(table, key, action, found) \
	((action) == HASH_ENTER ? inject() : (void) 0, hash_search(table, key, action, found))
C
	system_or_bail('cc', '-shared', '-fPIC', '-O0', '-w', '-o', "$dir/snowid.so", "-I$top/src", "-I$include",
		'-include', "$dir/calls.h", glob("$top/src/*.c"), "$FindBin::RealBin/inject.c");
	return "$dir/snowid";
}
