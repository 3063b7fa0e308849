"""Fail when a test of these rooms did not run, or there is none: here everything that it needs is there.

python .ci/check_ran.py TESTS.xml ROOM...
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree


def main() -> int:
    """Look through pytest's JUnit report for each room under tests/."""
    cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
    failed = 0
    for room in sys.argv[2:]:
        of_room = [case for case in cases if f".{room}." in f".{case.get('classname')}."]
        skipped = [case.get("name") for case in of_room if case.find("skipped") is not None]
        print(f"{room} tests: {len(of_room) - len(skipped)} ran, {len(skipped)} skipped")
        if skipped or not of_room:
            print(f"these must run here: {skipped or room}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
