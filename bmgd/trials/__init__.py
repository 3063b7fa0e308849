"""Trials on real processes: fault plans carried out on a cluster that runs, and a verdict.

    bmgd chaos ──signals──▶ daemons ◀──TCP──▶ fault proxy (`bmgd launch --fault-proxy`)
        │                      │                   ▲
        │◀──monitor, messages──┘                   │
        └──cut, slow, half-open, reset, mend───────┘

`proxy` and what it is made of (`gate`, `splice`, `impairments`) stand between the daemons of a
launch with a fault proxy; the rest is the side that harms, watches and judges.
"""
