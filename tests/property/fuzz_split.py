"""Feed the splitter of the extension with damaged and random bytes, for a bounded time.

    python -m tests.property.fuzz_split --rounds 3000 --seed 1

It is meant to run under the sanitizers (.ci/sanitize), which end it where memory is misused; here
it only checks that every byte is accounted for. A failure names the seed of its round.
"""

from __future__ import annotations

import argparse
from random import Random

from bmgd import _fastroute
from tests.property.test_forwarding_backends import random_frame, random_layout


def damaged_stream(random: Random, space: int, busy: list[int]) -> bytearray:
    """Frames with bytes changed, cut out and put in; or nothing but noise."""
    if random.random() < 0.2:
        return bytearray(random.randbytes(random.randint(0, 3000)))
    frames = [random_frame(random, space, busy) for _ in range(random.randint(1, 60))]
    stream = bytearray(b"".join(frames))
    for _ in range(random.choice((0, 1, 2, 8))):
        at = random.randrange(len(stream) + 1)
        cut = random.choice((0, 1, random.randint(0, 50)))
        stream[at : at + cut] = random.randbytes(random.choice((0, 1, cut)))
    return stream


def fuzz(seed: int) -> None:
    """One round: one layout, a few streams, each in an allocation of exactly its length."""
    random = Random(seed)
    own, space, _, links = layout = random_layout(random)
    snapshot = _fastroute.Snapshot(1, *layout)
    busy = [own, *(peer for peer, _ in links)]
    known = {link for _, link in links}
    for _ in range(10):
        buffer = damaged_stream(random, space, busy)
        end = random.choice((len(buffer), random.randint(0, len(buffer))))
        back = random.choice((-1, random.choice(busy)))
        consumed, runs, core, error = snapshot.split(buffer, end, back)
        carried = sum(len(run) for _, run in runs) + sum(len(body) + 4 for body in core)
        assert carried == consumed <= end, seed
        assert known.issuperset(link for link, _ in runs), seed
        if error is not None:
            assert snapshot.split(buffer[consumed:], end - consumed, back) == (0, [], [], error), (
                seed
            )


def main() -> None:
    """Run as many rounds as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000, help="how many layouts to try")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first round")
    chosen = parser.parse_args()
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        fuzz(seed)
    print(f"{chosen.rounds} rounds from seed {chosen.seed}: every byte accounted for")


if __name__ == "__main__":
    main()
