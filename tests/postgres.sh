#!/bin/bash
# A PostgreSQL cluster as a template: it is stopped, cloned in its pool, and both run, as docs/TUTORIAL.md tells. Both have to pass
# pg_amcheck, and work on one must not show in the other. postgres.sh [SCALE]: 16 MB each; 64 is 1 GiB.

# shellcheck source=tests/place.sh
. "$(dirname "$0")/place.sh"
scale=${1:-64}
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
if [ -z "$bin" ] || [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ]; then
    echo "skip postgres: needs root, /dev/fuse and PostgreSQL (sh tests/bootstrap.sh programs)"
    exit 0
fi
make_place postgres 6G
user=nobody
mkdir "$place/mnt" "$place/run"
chown "$user" "$place/run"
chmod 755 "$place"

fail() { echo "FAIL postgres: $*"; exit 1; }
as() { (cd / && exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups "$@"); }
# server NAME PORT WORDS...: pg_ctl of a cluster.
server() {
    local name=$1 port=$2
    shift 2
    as "$bin/pg_ctl" -D "$place/mnt/$name" -w -t 120 -l "$place/run/$name.log" -o "-p $port -k $place/run -c listen_addresses=" "$@" >"$place/run/said" ||
        { cat "$place/run/said" "$place/run/$name.log"; fail "pg_ctl $*"; }
}
sql() { as "$bin/psql" -h "$place/run" -p "$1" -d postgres -Atc "$2"; }
stop_all() {
    for name in template copy; do
        [ ! -e "$place/mnt/$name/postmaster.pid" ] || as "$bin/pg_ctl" -D "$place/mnt/$name" -m immediate stop >/dev/null 2>&1
    done
}
trap 'stop_all; leave' EXIT

"$pmfs" mkfs --size 5G "$place/pool" >/dev/null 2>&1 || fail mkfs
"$pmfs" mount -o allow_other "$place/pool" "$place/mnt" >/dev/null || fail mount
mkdir "$place/mnt/template" && chown "$user" "$place/mnt/template" && chmod 700 "$place/mnt/template"
as "$bin/initdb" -D "$place/mnt/template" -A trust -U "$user" >"$place/run/said" || { cat "$place/run/said"; fail initdb; }
server template 54321 start
as "$bin/pgbench" -h "$place/run" -p 54321 -i -q -s "$scale" postgres >"$place/run/said" 2>&1 || { cat "$place/run/said"; fail pgbench; }
server template 54321 stop

before=$("$pmfs" info --json "$place/pool" | sed -n 's/.*"blocks_free": *\([0-9]*\).*/\1/p')
cloned=$("$pmfs" clone --json "$place/pool" template copy) || fail "clone"
after=$("$pmfs" info --json "$place/pool" | sed -n 's/.*"blocks_free": *\([0-9]*\).*/\1/p')
field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" <<<"$cloned"; }

server template 54321 start
server copy 54322 start
for port in 54321 54322; do
    as "$bin/pg_amcheck" -h "$place/run" -p "$port" --install-missing --heapallindexed -d postgres || fail "pg_amcheck on $port"
done
sql 54322 "UPDATE pgbench_accounts SET abalance = 7 WHERE aid % 10 = 0" >/dev/null || fail "update"
[ "$(sql 54321 "SELECT count(*) FROM pgbench_accounts WHERE abalance = 7")" = 0 ] || fail "the template has changed"
as "$bin/pgbench" -h "$place/run" -p 54321 -T 5 -c 4 postgres >/dev/null 2>&1 || fail "pgbench on the template"
wanted=$((scale * 10000))
[ "$(sql 54322 "SELECT count(*) FROM pgbench_accounts WHERE abalance = 7")" = "$wanted" ] || fail "the copy lacks something"
for port in 54321 54322; do
    as "$bin/pg_amcheck" -h "$place/run" -p "$port" --heapallindexed -d postgres || fail "pg_amcheck on $port after work"
done
server template 54321 stop
server copy 54322 stop
"$pmfs" umount "$place/mnt" >/dev/null || fail umount
"$pmfs" fsck "$place/pool" >/dev/null || fail fsck
echo "ok postgres: $(field files) files, $(($(field bytes) >> 20)) MiB cloned in $(printf %.0f "$(field frozen_ms)") ms into $(((before - after) * 4)) KiB; both pass pg_amcheck"
