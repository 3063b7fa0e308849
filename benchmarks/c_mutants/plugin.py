"""A pytest plugin that loads one extension from elsewhere: ``-p benchmarks.c_mutants.plugin``.

``python -m benchmarks.c_mutants.plugin MODULE ...`` runs a module with it instead, a fuzzer.

`BMGD_C_MUTANT` is `MODULE PATH`: the extension's dotted name, and the file that is loaded instead. With
`BMGD_C_MUTANT_CPU_S` the process ends when it has used as many seconds of CPU.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

if _seconds := os.environ.get("BMGD_C_MUTANT_CPU_S"):
    resource.setrlimit(resource.RLIMIT_CPU, (int(_seconds), int(_seconds) + 5))
_module, _path = os.environ["BMGD_C_MUTANT"].split(" ", 1)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _module:
            return None
        return importlib.util.spec_from_loader(fullname, ExtensionFileLoader(fullname, _path))


if _module in sys.modules:
    raise RuntimeError(f"{_module} was imported before the mutant was put in its place")
sys.meta_path.insert(0, _Finder())

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
