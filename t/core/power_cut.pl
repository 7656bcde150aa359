# A power cut loses what was written and not flushed, which the death of a
# process does not: a commit must wait until its reservation is flushed, not
# only written.  Core's nextval does not wait, and shows that the disk of
# torture/disk.c does lose it; what else that disk does is tested first.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $disk = PostgreSQL::Test::Utils::tempdir() . '/disk';

# Run Perl statements with a new file $f open, cut the power, and return what is
# in the file: as "100a 3b" if that is a hundred letters a and three b.
sub file_after
{
	my ($statements, $how, $seed) = @_;

	system_or_bail('rm', '-rf', $disk, "$disk.unflushed");
	mkdir $disk or die "$disk: $!";
	{
		local $ENV{LD_PRELOAD} = disk_library();
		local $ENV{TORTURE_DISK} = $disk;
		system_or_bail($^X, '-MIO::Handle', '-e', qq{
open(\$f, '+>', '$disk/new') or die; $statements; rename('$disk/new', '$disk/file') or die});
	}
	lose_unflushed($how, $disk, $seed // 0);

	my $content = slurp_file("$disk/file");
	my @runs;
	push @runs, length($1) . ($2 eq "\0" ? 'zero' : $2)
	  while $content =~ /((.)\2*)/sg;
	return "@runs";
}

is(file_after(q{syswrite $f, 'a' x 700}, 'all'), '', 'what is not flushed is lost');
is(file_after(q{syswrite $f, 'a' x 700; $f->sync}, 'all'), '700a', 'what is flushed stays');
is(file_after(q{syswrite $f, 'a' x 700}, 'none'), '700a', 'or if there was time');

my $overwrite = q{
syswrite $f, 'a' x 3000; $f->sync;
sysseek $f, 1000, 0; syswrite $f, 'b' x 1000;
sysseek $f, 1500, 0; syswrite $f, 'c' x 2500;
truncate $f, 2000};
is(file_after($overwrite, 'all'), '3000a', 'lost writes show what was there before');
is(file_after($overwrite, 'none'), '1000a 500b 500c', 'kept ones do not');
is(file_after("$overwrite; \$f->sync", 'all'), '1000a 500b 500c',
	'the last flush counts');
is(file_after("$overwrite; fork or do { open(\$g, '<', '$disk/new'); \$g->sync; exit }; wait", 'all'),
	'1000a 500b 500c', 'a flush by any process counts');
is(file_after(q{syswrite $f, 'a' x 512; $f->sync; syswrite $f, 'b' x 512}, 'all'),
	'512a', 'and for what was written before it');

# Sectors of the old and of the new contents, none of both.
my %torn;
$torn{ file_after(q{syswrite $f, 'a' x 1536; $f->sync; sysseek $f, 0, 0;
	syswrite $f, 'b' x 1536}, 'torn', $_) } = 1 for 1 .. 30;
is_deeply([ grep { !/^(?:(?:512|1024|1536)[ab] ?)+$/ } keys %torn ],
	[], 'a write is torn between sectors only');
cmp_ok(keys %torn, '>', 2, 'and is torn') or diag(join "\n", keys %torn);

my $node = new_node('power_cut');
$node->append_conf('postgresql.conf', q{
fsync = on
wal_buffers = 64kB
});
$node->{lossy_disk} = 1;
start_with_clock($node, '2026-01-01 12:00:00');
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');

# Let a transaction that stays open make a reservation, and then log so much
# that this is written, while nobody flushes it.  Return what another session
# shows that uses the reservation and commits.
sub show_reserved
{
	my ($seq, $take) = @_;

	$node->safe_psql('postgres', "CREATE SEQUENCE $seq");
	my $reader = $node->background_psql('postgres');
	$reader->query_safe($take) if $take =~ /snowid/;
	stop_walwriter($node);
	set_clock($node, '2026-01-01 12:00:10');

	my $holder = $node->background_psql('postgres');
	$holder->query_safe("BEGIN; $take");
	my $lsn = $node->lsn('insert');
	$holder->query_safe(q{
SELECT pg_logical_emit_message(true, '', repeat('x', 200000))});
	is($node->safe_psql('postgres', qq{
SELECT pg_current_wal_lsn() >= '$lsn', pg_current_wal_flush_lsn() >= '$lsn'}),
		't|f', "$seq: the reservation is written, not flushed");
	return $reader->query_safe($take);
}

sub next_with_clock_back
{
	my ($take) = @_;

	start_with_clock($node, '2026-01-01 11:00:00');
	my $next = $node->safe_psql('postgres', $take);
	set_clock($node, '2026-01-01 12:00:00');
	return $next;
}

my $take = q{SELECT nextval('core_killed')};
my $seen = show_reserved('core_killed', $take);
crash($node);
cmp_ok(next_with_clock_back($take), '>', $seen,
	'the death of all processes loses nothing that is written');

$take = q{SELECT nextval('core_cut')};
$seen = show_reserved('core_cut', $take);
power_cut($node);
cmp_ok(next_with_clock_back($take), '<=', $seen,
	'a power cut does: a number that nextval has shown comes again');

$take = q{SELECT snowid.next_id(5, 'ours')};
$seen = show_reserved('ours', $take);
power_cut($node);
cmp_ok(next_with_clock_back($take), '>', $seen,
	'who uses a reservation has waited for its flush');

$node->stop;
done_testing();
