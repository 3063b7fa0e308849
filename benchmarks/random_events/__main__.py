"""`python -m benchmarks.random_events`."""

from __future__ import annotations

import sys

from benchmarks.random_events.command import main

sys.exit(main())
