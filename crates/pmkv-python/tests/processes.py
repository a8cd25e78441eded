"""fork and multiprocessing: each process opens the heap, and what one has from its parent is of no
use. Run by tests/python.sh and tests/wheel.sh with a directory."""

import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import sys
import time

import pmkv

KINDS = ("hash", "tree")
KEYS = 200


def put_all(path, kind, worker):
    with pmkv.open(path, name=kind, kind=kind) as db:
        for nth in range(KEYS):
            db[b"%d %d" % (worker, nth)] = b"%d" % nth * (nth + 1)
            # All count up one word.
            while True:
                old = db.get(b"count")
                if old is None:
                    done = db.add(b"count", b"1")
                else:
                    done = db.replace(b"count", old, b"%d" % (int(old) + 1))
                if done:
                    break
    return worker


def puts_for_ever(path, ready):
    with pmkv.open(path) as db:
        for nth in range(1 << 60):
            db[b"for ever %d" % (nth % 50)] = b"%d" % nth
            ready.set()


def use_parents(db, answers):
    said = []
    for call in (lambda: db.get(b"a"), lambda: db.__setitem__(b"a", b"x")):
        try:
            call()
            said.append("nothing was wrong")
        except pmkv.Error as error:
            said.append(str(error))
    try:
        db.close()
    except pmkv.Error as error:
        said.append(str(error))
    answers.put(said)


def workers(path, method):
    """Processes of a method put at once, and all is there."""
    context = multiprocessing.get_context(method)
    for kind in KINDS:
        with pmkv.open(path, name=kind, kind=kind) as db:
            db.clear()
            started = [context.Process(target=put_all, args=(path, kind, nth)) for nth in range(3)]
            for one in started:
                one.start()
            put_all(path, kind, 3)
            for one in started:
                one.join(300)
                assert one.exitcode == 0, (method, kind, one.exitcode)
            assert len(db) == 4 * KEYS + 1
            assert db[b"count"] == b"%d" % (4 * KEYS)
            for worker in range(4):
                for nth in range(KEYS):
                    assert db[b"%d %d" % (worker, nth)] == b"%d" % nth * (nth + 1)


def pools(path):
    """A pool of processes, as most programs have one."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        jobs = [pool.submit(put_all, path, "hash", worker) for worker in range(10, 14)]
        assert sorted(job.result(300) for job in jobs) == [10, 11, 12, 13]
    with pmkv.open(path, name="hash") as db:
        assert all(b"%d %d" % (worker, KEYS - 1) in db for worker in range(10, 14))


def a_parents_database(path):
    """A forked child's calls on it are errors, and its end takes nothing from the parent."""
    context = multiprocessing.get_context("fork")
    with pmkv.open(path) as db:
        db[b"a"] = b"one"
        walk = iter(db.items())
        answers = context.SimpleQueue()
        child = context.Process(target=use_parents, args=(db, answers))
        child.start()
        said = answers.get()
        child.join(300)
        assert child.exitcode == 0
        assert len(said) >= 2 and all("fork" in one for one in said), said
        # A child that ends as any program does, with all that it has inherited.
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        db[b"b"] = b"two"
        assert db[b"a"] == b"one" and db[b"b"] == b"two"
        assert len(list(walk)) >= 1
        try:
            pickle.dumps(db)
        except TypeError:
            pass
        else:
            raise AssertionError("a database was pickled")
        db.clear()


def a_killed_child(path):
    """It harms nobody."""
    context = multiprocessing.get_context("fork")
    with pmkv.open(path) as db:
        for _ in range(10):
            ready = context.Event()
            child = context.Process(target=puts_for_ever, args=(path, ready))
            child.start()
            assert ready.wait(60)
            time.sleep(0.01)
            os.kill(child.pid, signal.SIGKILL)
            child.join(60)
            assert child.exitcode == -signal.SIGKILL
            db[b"parent"] = b"goes on"
            for key, value in db.items():
                assert value == b"goes on" or int(value) % 50 == int(key.split()[-1])


if __name__ == "__main__":
    path = os.path.join(sys.argv[1], "processes")
    # Before this one has anything from the module.
    with pmkv.open(path, size=16 << 20):
        pass
    a_parents_database(path)
    a_killed_child(path)
    for method in multiprocessing.get_all_start_methods():
        workers(path, method)
    pools(path)
    print("ok   Python, fork and multiprocessing")
