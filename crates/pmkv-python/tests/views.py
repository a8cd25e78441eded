"""Values without a copy, and snapshots: a view stays as it was, and is never read after its end. Run
by tests/python.sh and tests/wheel.sh with a directory."""

import gc
import os
import sys
import threading

import pmkv


def fails(kind, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def views(db):
    """A value is where it was, whatever is put over it."""
    db[b"a"], db[b"long"], db[b"none"] = b"one", bytes(range(256)) * 400, b""
    with db.reader() as reader:
        a, long = reader[b"a"], reader.get(b"long")
        assert type(a) is memoryview and a.readonly and a.nbytes == 3 and bytes(a) == b"one"
        assert len(reader[b"none"]) == 0 and reader.get(b"nobody") is None
        assert reader.get(b"nobody", 7) == 7
        fails(KeyError, reader.__getitem__, b"nobody")
        fails(TypeError, reader.__getitem__, "a")
        fails(TypeError, a.__setitem__, 0, 1)
        for nth in range(3000):
            db[b"a"] = b"%d" % nth
            db[b"long"] = bytes(100)
        assert bytes(a) == b"one" and long == bytes(range(256)) * 400
        assert bytes(reader[b"a"]) == b"2999"
        # Threads read it that have never called the library.
        read = []
        threads = [threading.Thread(target=lambda: read.append(bytes(a))) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert read == [b"one"] * 4
        # A view may be the last one that has the session.
        other = db.reader()
        kept = other[b"a"]
        del other
        gc.collect()
        db[b"a"] = b"x"
        assert bytes(kept) == b"2999"
        kept.release()
    # The end of the session is the views' end.
    fails(ValueError, bytes, a)
    fails(ValueError, lambda: a[0])
    fails(ValueError, reader.get, b"a")
    reader.close()


def views_in_use(db):
    """What was made of a view keeps the session open."""
    db[b"a"] = b"one"
    reader = db.reader()
    part = reader[b"a"][1:]
    for _ in range(2):
        assert "views" in fails(BufferError, reader.close)
        assert bytes(part) == b"ne"
    assert bytes(reader[b"a"]) == b"one", "it is open still"
    db[b"a"] = b"two"
    assert bytes(part) == b"ne"
    part.release()
    reader.close()
    # So does leaving it by an error, without hiding the session.
    try:
        with db.reader() as reader:
            part = memoryview(reader[b"a"])
            raise KeyError("by the program")
    except BufferError as error:
        assert isinstance(error.__context__, KeyError)
    assert bytes(part) == b"two"
    del part
    reader.close()
    # Many views, of which few are kept.
    with db.reader() as reader:
        some = [reader[b"a"] for nth in range(5000) if reader[b"a"] and nth % 100 == 0]
        assert all(bytes(one) == b"two" for one in some)
    assert all(fails(ValueError, bytes, one) for one in some)


def snapshots(db):
    """A snapshot is a database that stays as it was."""
    db.clear()
    for nth in range(100):
        db[b"%02d" % nth] = b"v%d" % nth
    with db.snapshot() as seen:
        db.batch([(b"00", None), (b"01", b"new"), (b"more", b"x")])
        for nth in range(2000):
            db[b"50"] = bytes(300)
        assert len(seen) == 100 and seen[b"00"] == b"v0" and seen[b"01"] == b"v1"
        assert b"more" not in seen and seen.get(b"more") is None and seen.get(b"more", 1) == 1
        fails(KeyError, seen.__getitem__, b"more")
        view = seen.view(b"50")
        assert bytes(view) == b"v50" and len(db[b"50"]) == 300
        fails(KeyError, seen.view, b"more")
        assert sorted(seen) == [b"%02d" % nth for nth in range(100)] == sorted(seen.keys())
        assert sorted(seen.values()) == sorted(b"v%d" % nth for nth in range(100))
        assert dict(seen.items())[b"99"] == b"v99"
        part = list(seen.range(b"10", b"20"))
        assert sorted(part) == [(b"%d" % nth, b"v%d" % nth) for nth in range(10, 20)]
        walk = iter(seen)
        next(walk)
    fails(ValueError, bytes, view)
    fails(ValueError, seen.get, b"00")
    assert len(list(walk)) == 99, "a walk has a share of it"
    assert len(db) == 100


def in_a_child(path):
    """A child of fork gets nothing by its parent's session, and its end harms nobody."""
    with pmkv.open(path, name="forked") as db:
        db[b"a"] = b"one"
        with db.reader() as reader, db.snapshot() as seen:
            view, part = reader[b"a"], reader[b"a"][1:]
            pid = os.fork()
            if pid == 0:
                said = fails(pmkv.Error, reader.get, b"a") + fails(pmkv.Error, seen.get, b"a")
                fails(ValueError, bytes, view)
                # The parent has its session open: it waits.
                good = "fork" in said and bytes(part) == b"ne"
                fails(BufferError, memoryview, part.obj)
                fails(BufferError, reader.close)
                part.release()
                reader.close()
                seen.close()
                os._exit(0 if good else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            for nth in range(2000):
                db[b"a"] = b"%d" % nth
            assert bytes(view) == b"one" and seen[b"a"] == b"one"
            part.release()


path = os.path.join(sys.argv[1], "views")
for kind in ("hash", "tree"):
    with pmkv.open(path, name=kind, kind=kind) as db:
        views(db)
        views_in_use(db)
        snapshots(db)
in_a_child(path)
# A database that is closed goes on for its readers.
db = pmkv.open(path)
db[b"a"] = b"one"
reader, seen = db.reader(), db.snapshot()
db.close()
assert bytes(reader[b"a"]) == b"one" == seen[b"a"]
fails(ValueError, db.reader)
fails(ValueError, db.snapshot)
reader.close()
seen.close()
print("ok   Python, views and snapshots")
