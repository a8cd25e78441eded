"""writer.py NAME DIR [N]: makes, renames and appends until it is killed, and says what is done; with N, looks whether all up to
N is there, and what comes after it is whole."""

import os
import sys

name, place = sys.argv[1:3]
log = os.path.join(place, "log")


def record(number):
    return b"%08d " % number * 500


def work():
    number = 0
    # For writing alone: before Linux 6.6 a mount gets others' writes in parts.
    fd = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while True:
        number += 1
        assert os.write(fd, record(number)) == 4500
        made = os.path.join(place, "made")
        with open(made, "wb") as file:
            file.write(record(number))
        os.rename(made, os.path.join(place, "file-%d" % (number % 100)))
        print("done", name, number, flush=True)


def look(said):
    with open(log, "rb") as file:
        content = file.read()
    count, rest = divmod(len(content), 4500)
    assert rest == 0, f"{name}: {count} records, {said} said to be done, and {rest} bytes of another: {content[-rest:][:10]} {content[-10:]}"
    assert count >= said, f"{name}: {count} records of {said}"
    wrong = [
        (number, sum(a != b for a, b in zip(found, record(number))), found[:10], found[-10:])
        for number in range(1, count + 1)
        if (found := content[(number - 1) * 4500 : number * 4500]) != record(number)
    ]
    assert not wrong, f"{name}: {count} records, {said} said to be done; wrong ones (number, bytes, first and last of them): {wrong[:20]}"
    for number in range(max(1, said - 99), said + 1):
        with open(os.path.join(place, "file-%d" % (number % 100)), "rb") as file:
            found = file.read()
        whole = {record(number), record(number + 100)}
        assert found in whole, f"{name}: file of {number}: {found[:9]} {len(found)}"
    print(f"{name}: {count} records, {said} of them said to be done", flush=True)


if len(sys.argv) > 3:
    look(int(sys.argv[3]))
else:
    work()
