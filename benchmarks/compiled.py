"""The simulator and the core as C, for long campaigns: the same seed gives the same trace, sooner.

    python -m benchmarks.compiled        build it, and print the directory that has it

mypyc (of mypy, which the developers have anyway) compiles the modules that a simulation spends its time
in. What comes out is for campaigns on this machine alone: daemons run the plain sources. That it does the
same is shown, not assumed: `python -m benchmarks.seeds twice` runs the plain sources and compares traces.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bmgd.sim.narrowing import ALL

ROOT: Final = Path(__file__).parent.parent
BUILD: Final = ROOT / "build" / "compiled"
PATTERNS: Final = (
    *("core/**/*.py", "sim/*.py", "sim/checkers/*.py", "wire/*.py", "types.py", "peers.py"),
    *("healing.py", "policy.py", "chaos/history.py", "chaos/checkers.py", "chaos/truth.py"),
    *("routing/__init__.py", "routing/ranks.py", "routing/branches.py", "routing/id_sets.py"),
    *("frameheader.py", "topology/binomial.py", "topology/broadcast.py"),
    *("linklayer/*.py", "linkevents.py"),
)
PLAIN: Final = ("sim/campaign.py", "wire/control.py")
"""Frozen classes of the first travel between processes, which compiled ones cannot. In the second
compiled code takes a bool where it matches a whole number."""
_SETUP: Final = """\
import sys
from mypyc.build import mypycify
from setuptools import setup
words = ["--ignore-missing-imports", *sys.argv[3:]]
setup(name="compiled", packages=[], ext_modules=mypycify(words, opt_level="1", debug_level="0"),
      script_args=sys.argv[1:3])
"""
"""With full optimization the compiler takes nearly twice as long: 14 minutes where this takes 8."""


def modules(package: Path) -> Iterator[Path]:
    """The modules that are compiled, in a fixed order."""
    for pattern in PATTERNS:
        yield from (
            path for path in sorted(package.glob(pattern)) if not any(map(path.match, PLAIN))
        )


def fingerprint() -> str:
    """Of all sources: another one means another build."""
    hashed = hashlib.sha256(sys.version.encode())
    for path in sorted((ROOT / "bmgd").rglob("*.py")):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def build() -> Path:
    """Compile, unless that was done; some minutes. Returns the directory to import `bmgd` from.

    Raises:
        CalledProcessError: mypyc or the compiler refused something; they have said what.
    """
    built, wanted = BUILD / "fingerprint", fingerprint()
    if built.exists() and built.read_text(encoding="utf-8") == wanted:
        return BUILD
    shutil.rmtree(BUILD, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.c")
    shutil.copytree(ROOT / "bmgd", BUILD / "bmgd", ignore=ignored)
    paths = list(modules(BUILD / "bmgd"))
    for path in paths:
        source = with_bounds(with_factories(without_slots(path.read_text(encoding="utf-8"))))
        path.write_text(source, encoding="utf-8")
    (BUILD / "setup_compiled.py").write_text(_SETUP, encoding="utf-8")
    names = [str(path.relative_to(BUILD)) for path in paths]
    words = [sys.executable, "setup_compiled.py", "build_ext", "--inplace", *names]
    # What is refused is said there; who asks for the path reads the last line.
    subprocess.run(words, cwd=BUILD, check=True, stdout=sys.stderr)
    built.write_text(wanted, encoding="utf-8")
    return BUILD


def without_slots(source: str) -> str:
    """A module whose dataclasses do not ask for slots: compiled classes have nothing else."""
    return re.sub(r"^@dataclass\((.*)\)$", _decorator, source, flags=re.MULTILINE)


def with_factories(source: str) -> str:
    """A module whose fields that are no parameters have factories for their values.

    A default of theirs stays in the class, where compiled instances do not look for it.
    """
    return re.sub(
        r"\bfield\(default=([^(),]+), init=False\)",
        r"field(default_factory=lambda: \1, init=False)",
        source,
    )


def with_bounds(source: str) -> str:
    """A module whose bounds can be made narrow: what is final is a number in the code, once compiled."""
    names = "|".join(sorted({name for _, name, _ in ALL}))
    return re.sub(rf"^({names}): Final(?:\[int\])? = ", r"\1: int = ", source, flags=re.MULTILINE)


def _decorator(found: re.Match[str]) -> str:
    options = [word for word in found[1].split(", ") if not word.startswith("slots=")]
    return f"@dataclass({', '.join(options)})"


if __name__ == "__main__":
    print(build())
