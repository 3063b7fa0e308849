"""`python -m benchmarks.c_mutants`."""

from __future__ import annotations

from benchmarks.c_mutants.command import main

main()
