"""mapped.py FILE [again]: stores to a mapping of a file of 4 MiB and reads it, and says what the kernel has mapped; again: looks
whether it is there."""

import mmap
import sys

BYTES = 4 << 20
path = sys.argv[1]


def mapped_last():
    """The file of the mapping that was stored to, and its pages: of the pool's, the only one that is shared."""
    path, name = None, ""
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            name = words[5] if len(words) > 5 and words[1] == "rw-s" else ""
        elif words[0] == "KernelPageSize:" and ("/pool" in name or "/dev/dax" in name or "/on-" in name):
            path = f"{name} by pages of {words[1]} KiB"
    return path


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
        print("mapped:", mapped_last())
    with open(path, "rb") as reader:
        reader.seek(80_000)
        assert reader.read(8) == b"at 80000"
