# shellcheck shell=bash
# What the measures of moves, splits and migrations share: throw-away servers with
# shards, and clients that note how long they wait.  Sourced, not run.

# shellcheck source=../../scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

# Make a server called $1, on port 543$2, with the extension; further arguments are
# settings.  ${home[$2]} leads to it and, as superuser, ${connstr[$2]}.
start_server() {
	local name=$1 n=$2
	shift 2
	home[n]="host=${server_host:-$work/socket} port=543$n dbname=postgres"
	connstr[n]="${home[n]} user=postgres"
	start_cluster "$name" "port = 543$n" "wal_level = logical" "max_locks_per_transaction = 256" "$@"
	psql -qd "${connstr[n]}" -c 'CREATE EXTENSION snowid'
}

# Make shards $2 to $3 of two tables and 200 rows on server $1.
make_shards() {
	psql -qd "${connstr[$1]}" >/dev/null 2>&1 <<-SQL
		CALL snowid.create_shards($2, $3, ddl => \$\$
			CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), name text);
			CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint, title text);
			INSERT INTO users (name) SELECT 'user ' || i FROM generate_series(1, 100) i;
			INSERT INTO photos (user_id, title) SELECT id, md5(name) FROM users;
		\$\$);
		VACUUM ANALYZE;
	SQL
}

# Begin a client: its name, and arguments of client.pl.
start_client() {
	local name=$1
	shift
	as_user touch "$work/tmp/go"
	as_user env PATH="$pgbin:$PATH" "$work/tree/bench/lib/client.pl" "$work/tmp/go" "$@" >"$work/client.$name" &
}

stop_clients() {
	rm -f "$work/tmp/go"
	wait
}

# Run a command of snowid-move, while clients work, with its output to $work/out: the
# times $start and $end.
during() {
	start=$EPOCHREALTIME
	as_user "$pgbin/snowid-move" "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2; die 'the command failed'; }
	end=$EPOCHREALTIME
	sleep 2
	stop_clients
}

# How long clients waited, before and during that: what they are called, and their names.
waits() {
	local kind=$1
	shift
	cat "${@/#/$work/client.}" | awk -v start="$start" -v end="$end" -v kind="$kind" '
		NF != 4 || $4 !~ /^[0-9]+$/ { if (n++ < 3) print > "/dev/stderr" }
		{ errors += $3 }
		$1 + $2 / 1000 < start { before++; if ($2 > most_before) most_before = $2 }
		$1 + $2 / 1000 >= start && $1 <= end { during++; if ($2 > most) most = $2 }
		END { printf "  %s: before, %.0f ms at most of %d; during, %.0f ms at most of %d, %d errors\n",
			kind, most_before, before, most, during, errors }'
}

# The load of the machine, which goes with each figure.
load() { cut -d ' ' -f 1 /proc/loadavg; }
