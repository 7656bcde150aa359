# The manual page of each program and its --help tell of the same commands,
# options, defaults and exit statuses.
use strict;
use warnings;

use File::Basename;
use PostgreSQL::Test::Utils;
use Test::More;

foreach my $program ('snowid-each', 'snowid-fleet', 'snowid-move')
{
	my $page = slurp_file(dirname(__FILE__) . "/../../doc/$program.1");
	my ($help) = run_command([ $program, '--help' ]);

	# An option is its short and long names; with them, its default if it has one.
	my %of_help;
	while ($help =~ /^ +((?:-\S, )? *--\S+)\s(.*?)(?=^ +(?:-\S, +)?--|^\n)/gms)
	{
		my ($names, $text) = ($1, $2);
		my ($default) = $text =~ /\(default: (\S+)\)/;
		$of_help{ join ' ', $names =~ /(-[^\s=,]+)/g } = $default // '';
	}

	my %of_page;
	while ($page =~ /^\.It (Fl .*?)\n(.*?)(?=^\.(?:It|El))/gms)
	{
		my ($names, $text) = ($1, $2);
		my ($default) = $text =~ /^The default is (\S+)\.$/m;
		$names =~ s/\\&//g;
		$of_page{ join ' ', map { "-$_" } $names =~ /\bFl (\S+)/g } = $default // '';
	}

	ok(keys %of_help > 10, "$program: there are options");
	is_deeply(\%of_page, \%of_help, "$program: options and defaults");

	my ($commands) = $help =~ /^Commands:\n(.*?)\n\n/ms;
	is_deeply([ sort $page =~ /^\.It Cm (\S+)$/mg ], [ sort $commands =~ /^  (\S+) /mg ], "$program: commands");

	# Those are more than "The default is" says.
	my ($most) = $program eq 'snowid-move' && slurp_file(dirname(__FILE__) . '/../../bin/move/stages.h') =~ /^#define BATCH_MAX\s+(\d+)/m;
	like($page, qr/^\.It Fl -batch .*\n.*\nAt most $most,/m, 'the largest batch') if $most;

	my ($statuses) = $help =~ /^Exit status: (.*)/ms;
	is_deeply([ $page =~ /^\.It (\d)$/mg ], [ $statuses =~ /\b(\d) (?=[a-z])/g ], "$program: exit statuses");
}

done_testing();
