"""How tests have ended, by the XML that CPython's regrtest writes: `ends.py FACE TMPFS.xml POOL.xml KNOWN`.

Prints a line for each that did not end on the pool as on the tmpfs: `known` or `differs`. One that is not told of on a side, or is
skipped on one alone, differs, too.
"""

import fnmatch
import sys
import xml.etree.ElementTree


def ends(path):
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError):
        return {"all of it": "no result"}
    told = {}
    for case in root.iter("testcase"):
        name = str(case.get("name")).removeprefix("test.")
        # A test of which a part failed has no result of its own, and stands there without a name.
        if case.find("failure") is not None or case.find("error") is not None:
            told[name] = "failed"
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            told.setdefault(name, "skipped")
        else:
            told.setdefault(name, "passed")
    told.pop("None", None)
    return told


def known(path, face):
    with open(path) as lines:
        rows = [line.split(" | ") for line in lines if " | " in line and not line.startswith("#")]
    return [(pattern, reason.strip()) for where, pattern, reason in rows if where in ("*", face)]


def main(face, reference, pool, accepted):
    wanted, got = ends(reference), ends(pool)
    rows = known(accepted, face)
    for name in sorted(wanted.keys() | got.keys()):
        before, after = wanted.get(name, "not told"), got.get(name, "not told")
        if before == after or before == "failed":
            continue
        why = next((reason for pattern, reason in rows if fnmatch.fnmatchcase(name, pattern)), None)
        print(f"{'known' if why else 'differs'} {name}: {before} on a tmpfs, {after} here{f' ({why})' if why else ''}")


main(*sys.argv[1:])
