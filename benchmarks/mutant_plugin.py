"""A pytest plugin that plants a mutant before any test is read: ``-p benchmarks.mutant_plugin``.

The mutant is named by `BMGD_MUTANT`, as `MODULE NUMBER`. Tests of files that name its module come first,
then the others, in a mixed order. With `BMGD_MUTANT_TESTS=some` no test is begun after `TESTS_CPU_S`.
"""

from __future__ import annotations

import os
import resource
import time
from random import Random

import pytest

from benchmarks.mutants import EVERY_TEST_CPU_S, SAMPLE_SEED, TESTS_CPU_S
from benchmarks.mutating import mutants_of
from benchmarks.planting import plant

_module, _number = os.environ["BMGD_MUTANT"].split()
_takes_all = os.environ.get("BMGD_MUTANT_TESTS") != "some"
plant(mutants_of(_module)[int(_number)])
resource.setrlimit(resource.RLIMIT_CPU, (EVERY_TEST_CPU_S, resource.RLIM_INFINITY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests into the order in which they are likely to find the mutant soon."""
    near = {path for path in {item.path for item in items} if _module in path.read_text("utf-8")}
    Random(SAMPLE_SEED).shuffle(items)
    items.sort(key=lambda item: item.path not in near)


class _Ender:
    """Ends the process when the time of some of the tests is over, and nothing has failed."""

    def __init__(self) -> None:
        self._has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed |= report.failed

    def pytest_runtest_logfinish(self) -> None:
        if not self._has_failed and time.process_time() > TESTS_CPU_S:
            os._exit(0)


def pytest_configure(config: pytest.Config) -> None:
    """Let the run end early where only some of the tests are asked for."""
    if not _takes_all:
        config.pluginmanager.register(_Ender())
