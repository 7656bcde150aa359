# How a run ends, whatever has happened: its last steps, its checks, and its verdict.
package Torture::Report;

use strict;
use warnings;

use Exporter 'import';
use Torture;

our @EXPORT = qw(count_line check server_failures run_to_the_end);

my ($passed, $failed) = (0, 0);

sub count_line
{
	my ($what, $n) = @_;
	printf $terminal "%-30s %12s\n", $what =~ s/_/ /gr, $n // 0;
	return;
}

sub check
{
	my ($what, $ok) = @_;
	$ok ? $passed++ : $failed++;
	printf $terminal "%-6s %s\n", $ok ? 'ok' : 'FAILED', $what;
	return;
}

# Lines of servers' logs that no fault of ours explains.
sub server_failures
{
	return grep { /PANIC: |TRAP: |terminated by signal (?!9:)/ } map { split /\n/, slurp_file($_) } @_;
}

# Do the faults; then, also after an error or when interrupted, let all come to an end,
# report, which returns lines of what went wrong, and leave nothing running.  Returns the
# exit status.
sub run_to_the_end
{
	my (%step) = @_;
	local $SIG{INT} = local $SIG{TERM} = sub { die "interrupted\n" };

	for my $step (qw(run end))
	{
		eval { $step{$step}->(); 1 } or push @failures, $@;
	}
	eval {
		my @details = $step{report}->();

		check("the harness worked: $_", 0) for @failures;

		# Last, since of a long output only the end may be kept.
		print $terminal "\n", map { "$_\n" } @details if $failed;
		print $terminal "$passed passed, $failed failed\n";
		1;
	} or print $terminal "$@0 passed, ", ++$failed, " failed\n";
	$step{leave}->();
	if ($failed || $option{keep})
	{
		print $terminal "kept: $base\n";
	}
	else
	{
		chdir '/';
		rmtree($base);
	}
	return $failed ? 1 : 0;
}

1;
