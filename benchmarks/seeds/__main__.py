"""`python -m benchmarks.seeds`."""

from __future__ import annotations

import sys

from benchmarks.seeds.command import main

sys.exit(main())
