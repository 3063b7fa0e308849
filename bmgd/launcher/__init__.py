"""A cluster of N daemons on this machine.

    bmgd launch (supervisor) ──fork──▶ zygote ──fork──▶ daemon 0 … N-1
         ▲    ▲                          │                   │
         │    └── who began, who ended ──┘                   │
         └────────────── events, one inherited pipe ─────────┘

`rundir` is what lies in the run directory and how others read it; `zygote` forks daemons out of a
warmed-up process; `supervisor` is the launcher itself; `daemons` is what it knows of each, and how it has
them started; `cluster_file` is what it writes down. `requests` is how others ask a running one for a
daemon, and `progress` how far it is with that.
Each of the three dies with the one before it, so a killed launcher leaves nothing behind.
"""
