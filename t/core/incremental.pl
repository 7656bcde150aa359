# An incremental backup has the pages that the log names since the backup before.
# Most ids are not logged, so the first change of a page after each checkpoint is:
# without that, a restore would have an old page.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use Test::More;

my $node = new_node('incremental', allows_streaming => 1);
plan skip_all => 'incremental backups come with PostgreSQL 17'
  if $node->pg_version < 17;

$node->append_conf('postgresql.conf', 'summarize_wal = on');
start_with_clock($node, '2026-01-01 12:00:00');
sub state_of { return $_[0]->safe_psql('postgres', 'SELECT last_value, is_called FROM seldom'); }
my $take = q{SELECT snowid.next_id(5, 'seldom')};

$node->safe_psql('postgres', "CREATE EXTENSION snowid; CREATE SEQUENCE seldom; $take; $take");
$node->backup('full');
my $full = state_of($node);
$node->safe_psql('postgres', "$take; $take");
my $seen = $node->safe_psql('postgres', $take);
my $state = state_of($node);
isnt($state, $full, 'the sequence has moved since the full backup');
$node->command_ok([
		'pg_basebackup', '-D', $node->backup_dir . '/more', '-d', $node->connstr('postgres'),
		'--no-sync', '-cfast', '--incremental', $node->backup_dir . '/full/backup_manifest' ],
	'an incremental backup');
$node->stop;

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($node, 'more', combine_with_prior => ['full']);
start_with_clock($restored, '2026-01-01 11:00:00');
is(state_of($restored), $state, 'has the page as it was');
cmp_ok($restored->safe_psql('postgres', $take), '>', $seen, 'and no id comes again');

$restored->stop;
done_testing();
