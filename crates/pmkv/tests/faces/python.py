"""The steps through the module of Python: `model.rs` says what each does, `steps.h` the words."""

import os
import sys
import time

import pmkv

KEYS, SHARED, EACH, LONGEST = 200, 16, 4, 70000


def value_of(worker, nth):
    size = 8 + nth * 13 % 600
    if nth % 61 == 60:
        size = 5000
    if nth % 97 == 96:
        size = LONGEST
    word = (nth << 8 | worker).to_bytes(8, "little")
    return (word * (size // 8 + 1))[:size]


def look(db, key, worker):
    value = db.get(key)
    if value is None:
        return
    word = int.from_bytes(value[:8], "little")
    if worker is not None and word & 255 != worker:
        sys.exit(f"{key}: another's value")
    if value != value_of(word & 255, word >> 8):
        sys.exit(f"{key}: torn")


def look_at_once(db, worker, nth):
    """A snapshot has all of a batch or nothing, and a view stays as it was."""
    with db.snapshot() as seen, db.reader() as reader:
        parts = [seen.get(b"w%d b%d" % (worker, part)) for part in range(3)]
        if len(set(parts)) != 1:
            sys.exit("half of a batch")
        view = reader.get(b"s%d" % (nth % SHARED))
        before = view and bytes(view)
        time.sleep(0.002)
        if view and (view != before or before != value_of(before[0], int.from_bytes(before[:8], "little") >> 8)):
            sys.exit("a view was changed")


def count(db):
    while True:
        old = db.get(b"count")
        if old is None:
            done = db.add(b"count", b"1")
        else:
            done = db.replace(b"count", old, b"%d" % (int(old) + 1))
        if done:
            return


def step(db, worker, nth):
    value = value_of(worker, nth)
    own = b"w%d k%d" % (worker, nth * 7 % KEYS)
    match nth % 6:
        case 0 | 1:
            db[own] = value
        case 2:
            try:
                del db[own]
            except KeyError:
                pass
        case 3:
            db[b"s%d" % (nth // 6 % SHARED)] = value
        case 4:
            db.batch([(b"w%d b%d" % (worker, part), value) for part in range(3)])
        case _:
            count(db)


def write(db, worker, nth):
    while True:
        step(db, worker, nth)
        os.write(1, b"%d\n" % nth)
        if nth % 4 == 0:
            other = worker // EACH * EACH + (worker + 1 + nth // 4 % 3) % EACH
            look(db, b"w%d k%d" % (other, nth * 3 % KEYS), other)
            look(db, b"s%d" % (nth // 4 % SHARED), None)
        if nth % 48 == 0:
            look_at_once(db, worker // EACH * EACH + nth // 48 % EACH, nth)
        nth += 1


def read(db, worker, keys):
    for nth in range(keys):
        try:
            value = db[b"d%d" % nth]
        except KeyError:
            print("missing", nth)
        except pmkv.Error as error:
            if "damaged" not in str(error):
                raise
            print("damaged", nth)
        else:
            if value != value_of(worker, nth):
                sys.exit(f"d{nth}: wrong")
    print("end")


work, path, worker, kind, number = sys.argv[1:]
name = "pmemkv_stree" if kind == "tree" else "pmemkv"
store = pmkv.open(path, name=name, kind=kind)
(write if work == "write" else read)(store, int(worker), int(number))
