# MariaDB with a database for tpcc.lua, as an ordinary user of the machine, reached by a socket alone.
#
#   tpcc.sh make DATA           makes a database there
#   tpcc.sh measure DATA RUN... starts a server on a copy of it, below RUN, and measures
#
# Of its surroundings: place (a directory for the socket), shared (where tpcc.lua is), page, warehouses, customers, items; to measure also pool,
# options (of the server), clients, seconds. Whatever happens, the server ends with this.
set -eu
what=$1 data=$2
shift 2
user=nobody
own=$place/server
socket=$own/socket
mkdir -p "$own" && chown "$user" "$own"
rm -f "$own/passed"

# Words of options are words of the command.
# shellcheck disable=SC2086
server() {
    PMFS_LOG="$own/passed" "$@" mariadbd --no-defaults --user="$user" --datadir="$data" --socket="$socket" --pid-file="$own/pid" --skip-networking \
        --skip-log-bin --skip-name-resolve --skip-grant-tables --innodb-page-size="$page" --innodb-log-file-size=32M \
        $options >"$own/log" 2>&1 </dev/null &
    started=$!
    for _ in $(seq 600); do
        ! mariadb --no-defaults -S "$socket" -e 'select 1' >/dev/null 2>&1 || return 0
        kill -0 "$started" 2>/dev/null || break
        sleep 0.05
    done
    tail -n 5 "$own/log" >&2
    return 1
}

# By its own pid: what was started may be what runs it.
end() {
    pid=$(cat "$own/pid" 2>/dev/null || echo "${started:-}")
    [ -n "$pid" ] || return 0
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    kill -9 "$pid" "$started" 2>/dev/null || true
    wait
    rm -f "$own/pid"
}
trap end EXIT

bench() {
    sysbench "$shared/tpcc.lua" --db-driver=mysql --mysql-socket="$socket" --mysql-user=root --mysql-db=tpcc --rand-seed=1 \
        --warehouses="$warehouses" --customers="$customers" --items="$items" "$@"
}

case $what in
make)
    mkdir -p "$data" && chown "$user" "$data"
    mariadb-install-db --no-defaults --user="$user" --datadir="$data" --innodb-page-size="$page" --innodb-log-file-size=32M --skip-test-db >"$own/made"
    # What it holds is durable when the server has ended.
    options="--innodb-fast-shutdown=0 --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=512M"
    server
    mariadb --no-defaults -S "$socket" -e 'create database tpcc'
    bench prepare >"$own/made" || { tail -n 3 "$own/made" >&2; exit 1; }
    ;;
measure)
    options="--innodb-fast-shutdown=2 --innodb-buffer-pool-size=$pool $options"
    server "$@"
    # What the server says of a statement that failed, and not what each client does.
    bench --threads="$clients" --time="$seconds" run 2>"$own/failed" || { head -n 1 "$own/failed" >&2; grep ERROR "$own/log" | head -n 3 >&2; exit 1; }
    # What the mount serves must not be taken for what is served in the program.
    if [ -s "$own/passed" ]; then
        cat "$own/passed" >&2
        exit 1
    fi
    ;;
esac
