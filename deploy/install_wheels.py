"""Install wheels into the Python that runs this, without pip.

    python install_wheels.py DIRECTORY

For images whose Python has no pip, and builds without a network. Of the wheels in the directory those
that fit this Python are installed, with the commands that they declare. It does what the wheels of
bmgd and its dependencies need, and refuses what it does not know.
"""

from __future__ import annotations

import configparser
import os
import platform
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

_SCRIPT = """#!{python}
import sys
from {module} import {name}
sys.exit({name}())
"""


def fits(wheel: str) -> bool:
    """Whether the tags in a wheel's file name fit this interpreter and this machine."""
    pythons, abis, platforms = (
        part.split(".") for part in wheel.removesuffix(".whl").split("-")[-3:]
    )
    major, minor = sys.version_info[:2]
    own = f"cp{major}{minor}"
    stable = any(
        match is not None and int(match[1]) <= minor
        for match in (re.fullmatch(rf"cp{major}(\d+)", python) for python in pythons)
    )
    return (
        ((own in pythons and own in abis) or ("abi3" in abis and stable) or "none" in abis)
        and any(python in (own, f"py{major}") or "abi3" in abis for python in pythons)
        and any(_platform_fits(name) for name in platforms)
    )


def _platform_fits(name: str) -> bool:
    if name == "any":
        return True
    if not name.endswith("_" + platform.machine()):
        return False
    match = re.match(r"manylinux_(\d+)_(\d+)_", name)
    libc, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if libc != "glibc":
        return False
    return match is None or (int(match[1]), int(match[2])) <= tuple(map(int, version.split(".")))


def install(wheel: Path, site_packages: Path, scripts: Path) -> None:
    """Unpack one wheel, and write the commands that it declares.

    Raises:
        SystemExit: the wheel has parts that must go elsewhere.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        if any(name.split("/")[0].endswith(".data") for name in names):
            sys.exit(f"{wheel.name} has a .data directory, which only pip can install")
        archive.extractall(site_packages)
    for name in names:
        if name.endswith(".dist-info/entry_points.txt"):
            _write_scripts(site_packages / name, scripts)


def _write_scripts(entry_points: Path, scripts: Path) -> None:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(entry_points)
    if not parser.has_section("console_scripts"):
        return
    for command, target in parser.items("console_scripts"):
        module, _, name = target.partition(":")
        script = scripts / command
        script.write_text(_SCRIPT.format(python=sys.executable, module=module, name=name))
        script.chmod(0o755)


def main() -> None:
    """Install the wheels of the directory that the command line names."""
    directory = Path(sys.argv[1])
    wheels = sorted(directory.glob("*.whl"))
    fitting = [wheel for wheel in wheels if fits(wheel.name)]
    found = [wheel.name.split("-")[0].lower() for wheel in fitting]
    for needed in ("bmgd", "msgpack", "psutil", "uvloop"):
        if found.count(needed) != 1:
            sys.exit(
                f"{directory} must have one wheel of {needed} for Python"
                f" {platform.python_version()} on {platform.machine()}; it has"
                f" {', '.join(wheel.name for wheel in wheels) or 'none at all'}"
            )
    for wheel in fitting:
        install(wheel, Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("scripts")))
        print(f"installed {wheel.name}")


if __name__ == "__main__":
    main()
