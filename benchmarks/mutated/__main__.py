"""`python -m benchmarks.mutated`."""

from __future__ import annotations

import sys

from benchmarks.mutated.command import main

sys.exit(main())
