# shellcheck shell=bash
# Set-up that demo, test and bench share; sourced, not run.
#
# Owns one work directory, which holds a copy of the tree, a copy of the server
# into which the extension is installed, and all throw-away clusters; it is
# removed at exit, with whatever still runs there.  Nothing outside it is
# changed but by setup_packages, which installs Debian packages.
#
# PostgreSQL refuses to run as root: as root, servers and builds run as user
# postgres; else as the caller, and only apt-get uses sudo.

set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=
pgversion=
pgbin=
server_env=()		# NAME=value, for the servers alone

# Whatever libpq's variables say, nothing is done to the caller's own server.
for name in "${!PG@}"; do
	[[ $name == @(PGVERSION|PG_*) ]] || unset "$name"
done

# A machine that is busy is no reason to give up: tests wait so long, in seconds.
export PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-360}

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		die "needs root: run it as root, or install sudo"
	fi
}

as_user() {
	if [ "$(id -u)" = 0 ]; then
		(cd / && runuser -u postgres -- env HOME="$work" TMPDIR="$work/tmp" "$@")
	else
		env TMPDIR="$work/tmp" "$@"
	fi
}

# All TAP tests, the longest first, so that none of those is left alone at the end.
tap_tests() {
	(cd "$top" && printf '%s\n' t/docs/{clients,docs}.pl t/core/{torture,backup}.pl t/move/{kill,set_kill,trouble,held_up}.pl \
		t/split/{split_promotion,split_promoted,split_kill,split,split_checks}.pl \
		t/move/{waits,at_once,set_back}.pl t/portable/portable{,_power_cut}.pl t/*/*.pl |
		awk '!seen[$0]++' | paste -sd ' ')
}

# Install what is missing of the server, its headers and the given packages.
# PGVERSION chooses the server version; without it, the release's own.
setup_packages() {
	local missing=() package
	command -v apt-get >/dev/null || die "needs a Debian system (apt-get)"

	pgversion=${PGVERSION:-$(release_pgversion)}
	if [ -z "$pgversion" ]; then
		as_root apt-get -qq update
		pgversion=$(release_pgversion)
	fi
	[ -n "$pgversion" ] || die "no PostgreSQL among this system's packages"

	for package in make gcc libc6-dev "postgresql-$pgversion" \
		"postgresql-server-dev-$pgversion" "$@"; do
		dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null |
			grep -qx installed || missing+=("$package")
	done
	if [ "${#missing[@]}" -gt 0 ]; then
		say "Installing Debian packages (this can take some minutes): ${missing[*]}"
		install_packages "${missing[@]}"
	fi
}

release_pgversion() {
	{ apt-cache depends postgresql 2>/dev/null || true; } |
		sed -n 's/.*Depends: postgresql-\([0-9]\+\)$/\1/p' | head -n 1
}

# The packages would create and start a cluster, and a pooler, of their own: keep
# them from it while they are installed.  One script installs at a time.  What was
# interrupted before is ended first, and what fails is tried once more.
install_packages() {
	local log
	log=$(mktemp)
	# shellcheck disable=SC2016
	as_root flock -o /var/lib/dpkg env DEBIAN_FRONTEND=noninteractive sh -euc '
		conf=/etc/postgresql-common/createcluster.d/snowid-setup.conf
		policy=/usr/sbin/policy-rc.d
		[ ! -e $policy ] || policy=
		trap "rm -f $conf $policy" EXIT
		mkdir -p "$(dirname "$conf")"
		[ -z "$policy" ] || { printf "#!/bin/sh\nexit 101\n" >$policy && chmod +x $policy; }
		echo "create_main_cluster = false" >"$conf"
		install() { dpkg --configure -a || true; apt-get -qq update && apt-get -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 install "$@"; }
		install "$@" || install "$@"
	' sh "$@" >"$log" 2>&1 </dev/null || { cat "$log" >&2; rm -f "$log"; die "could not install: $*"; }
	rm -f "$log"
}

# Let the work directory be in memory, if there is much more than the given need,
# in MB: clusters are made and removed faster there.  TMPDIR chooses another place.
prefer_memory() {
	local need=$1 free limit
	free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
	limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
	[[ $limit != +([0-9]) ]] || [ $((limit >> 20)) -gt "${free:-0}" ] || free=$((limit >> 20))
	[ -z "${TMPDIR:-}" ] && [ "${free:-0}" -ge $((3 * need)) ] && [ -w /dev/shm ] &&
		[ "$(df -m --output=avail /dev/shm | tail -n 1)" -ge $((3 * need / 2)) ] &&
		findmnt -no OPTIONS -T /dev/shm 2>/dev/null | grep -qvw noexec || return 0
	TMPDIR=/dev/shm
}

# Make the work directory, with copies of the tree and of the server, which
# finds its files by where its programs are.
make_work() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/snowid.XXXXXX")
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir -p "$work/tree" "$work/socket" "$work/tmp" "$work/usr/lib/postgresql" \
		"$work/usr/share/postgresql"
	cp -a "/usr/lib/postgresql/$pgversion" "$work/usr/lib/postgresql/"
	cp -a "/usr/share/postgresql/$pgversion" "$work/usr/share/postgresql/"
	ln -s /usr/include "$work/usr/include"
	pgbin=$work/usr/lib/postgresql/$pgversion/bin
	ln -s "$("/usr/lib/postgresql/$pgversion/bin/pg_config" --libdir)" "$work/usr/lib/"
	tar -C "$top" --exclude=.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' \
		-cf - . | tar -C "$work/tree" --no-same-owner -xf -
	[ "$(id -u)" != 0 ] || chown -R postgres: "$work"
}

clean_up() {
	local status=$? data
	trap - EXIT
	wait
	for data in "$work"/socket/*.pooler; do
		# shellcheck disable=SC2016
		[ ! -e "$data" ] || as_root sh -c 'kill "$1"' sh "$(cat "$data")" || true
	done
	for data in "$work"/*/postmaster.pid; do
		[ ! -e "$data" ] || as_user "$pgbin/pg_ctl" -D "$(dirname "$data")" \
			-m immediate -w stop >/dev/null 2>&1 || true
	done
	cd /
	rm -rf "$work" 2>/dev/null || as_root rm -rf "$work"
	exit "$status"
}

# Arguments go to make: COPT=..., CC=...  The bitcode for JIT, which takes as long again to
# compile, is for packages.
build_and_install() {
	build install PROGRAMS= "$@"
	build install-programs "$@"
	say "Built snowid for PostgreSQL $pgversion."
}

build() {
	local log=$work/build.$1.log
	as_user make -s -j "$(nproc)" -C "$work/tree" PG_CONFIG="$pgbin/pg_config" with_llvm=no "$@" >"$log" 2>&1 ||
		{ cat "$log" >&2; die "build failed"; }
}

# Let the clusters of the TAP tests be copies of one data directory, which is
# faster than an initdb for each.  PostgreSQL::Test::Cluster does so by itself
# from version 17 on; before, initdb copies when it is called as there.
share_data_directory() {
	export INITDB_TEMPLATE=$work/template
	as_user env -u LANGUAGE -u LC_ALL LC_MESSAGES=C "$pgbin/initdb" \
		-D "$INITDB_TEMPLATE" -A trust -N >"$work/template.log" 2>&1 ||
		{ cat "$work/template.log" >&2; die "initdb failed"; }
	# What is empty of the log is not copied, nor made.
	as_user fallocate -d "$INITDB_TEMPLATE"/pg_wal/0* 2>/dev/null || true
	# Nor is code compiled that runs once.
	printf '%s\n' "wal_init_zero = off" "jit = off" | as_user tee -a "$INITDB_TEMPLATE/postgresql.conf" >/dev/null
	[ "$pgversion" -lt 17 ] || return 0
	mv "$pgbin/initdb" "$pgbin/initdb.bin"
	# shellcheck disable=SC2016
	printf '%s\n' '#!/bin/sh' \
		'[ "$*" != "-D $2 -A trust -N" ] || exec cp -RPp "$INITDB_TEMPLATE" "$2"' \
		'exec "$0.bin" "$@"' >"$pgbin/initdb"
	chmod +x "$pgbin/initdb"
}

# Make and start a cluster called $1; further arguments are settings.
# It listens only on a socket in the work directory.
start_cluster() {
	local name=$1
	shift
	as_user "$pgbin/initdb" -D "$work/$name" -U postgres -A trust --no-locale \
		-E UTF8 -N >"$work/$name.initdb.log" 2>&1 ||
		{ cat "$work/$name.initdb.log" >&2; die "initdb failed"; }
	printf '%s\n' "listen_addresses = ''" \
		"unix_socket_directories = '$work/socket'" "$@" |
		as_user tee -a "$work/$name/postgresql.conf" >/dev/null
	restart_cluster "$name"
	export PGHOST=$work/socket PGUSER=postgres PGDATABASE=postgres
}

restart_cluster() {
	as_user env "${server_env[@]}" "$pgbin/pg_ctl" -D "$work/$1" -l "$work/$1.log" -w start >/dev/null ||
		{ cat "$work/$1.log" >&2; die "the server did not start"; }
}

# Start PgBouncer in a mode, on a port, with the entries of a file; under a name other than
# the mode's, with further settings.  PGBOUNCER is another program than Debian's.  It leaves
# its caller before it listens.
start_pooler() {
	local mode=$1 port=$2 file=$3 name=${4:-$1}
	echo '"postgres" ""' | as_user tee "$work/socket/users" >/dev/null
	printf '%s\n' "%include $file" '[pgbouncer]' 'listen_addr =' "listen_port = $port" "unix_socket_dir = $work/socket" \
		'auth_type = trust' "auth_file = $work/socket/users" 'admin_users = postgres' "pool_mode = $mode" \
		'default_pool_size = 4' 'max_client_conn = 1000' "logfile = $work/socket/log.$name" "pidfile = $work/socket/$name.pooler" "${@:5}" |
		as_user tee "$work/socket/$name.ini" >/dev/null
	as_user env PATH="$PATH:/usr/sbin" "${PGBOUNCER:-pgbouncer}" -q -d "$work/socket/$name.ini"
	local deadline=$((SECONDS + 60))
	until as_user "$pgbin/pg_isready" -q -h "$(sed -n 's/^unix_socket_dir = //p' "$work/socket/$name.ini" | tail -n 1)" -p "$port"; do
		[ "$SECONDS" -lt "$deadline" ] || { cat "$work/socket/log.$name" >&2; die "the pooler does not answer"; }
		sleep 0.1
	done
}

stop_cluster() { as_user "$pgbin/pg_ctl" -D "$work/$1" -m fast -w stop >/dev/null; }

psql() { as_user "$pgbin/psql" -X "$@"; }
