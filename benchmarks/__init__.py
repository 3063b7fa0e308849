"""Measurements and campaigns: ``python -m benchmarks.NAME``, each told at the top of its module.

A command of one module is `NAME.py`. One of several is the directory `NAME/`: `command.py` is what it
runs, what stands beside that are its parts. Used by several: `launched.py` (a local cluster),
`forked.py` (daemons forked from one process), `commits.py` (other commits, to compare with),
`arbitrary/` (what peers and programs could say).
"""
