"""What daemons tell each other of records, until all memberships are equal."""

from __future__ import annotations

from bmgd.sim.network import Network


def _digests(network: Network) -> set[str]:
    return {network.status(number)["digest"] for number in network.hosts}


def test_notices_make_a_late_founder_a_record_in_its_own_membership() -> None:
    network = Network(9, seed=3, start=False, start_ns=2_000_000_000)
    for number in (0, 1, 2, 4, 5, 6, 7, 8):
        network.boot(number)
    network.run_until(lambda: all(network.status(i)["dead"] == [3] for i in network.hosts))
    network.boot(3)
    network.run_until(lambda: all(network.status(i)["dead"] == [] for i in network.hosts))
    network.run_until(lambda: len(_digests(network)) == 1, limit_s=5)
