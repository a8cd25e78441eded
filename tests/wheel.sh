#!/bin/bash
# The wheel of `make wheel`, installed into a fresh environment and used there: a line for each test. Arguments are
# maturin's: `--profile dev` if there are none.

set -u
cd "$(dirname "$0")/.." || exit 1
[ "$#" != 0 ] || set -- --profile dev

if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "skip the wheel: there is no Python of 3.11 or later with its module venv"
    exit 0
fi
place=$(mktemp -d /dev/shm/pmkv-wheel.XXXXXX) || exit 1
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM HUP

bash packaging/wheel.sh "$@" >"$place/said"
case $? in
0) ;;
3) echo "skip the wheel: maturin can't be installed" && exit 0 ;;
*) echo "FAIL the wheel: it is not built" && exit 1 ;;
esac
wheel=$(tail -n 1 "$place/said")

failed=0
# check NAME COMMAND...
check() {
    local name=$1
    shift
    if "$@" >"$place/log" 2>&1; then
        echo "ok   the wheel, $name"
    else
        echo "FAIL the wheel, $name"
        tail -n 20 "$place/log"
        failed=1
    fi
}

case $wheel in
*/pmkv-*-cp311-abi3-*.whl) echo "ok   the wheel, for every Python from 3.11 on" ;;
*) echo "FAIL the wheel, its name: $wheel" && failed=1 ;;
esac
mkdir "$place/data"
check "installed" bash -c 'python3 -m venv "$1" && "$1/bin/pip" install --quiet --no-index --disable-pip-version-check "$2"' \
    bash "$place/venv" "$wheel"
cd "$place" || exit 1
tests=$OLDPWD/crates/pmkv-python/tests
check "every method" "$place/venv/bin/python" "$tests/calls.py" "$place/data"
check "views and snapshots" "$place/venv/bin/python" "$tests/views.py" "$place/data"
check "fork and multiprocessing" "$place/venv/bin/python" "$tests/processes.py" "$place/data"
# The manual's own block, on a store elsewhere.
sed -n '/^```python$/,/^```$/{/^```/!p}' "$OLDPWD/docs/KV.md" | sed "s|/dev/shm/heap|$place/data/manual|" >manual.py
[ -s manual.py ] || echo "raise SystemExit('docs/KV.md has no block of Python')" >manual.py
check "the manual's example" "$place/venv/bin/python" manual.py
exit "$failed"
