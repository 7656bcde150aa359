# Backups that pgBackRest and Barman restore on a server whose clock is ten minutes
# behind: ids go on above all that the archive has, and of a point in time above those before it.
# doc/operations.md has the table.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use File::Path qw(rmtree);
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils qw(append_to_file system_log);
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'neither pgBackRest nor Barman here' unless has_program('pgbackrest') || has_program('barman');

my $dir = PostgreSQL::Test::Utils::tempdir();

# The last id that was given.
my $last = 0;

sub has_program
{
	my ($program) = @_;
	return scalar grep { -x "$_/$program" } split /:/, $ENV{PATH};
}

sub run_ok
{
	my (@command) = @_;
	system_log(@command) == 0 or die "@command failed\n";
	return;
}

sub archiving_node
{
	my ($name, $archiving) = @_;
	my $node = new_node($name, allows_streaming => 1);

	$node->append_conf('postgresql.conf', $archiving);
	$last = 0;
	start_with_clock($node, '+0');
	$node->safe_psql('postgres', q{CREATE EXTENSION snowid; CREATE SEQUENCE s;
		CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 's'))});
	return $node;
}

# Give ids, a hundred rows of them, and wait until the log is in the archive.
sub give_ids
{
	my ($node, $is_archived) = @_;

	$node->safe_psql('postgres', 'INSERT INTO t SELECT FROM generate_series(1, 100)');
	my $max = $node->safe_psql('postgres', q{SELECT snowid.next_id(5, 's')});
	$last = $max if $max > $last;
	my $segment = $node->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
	for (my $i = 0; !$is_archived->($segment); $i++)
	{
		die "$segment does not come into the archive" if $i > 1200;
		usleep(100_000);
	}
	return $max;
}

# Start what was restored, ten minutes ago.
sub start_behind
{
	my ($node, $name) = @_;

	start_with_clock($node, '-600');
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die "$name does not end its recovery";
	return $node->safe_psql('postgres', q{SELECT snowid.next_id(5, 's')});
}

sub above_all_ok
{
	my ($node, $what) = @_;
	my $id = start_behind($node, $what);

	cmp_ok($id, '>', $last, "$what: ids go on above the last");
	$last = $id;
	set_clock($node, '+0');
	return;
}

# Of a point in time, ids go on above those before it; above all, after advance().
sub point_in_time_ok
{
	my ($node, $before, $what) = @_;
	my $id = start_behind($node, $what);

	cmp_ok($id, '>', $before, "$what: ids go on above that point");
	cmp_ok($id, '<', $last, '... but not above those after it, so far behind is the clock');
	$node->safe_psql('postgres', "SELECT snowid.advance('s', $last)");
	cmp_ok($node->safe_psql('postgres', q{SELECT snowid.next_id(5, 's')}), '>', $last, '... which advance() sees to');
	set_clock($node, '+0');
	return;
}

# What is not given after the point, is given so long after it that no reservation of before covers it.
sub give_ids_much_later
{
	my ($node, $is_archived) = @_;

	set_clock($node, '+60');
	give_ids($node, $is_archived);
	return;
}

SKIP:
{
	skip 'no pgBackRest here', 1 unless has_program('pgbackrest');
	my @command = ('pgbackrest', "--config=$dir/pgbackrest.conf", '--stanza=main');
	my $node = archiving_node('pgbackrest', "archive_mode = on\narchive_command = '@command archive-push %p'\n");
	my $is_archived = sub {
		return $node->safe_psql('postgres', 'SELECT last_archived_wal FROM pg_stat_archiver') ge $_[0];
	};
	my $restore = sub {
		my (@options) = @_;
		crash($node);
		rmtree($node->data_dir, { keep_root => 1 }) unless grep { $_ eq '--delta' } @options;
		run_ok(@command, 'restore', @options);
	};

	mkdir "$dir/repo";
	append_to_file("$dir/pgbackrest.conf", "[global]\nrepo1-path=$dir/repo\nlog-path=$dir\nlock-path=$dir\nspool-path=$dir\n"
		  . "start-fast=y\n[main]\npg1-path=" . $node->data_dir . "\npg1-port=" . $node->port . "\npg1-socket-path=" . $node->host . "\n");
	my $output;
	IPC::Run::run([ @command, 'stanza-create' ], '>&', \$output)
	  or skip "this pgBackRest does not know this server: $output", 1;

	give_ids($node, $is_archived);
	run_ok(@command, 'backup', '--type=full');
	give_ids($node, $is_archived);
	$restore->();
	above_all_ok($node, 'pgBackRest, full');

	run_ok(@command, 'backup', '--type=full');
	give_ids($node, $is_archived);
	run_ok(@command, 'backup', '--type=incr');
	give_ids($node, $is_archived);
	$restore->();
	above_all_ok($node, 'pgBackRest, incremental');

	run_ok(@command, 'backup', '--type=incr');
	give_ids($node, $is_archived);
	$restore->('--delta');
	above_all_ok($node, 'pgBackRest, --delta');

	run_ok(@command, 'backup', '--type=full');
	my $before = give_ids($node, $is_archived);
	$node->safe_psql('postgres', q{SELECT pg_create_restore_point('here')});
	give_ids_much_later($node, $is_archived);
	$restore->('--delta', '--type=name', '--target=here', '--target-action=promote');
	point_in_time_ok($node, $before, 'pgBackRest, point in time');
	$node->stop;
}

SKIP:
{
	skip 'no Barman here', 1 unless has_program('barman');
	my $user = getpwuid($<);
	my @command = ('barman', '-c', "$dir/barman.conf");
	my $archiving = "archive_mode = on\narchive_command = 'cp %p $dir/barman/main/incoming/%f'\n";
	my $node = archiving_node('barman', $archiving);
	my $is_archived = sub {
		IPC::Run::run([ @command, 'archive-wal', 'main' ], '>&', \my $output);
		return scalar grep { -e } glob "$dir/barman/main/wals/*/$_[0]";
	};
	my $connstr = $node->connstr('postgres') =~ s/'//gr . " user=$user";
	my $restore = sub {
		my (@options) = @_;
		crash($node);
		rmtree($node->data_dir);
		run_ok(@command, 'recover', @options, 'main', 'latest', $node->data_dir);
		chmod 0700, $node->data_dir;

		# Barman has turned it off.
		$node->append_conf('postgresql.conf', $archiving);
	};

	mkdir "$dir/barman";
	append_to_file("$dir/barman.conf", "[barman]\nbarman_user = $user\nbarman_home = $dir/barman\nlog_file = $dir/barman.log\n"
		  . "[main]\ndescription = main\nconninfo = $connstr\nstreaming_conninfo = $connstr\nbackup_method = postgres\n"
		  . "archiver = on\npath_prefix = $ENV{PATH}\n");
	IPC::Run::run([ @command, 'check', 'main' ], '>&', \my $output);

	$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
	give_ids($node, $is_archived);
	run_ok(@command, 'backup', '--immediate-checkpoint', 'main');
	give_ids($node, $is_archived);
	$restore->();
	above_all_ok($node, 'Barman');

	run_ok(@command, 'backup', '--immediate-checkpoint', 'main');
	my $before = give_ids($node, $is_archived);
	$node->safe_psql('postgres', q{SELECT pg_create_restore_point('here')});
	give_ids_much_later($node, $is_archived);
	$restore->('--target-name', 'here', '--target-action', 'promote');
	point_in_time_ok($node, $before, 'Barman, point in time');
	$node->stop;
}

done_testing();
