"""Every method of the module, and calls that are wrong. Run by tests/python.sh with a directory."""

import os
import sys
import threading
import time

import pmkv

path = os.path.join(sys.argv[1], "heap")


def fails(kind, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} should have failed")


with pmkv.open(path, size=4 << 20) as db:
    assert len(db) == 0 and list(db) == []
    db[b"a"] = b"one"
    db[b""] = b""
    db[b"\0"] = b"\0\xff"
    assert db[b"a"] == b"one" and db[b""] == b"" and db[b"\0"] == b"\0\xff"
    assert b"a" in db and b"b" not in db
    assert db.get(b"a") == b"one" and db.get(b"b") is None and db.get(b"b", 7) == 7
    fails(KeyError, lambda: db[b"b"])
    fails(KeyError, db.__delitem__, b"b")
    del db[b"\0"]
    assert len(db) == 2
    assert db.add(b"c", b"1") and not db.add(b"c", b"2")
    assert not db.replace(b"c", b"2", b"3") and db.replace(b"c", b"1", b"3")
    assert dict(db.items()) == {b"a": b"one", b"": b"", b"c": b"3"}
    assert sorted(db.keys()) == sorted(db) == [b"", b"a", b"c"]
    assert sorted(db.values()) == [b"", b"3", b"one"]
    fails(TypeError, db.__setitem__, "text", b"x")
    fails(TypeError, db.__setitem__, b"x", 7)
    assert "64 KiB" in fails(pmkv.Error, db.__setitem__, bytes(65537), b"x")

    # Long values, by threads that take turns.
    def put(number):
        for round in range(50):
            db[b"long%d" % number] = bytes([number]) * (5000 + round)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(db[b"long%d" % number] == bytes([number]) * 5049 for number in range(4))

    # A forked child has to open it again.
    child = os.fork()
    if child == 0:
        said = fails(pmkv.Error, db.get, b"a")
        fails(pmkv.Error, db.__setitem__, b"a", b"child")
        with pmkv.open(path) as mine:
            mine[b"child"] = b"here"
        os._exit(0 if "fork" in said else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert db[b"child"] == b"here" and db[b"a"] == b"one"

    walk = iter(db)
    next(walk)
    db.close()
    assert len(list(walk)) == 7
    fails(ValueError, db.get, b"a")
    db.close()

del walk
with pmkv.open(path) as db, pmkv.open(path, name="other") as other:
    assert db[b"a"] == b"one" and len(other) == 0
    assert db.clear() == 8 and len(db) == 0
# Both kinds: batches, keys that expire, and ranges.
for kind in ("hash", "tree"):
    with pmkv.open(path, name="a " + kind, kind=kind) as db:
        db.batch([(b"%d" % key, b"v%d" % key) for key in range(9, -1, -1)])
        db.batch([(b"3", None), (b"never", None), (b"4", b"x"), (b"4", b"y")])
        assert len(db) == 9 and db[b"4"] == b"y" and b"3" not in db
        fails(TypeError, db.batch, [(b"5", "text")])
        fails(pmkv.Error, db.batch, [(b"5", None), (bytes(65537), b"")])
        assert db[b"5"] == b"v5"
        found = list(db.range(b"2", b"7"))
        assert sorted(found) == [(b"2", b"v2"), (b"4", b"y"), (b"5", b"v5"), (b"6", b"v6")]
        assert sorted(db.range(b"8")) == [(b"8", b"v8"), (b"9", b"v9")]
        assert [key for key, _ in sorted(db.range(end=b"1"))] == [b"0"]
        if kind == "tree":
            assert found == sorted(found) and list(db) == sorted(db)
        db.put_ttl(b"soon", b"x", 3600)
        assert 3500 < db.expiry(b"soon") - time.time() < 3700 and db.expiry(b"5") is None
        db.put_ttl(b"soon", b"x", 0)
        assert b"soon" not in db and db.purge_expired() == 1
        fails(KeyError, db.expiry, b"soon")
        fails(ValueError, db.put_ttl, b"soon", b"x", -1.0)
        fails(ValueError, db.put_ttl, b"soon", b"x", float("nan"))
        db[b"long"] = bytes(100000)
        assert all(len(db[b"long"]) == 100000 for _ in range(3)) and db[b"5"] == b"v5"
    assert kind in fails(pmkv.Error, pmkv.open, path, "a " + kind, 0, "tree" if kind == "hash" else "hash")
fails(ValueError, pmkv.open, path, "kv", 0, "stack")
fails(pmkv.Error, pmkv.open, os.path.join(sys.argv[1], "nowhere", "heap"))
print("ok   Python, every method")
