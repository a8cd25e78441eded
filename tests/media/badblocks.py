"""badblocks.py PMFS: pages of a pool get errors of memory as hardware has them (madvise(2), MADV_HWPOISON: the kernel takes them away for good,
so this is for a machine that is thrown away). fsck finds and names them; with --repair the pool is sound again, no file has other bytes
than were written but those that are named, and what could not be read of a file still can't."""

import ctypes
import json
import mmap
import os
import random
import re
import subprocess
import sys

PAGE = 4096
HWPOISON = 100
pmfs = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)


def run(*words, codes=(0,)):
    ended = subprocess.run([pmfs, *words], capture_output=True, text=True)
    assert ended.returncode in codes, (words, ended.returncode, ended.stdout, ended.stderr)
    return ended


def fsck(*words, codes):
    return json.loads(run("fsck", "--json", *words, "pool", codes=codes).stdout)


def fill(chance):
    files = {}
    for number in range(60):
        directory = f"d{number % 4}/e{number % 3}"
        os.makedirs(f"on/{directory}", exist_ok=True)
        size = chance.choice([0, 100, 3000, 20_000, 300_000])
        files[f"{directory}/f{number}"] = chance.randbytes(size)
    files["big"] = chance.randbytes(3 << 20)
    for path, content in files.items():
        with open(f"on/{path}", "wb") as file:
            file.write(content)
    numbers = {above: os.stat(f"on/{above}").st_ino for path in files for above in parents(path)}
    return {path: (content, {numbers[above] for above in parents(path)}) for path, content in files.items()}


def poison(offsets):
    with open("pool", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for off in offsets:
            memory[off]  # it is there
            if libc.madvise(ctypes.c_void_p(start + off), ctypes.c_size_t(PAGE), HWPOISON) != 0:
                raise OSError(ctypes.get_errno(), "madvise")


def used(chance, count):
    """Half of them pages that aren't full of random bytes: few of those hold a file's."""
    with open("pool", "rb") as file:
        content = file.read()
    pages = {at: content[at : at + PAGE] for at in range(0, len(content), PAGE)}
    pages = {at: page for at, page in pages.items() if any(page)}
    sparse = [at for at, page in pages.items() if bytes(64) in page]
    others = sorted(pages.keys() - sparse)
    return chance.sample(sparse, (count + 1) // 2) + chance.sample(others, count // 2)


def compare(files, named, left):
    """How many files are as they were; all that nothing was said of are."""
    whole = 0
    # By number, of what no name could be looked up for; its content, or that of what it is a part of.
    inodes = set()
    for text in named:
        for first, last in re.findall(r"inodes (\d+) to (\d+)", text):
            inodes.update(range(int(first), int(last) + 1))
    for path, (content, numbers) in files.items():
        try:
            with open(f"on/{path}", "rb") as file:
                same = file.read() == content
        except OSError:
            same = False
        whole += same
        lost = any(re.search(rf"\b(of|in|inode of) /?{re.escape(above)}(,|$)", text) for text in named for above in parents(path))
        assert same or lost or inodes & numbers, (path, numbers, named)
        for text in left:
            if text.endswith(f" of /{path}"):
                first, last = map(int, re.search(r"bytes (\d+) to (\d+)", text).groups())
                with open(f"on/{path}", "rb") as file:
                    file.seek(first)
                    try:
                        file.read(last + 1 - first)
                        raise AssertionError(f"{path} can be read at {first}")
                    except OSError as error:
                        assert error.errno == 5, error
    return whole


def parents(path):
    while path:
        yield path
        path = os.path.dirname(path)
    yield ""


def trial(seed):
    chance = random.Random(seed)
    run("mkfs", "--force", "--size", "32M", "pool")
    run("mount", "pool", "on")
    files = fill(chance)
    run("umount", "on")
    bad = [0] if seed == 0 else used(chance, 1 + seed % 6)
    poison(bad)
    found = fsck("--badblocks", codes=(4,))
    assert all(one["number"] == 3 for one in found["findings"]), found
    mended = fsck("--badblocks", "--repair", codes=(1, 4))
    left = [one["text"] for one in mended["findings"]]
    named = [one["text"] for one in mended["repaired"]] + left
    assert all("bytes " in text for text in left), left
    again = fsck("--badblocks", codes=(0, 4))
    assert [one["text"] for one in again["findings"]] == left, (again, left)
    run("mount", "pool", "on")
    whole = compare(files, named, left)
    # What holds bytes that can't be read can be removed.
    for entry in os.listdir("on"):
        subprocess.run(["rm", "-rf", f"on/{entry}"], check=True)
    run("umount", "on")
    fsck(codes=(0,))
    os.remove("pool")
    return len(bad), len(left), whole, len(files)


os.makedirs("on", exist_ok=True)
for seed in range(12):
    bad, left, whole, files = trial(seed)
    print(f"bad pages: {bad}, of them data: {left}; files as they were: {whole} of {files}", flush=True)
