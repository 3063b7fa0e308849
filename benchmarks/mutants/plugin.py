"""A pytest plugin for mutants: ``-p benchmarks.mutants.plugin``.

With `BMGD_MUTANT`, a file that `mutants.by_tests` writes, it plants the mutant before any test is read,
and runs the tests named there in their order, or all where none is named. With an empty one it notes
which lines each test comes to.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.mutants import reached
from benchmarks.mutants.mutating import mutants_of
from benchmarks.planted.planting import plant


class _Chosen:
    """Plants a mutant, and runs chosen tests in the order in which they are named."""

    def __init__(self, path: str) -> None:
        order = json.loads(Path(path).read_text(encoding="utf-8"))
        plant(mutants_of(order["module"])[order["number"]])
        self._places = {name: place for place, name in enumerate(order["tests"])}
        resource.setrlimit(resource.RLIMIT_CPU, (int(order["cpu_s"]), resource.RLIM_INFINITY))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self._places:
            return
        items[:] = [item for item in items if item.nodeid in self._places]
        items.sort(key=lambda item: self._places[item.nodeid])


class _Looking:
    """Notes which functions run while tests are read, and in each test, and its CPU time."""

    def __init__(self) -> None:
        from benchmarks.mutants.command import modules

        self._tracer = reached.Tracer(modules(), whole=True)
        self._tracer.start()
        self._imported: reached.Lines = {}
        self._cpu_s: dict[str, float] = {}
        self._found: dict[str, reached.Lines] = {}
        self._failed: set[str] = set()

    def pytest_collection_finish(self) -> None:
        self._imported = self._tracer.take()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        reached.forget_caches()
        began = time.process_time()
        self._tracer.start()
        try:
            return (yield)
        finally:
            self._found[item.nodeid] = self._tracer.take()
            self._cpu_s[item.nodeid] = round(time.process_time() - began, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        passed = [name for name in self._cpu_s if name not in self._failed]
        cpu_s = {name: self._cpu_s[name] for name in passed}
        reached.keep("tests", cpu_s, [self._found[name] for name in passed], self._imported)


def pytest_configure(config: pytest.Config) -> None:
    """Plant, or look."""
    path = os.environ["BMGD_MUTANT"]
    config.pluginmanager.register(_Chosen(path) if path else _Looking())
