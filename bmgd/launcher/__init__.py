"""A cluster of N daemons on this machine.

    bmgd launch (supervisor) ──fork──▶ zygote ──fork──▶ daemon 0 … N-1
         ▲    ▲                          │                   │
         │    └── who began, who ended ──┘                   │
         └────────────── events, one inherited pipe ─────────┘

`rundir` is what lies in the run directory and how others read it; `zygote` forks daemons out of a
warmed-up process; `supervisor` is the launcher itself; `restart` asks a running one for a daemon.
Each of the three dies with the one before it, so a killed launcher leaves nothing behind.
"""
