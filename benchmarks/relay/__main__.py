"""`python -m benchmarks.relay`."""

from __future__ import annotations

from benchmarks.relay.command import main

main()
