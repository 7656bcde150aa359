# Runs the documentation: every ```sql and ```sh block of README.md,
# CONTRIBUTING.md and doc/*.md, in order, each file with a fresh database,
# which has the extension unless the file creates it.
#
# A file's SQL is one psql session.  Its shell blocks run with sh -eu in an
# empty directory of the file's own, and reach the same database by PGHOST,
# PGPORT and PGDATABASE; $OLD is its connection string, $NEW that of an empty
# database on a second server, and $BACKUP a directory into whose wal/ the
# first server archives.  Servers that they start there are stopped.
#
# A ```text block that follows is what psql -q or the shell prints for it,
# character by character but for spaces at the end of lines.  A comment before
# a block changes that:
#
#	<!-- output varies -->		digits may be others, and columns wider
#	<!-- not run: reason -->	a block that the test cannot run, and why
#
# A block without expected output must not fail.  So that nothing escapes, a
# block is fenced and names its language.
#
# SNOWID_DOCS="doc/shards.md README.md" asks for these pages alone.
use strict;
use warnings;

use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = dirname(__FILE__) . '/../..';
my $backup = PostgreSQL::Test::Utils::tempdir();
mkdir "$backup/wal";

my $node = PostgreSQL::Test::Cluster->new('main');
my $second = PostgreSQL::Test::Cluster->new('second');
$_->init(allows_streaming => 'logical') for $node, $second;
$_->append_conf('postgresql.conf', "timezone = 'UTC'") for $node, $second;
$node->append_conf('postgresql.conf',
	"archive_mode = on\narchive_command = 'cp \"%p\" \"$backup/wal/%f\"'");
$node->start;

my @files = ("$top/README.md", "$top/CONTRIBUTING.md", sort glob("$top/doc/*.md"));
@files = map { "$top/$_" } split / /, $ENV{SNOWID_DOCS} if $ENV{SNOWID_DOCS};
for my $file (@files)
{
	my $text = slurp_file($file);
	my $where = basename($file);
	is_deeply([ unmarked_blocks($text) ], [], "$where: every block names its language, or why it is not run");

	my @blocks = blocks_of($text);
	my $name = lc basename($file, '.md');
	next unless @blocks;

	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my $uses_second = grep { $_->{code} =~ /\$NEW\b/ } @blocks;
	local %ENV = (%ENV,
		PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => $name,
		PSQLRC => '/dev/null', BACKUP => $backup,
		OLD => conninfo($node, $name), NEW => conninfo($second, $name));

	# As one session, with a line after each block to tell the outputs apart.
	my $mark = '--- end of block ---';
	my $script = "\\set SHOW_CONTEXT never\n";
	for my $block (@blocks)
	{
		if ($block->{language} eq 'sh')
		{
			my $file_to_run = "$dir/block$block->{line}";
			append_to_file($file_to_run, "cd '$dir'\n$block->{code}");
			$script .= qq(\\! timeout 180 sh -eu '$file_to_run' 2>&1 </dev/null || echo "exit status \$?"\n);
		}
		else
		{
			$script .= $block->{code};
		}
		# Await the next millisecond, as who types the next block does:
		# safe_upper_id() leaves out the ids of its own.
		$script .= "\n\\! at=\$(date +%s%3N); while [ \$(date +%s%3N) = \$at ]; do :; done\n\\echo $mark\n";
	}

	$node->safe_psql('postgres', qq(CREATE DATABASE "$name"));
	$node->safe_psql($name, 'CREATE EXTENSION snowid')
	  unless grep { $_->{language} eq 'sql' && $_->{code} =~ /CREATE EXTENSION snowid/ } @blocks;
	if ($uses_second)
	{
		$second->start;
		$second->safe_psql('postgres', qq(CREATE DATABASE "$name"));
	}
	my $all = '';
	IPC::Run::run([ 'psql', '-Xq', '-f', '-' ], '<', \$script, '>', \$all, '2>&1');
	my @outputs = split /^\Q$mark\E\n/m, $all, -1;

	for my $block (@blocks)
	{
		my $where = basename($file) . ":$block->{line}";
		my $output = tidy(shift(@outputs) // 'psql ended');
		my $status = $output =~ s/\n?^exit status (\d+)\z//m ? $1 : 0;
		my $expected = tidy($block->{expected} // '');

		if (!defined $block->{expected})
		{
			unlike($output, qr/^((pg_|psql: )?(ERROR|FATAL|error)|psql ended)/m, "$where runs") or diag($output);
		}
		else
		{
			($output, $expected) = map { vague($_) } ($output, $expected) if $block->{varies};
			is($output, $expected, "$where prints what it says");
		}
		is($status, 0, "$where succeeds") or diag($output)
		  if $block->{language} eq 'sh' && $expected !~ /error/i;
	}
	clean_up($dir);
	$second->stop if $uses_second;
}

# What users meet in schema snowid is what the reference has; all else is in
# snowid_internal.
my %headings = map { $_ => 1 } slurp_file("$top/doc/reference.md") =~ /^### (?:CALL |view |table )?(\w+)/mg;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
is( $node->safe_psql('postgres', q{
	SELECT proname FROM pg_proc WHERE pronamespace = 'snowid'::regnamespace
	UNION
	SELECT relname FROM pg_class WHERE relnamespace = 'snowid'::regnamespace AND relkind IN ('r', 'v')
	ORDER BY 1}),
	join("\n", sort keys %headings),
	'reference.md has each function, table and view, and no other');

$node->stop;
done_testing();

# The blocks of a file that are run, each with the output that follows it.
sub blocks_of
{
	my ($text) = @_;
	my (@blocks, $last);
	my $line = 1;
	while ($text =~ /\G(.*?)^```(\w*)\n(.*?)^```\n/gms)
	{
		my ($between, $language, $body) = ($1, $2, $3);
		$line += ($between =~ tr/\n//) + 1;
		if ($language eq 'sql' || $language eq 'sh')
		{
			$last = undef;
			if ($between !~ /<!-- not run: [^>]+ -->\s*\z/)
			{
				$last = { language => $language, code => $body, line => $line };
				push @blocks, $last;
			}
		}
		elsif ($language eq 'text' && $last
			&& $between =~ /\A\s*(?:<!-- output (varies) -->\s*)?\z/)
		{
			$last->{expected} = $body;
			$last->{varies} = defined $1;
			$last = undef;
		}
		$line += ($body =~ tr/\n//) + 1;
	}
	return @blocks;
}

# Lines at which a block begins that would silently not be run.
sub unmarked_blocks
{
	my ($text) = @_;
	my @found;
	my ($line, $fenced, $before) = (0, 0, '');
	for (split /\n/, $text)
	{
		$line++;
		if (/^\s*```(\w*)/)
		{
			push @found, "$line: $_" if !$fenced && $1 eq '';
			$fenced = !$fenced;
		}
		elsif (!$fenced && (/<!-- not run\s*-->/ || (/^(    |\t)\s*\S/ && $before eq '')))
		{
			push @found, "$line: $_";
		}
		$before = $_;
	}
	return @found;
}

# connstr() quotes the name, so that it fits into no SQL string.
sub conninfo
{
	my ($server, $dbname) = @_;
	return 'host=' . $server->host . ' port=' . $server->port . " dbname=$dbname";
}

# Remove what a file has left: servers in its directory, databases, roles.
sub clean_up
{
	my ($dir) = @_;

	for my $pid (glob("$dir/*/postmaster.pid"))
	{
		system_log('pg_ctl', '-D', dirname($pid), '-m', 'immediate', 'stop');
	}
	$node->safe_psql('postgres', $_) for split /\n/, $node->safe_psql('postgres', q{
SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database
WHERE NOT datistemplate AND datname <> 'postgres'
UNION ALL
SELECT format('DROP ROLE %I', rolname) FROM pg_roles WHERE oid >= 16384});
	return;
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
