"""`python -m benchmarks.chaos`."""

from __future__ import annotations

import sys

from benchmarks.chaos.command import main

sys.exit(main())
