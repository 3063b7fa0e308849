"""`python -m benchmarks.tls`."""

from __future__ import annotations

import sys

from benchmarks.tls.command import main

sys.exit(main())
