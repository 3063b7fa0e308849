"""A pytest plugin that plants a mutant before any test is read: ``-p benchmarks.mutant_plugin``.

The mutant is named by `BMGD_MUTANT`, as `MODULE NUMBER`.
"""

from __future__ import annotations

import os

from benchmarks.mutating import mutants_of
from benchmarks.planting import plant

_module, _number = os.environ["BMGD_MUTANT"].split()
plant(mutants_of(_module)[int(_number)])
