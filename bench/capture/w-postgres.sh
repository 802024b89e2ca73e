#!/usr/bin/env bash
# Volumes pg-data and pg-wal: an own PostgreSQL cluster, loaded by pgbench.
# Most rows asked for lie around a centre that moves from phase to phase, so
# that the hot part of the table moves too.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

scale=100 # 10 million accounts, about 1.5 GB
bin=${PG_BIN:-/usr/lib/postgresql/15/bin}
data=$(mnt pg-data)/data
wal=$(mnt pg-wal)/wal
sock=$CAP_WORK/pgsock
server=

as_pg() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
pgb() { "$bin/pgbench" -h "$sock" -U postgres -n "$@" postgres; }

stop_server() {
    if [[ -n $server ]]; then
        kill -INT "$server" 2>/dev/null || true # fast shutdown
        wait "$server" || true
        server=
    fi
}
trap stop_server EXIT
trap 'exit 143' TERM INT

install -d -o postgres -g postgres -m 700 "$sock" "$data" "$wal"
as_pg "$bin/initdb" -D "$data" --waldir="$wal" -U postgres -A trust \
    --no-locale -E UTF8 > /dev/null
cat >> "$data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$sock'
shared_buffers = 32MB
max_wal_size = 512MB
wal_keep_size = 320MB
checkpoint_timeout = 2min
autovacuum_naptime = 30s
CONF
as_pg "$bin/postgres" -D "$data" > "$CAP_WORK/log/postgres.server.log" 2>&1 &
server=$!
for _ in {1..100}; do
    "$bin/pg_isready" -q -h "$sock" -U postgres && break
    sleep 0.2
done
"$bin/psql" -qAtc 'select version()' -h "$sock" -U postgres postgres

pgb -i -q -s "$scale" > "$CAP_WORK/log/pgbench.init.log" 2>&1
"$bin/psql" -qc checkpoint -h "$sock" -U postgres postgres

# random_gaussian(.., 6): two thirds of the rows from a sixth of the table.
pick='\set aid 1 + mod(random_gaussian(1, 100000 * :scale, 6.0) + :shift, 100000 * :scale)'
cat > "$CAP_WORK/read.sql" <<SQL
$pick
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
SQL
cat > "$CAP_WORK/tpcb.sql" <<SQL
$pick
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
SQL

# load END RATE READ_WEIGHT TPCB_WEIGHT SHIFT
load() {
    local secs
    secs=$(($(secs_until "$1") - 2)) # time to print its summary
    bounded "$1" "$bin/pgbench" -h "$sock" -U postgres -n -s "$scale" \
        -c 4 -j 1 -R "$2" -L 1000 -T "$((secs > 0 ? secs : 1))" --random-seed=42 \
        -D shift="$5" -f "$CAP_WORK/read.sql@$3" -f "$CAP_WORK/tpcb.sql@$4" \
        postgres 2>&1
}

ready_and_wait postgres
load 8 100 24 1 0         # read-mostly
load 10 30 24 1 0         # quieter
load 16 65 1 9 3000000    # heavy TPC-B, another part of the table
load 21.5 2 1 1 3000000   # nearly idle
load 25 110 49 1 6000000  # read-mostly, a third part
at 25.2
