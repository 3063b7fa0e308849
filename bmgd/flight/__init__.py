"""The flight recorder: what entered a core in the last minutes, kept, written, and run again.

The core is deterministic: a starting state and the events that followed give the same effects, byte for
byte. So a daemon that keeps both can be looked into afterwards, at any moment:

    catalog     the classes that a recording may name, and no others
    values      values and whole cores as plain data, and back
    recorder    keeps the last minutes of a living core, bounded in bytes
    recording   the file
    replay      runs a core over a recording, and compares
    timeline    recordings of several nodes as one sequence
"""
