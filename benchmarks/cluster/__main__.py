"""`python -m benchmarks.cluster`."""

from __future__ import annotations

from benchmarks.cluster.command import main

main()
