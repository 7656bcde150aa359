#!/usr/bin/env bash
# What it costs to make logical shards.
#
#	bench/shards.sh [SHARDS]
#
# Makes SHARDS (2,000) shards with two tables each, by the DDL typed by hand and
# by create_shards(), in two databases of the server that psql connects to; the
# second goes on to 8,192.  Prints times, the time of the first and the last 500
# and the memory of the session.  Drops its databases at the end.  The server
# must be idle, and have the extension's files.
set -euo pipefail

shards=${1:-2000}
databases=(snowid_bench_hand snowid_bench_call)
ddl="CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint NOT NULL);
CREATE TABLE likes (id bigint PRIMARY KEY DEFAULT next_id(), photo_id bigint NOT NULL);"

drop_all() {
	local db
	for db in "${databases[@]}"; do
		psql -Xqc "DROP DATABASE IF EXISTS $db" -d postgres 2>/dev/null
	done
}
trap drop_all EXIT
drop_all

for db in "${databases[@]}"; do
	psql -Xqc "CREATE DATABASE $db" -d postgres
	psql -Xqc 'CREATE EXTENSION snowid' -d "$db"
done

# By hand: one session, a transaction for each shard.
by_hand() {
	local n
	for ((n = 0; n < shards; n++)); do
		cat <<-SQL
			BEGIN;
			CREATE SCHEMA insta$n;
			CREATE SEQUENCE insta$n.id_seq;
			CREATE FUNCTION insta$n.next_id() RETURNS bigint LANGUAGE sql
			AS 'SELECT snowid.next_id($n, ''insta$n.id_seq''::regclass)';
			SET LOCAL search_path = insta$n;
			$ddl
			COMMIT;
		SQL
	done
}
script=$(by_hand)
start=$(date +%s.%N)
psql -Xq -v ON_ERROR_STOP=1 -d snowid_bench_hand <<<"$script"
echo "$shards shards by hand: $(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }') s"

memory="SELECT 'memory of the session: ' || pg_size_pretty(sum(total_bytes)) FROM pg_backend_memory_contexts"
call() { echo "CALL snowid.create_shards($1, $2, ddl => \$\$$ddl\$\$);"; }
psql -XqAt -v ON_ERROR_STOP=1 -d snowid_bench_call <<SQL 2>&1 | grep -vE ' left$'
\\echo By create_shards, first 500:
$(call 0 499)
$memory;
\\echo to $shards:
$(call 500 $((shards - 1)))
$memory;
\\echo to 7,692:
$(call "$shards" 7691)
$memory;
\\echo last 500:
$(call 7692 8191)
$memory;
\\timing on
SELECT 'view snowid.shards: ' || count(last_id_at) + count(*) FROM snowid.shards;
SQL
