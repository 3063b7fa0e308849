"""Fail when a Docker engine answers here, but a test that needs one did not run.

python .ci/check_docker_tests.py TESTS.xml
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree


def main() -> int:
    """Compare pytest's JUnit report with whether an engine answers."""
    answers = subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    cases = [
        case
        for case in ElementTree.parse(sys.argv[1]).iter("testcase")
        if ".docker." in f".{case.get('classname')}."
    ]
    skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
    print(f"docker tests: {len(cases) - len(skipped)} ran, {len(skipped)} skipped")
    if not cases:
        print("the report names no Docker test at all", file=sys.stderr)
        return 1
    if answers and skipped:
        print(f"an engine answers, but these did not run: {skipped}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
