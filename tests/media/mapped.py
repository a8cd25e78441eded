"""mapped.py FILE [again]: stores to a mapping of a file of 4 MiB and reads it; again: looks whether it is there."""

import mmap
import sys

BYTES = 4 << 20
path = sys.argv[1]
again = len(sys.argv) > 2
with open(path, "r+b" if again else "w+b") as file:
    if not again:
        file.truncate(BYTES)
    with mmap.mmap(file.fileno(), BYTES) as memory:
        for at in range(0, BYTES, 40_000):
            text = b"at %d" % at
            if again:
                assert memory[at : at + len(text)] == text, at
            else:
                memory[at : at + len(text)] = text
        memory.flush()
    with open(path, "rb") as reader:
        reader.seek(80_000)
        assert reader.read(8) == b"at 80000"
