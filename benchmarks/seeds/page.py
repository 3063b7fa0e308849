"""The page of the campaign of random seeds: what was run with which core, and what seeds are like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from random import Random

from benchmarks.seeds.kept import PARTS, Row
from bmgd.sim.conditions import Conditions
from bmgd.sim.options import random_scenario

SHARES_OF = 1_000
OLDEST = "1e0311c"
"""Of the rows that name no core."""

COLUMNS = (
    *("campaign", "core", "seeds", "nodes", "faults for, s", "violated", "pass now"),
    *("simulated hours", "steps of cores", "hours of processor"),
)

LATELY = (
    "What 125269733c29 violated was no fault of its own either. A process that became another node hands",
    "out what it took before (7615), and where three lives are remembered may forget how far its readers",
    "were (4729); what is for no life is answered by a reset (5412). In 2894 a joiner whose id was given",
    "twice was alone with it: it dials all who are gone by lot, and did not hit within 120 s who would",
    "have told it again. There are 600 s more now, where sides can meet only so. In hour 270 three",
    "lives of sources were remembered, of ten: who had no room for a source refused all its broadcasts,",
    "and was told of none once that source had ended.",
    "",
    "What 32cede4bbbc8 violated was no fault of its own. Who had left, was back, and left once more may",
    "have acknowledged what it skipped (118 of the hours, 3387 of the small ones); a node may have been",
    "dead before the step in which it is known to have left (134); and nobody owes word of a long",
    "question of which a piece was given up (139); a link may last longer than what is known of a joiner",
    "that left (373). The checkers know it now.",
    "",
    "Three of the first 168 hours of 96b6a69e332b violated something; all of it is mended now, and has a",
    "test. 131: a node was held dead while a broadcast was underway, had left, came back, and was told",
    "that it missed it; its source reported it among the confirmed, for it acknowledges what it skips.",
    "152: where all that is underway of a stream is in doubt already, the stream gets a new id later,",
    "and its program was not told of the credit that it has again. 134: a checker knew only how a step",
    "ended, in which a node was first dead and then known to have left.",
    "",
    "Two faults that fresh seeds of 2 to 33 nodes showed are mended in 96b6a69e332b. Where a source was",
    "gone, and all neighbors of a node that lacked its broadcast had begun after it was sent, that node",
    "neither got it from others nor was told. A node that had asked a source before that sent anything,",
    "and began a new life, was reported as not having confirmed what its new life had confirmed. Of the",
    "10,000 small seeds of that core one (6460) was violated at first: a checker took the answer of a",
    "former life, which no source takes, for one that counts. With that mended it was run again, and",
    "passes.",
    "",
    "The first seeds of 8e281d5e4e80 and ebaa16bdcacf were the first ones of many new checkers, compiled",
    "with bounds that are narrow in truth. Most of what they violated were cases that a checker had not",
    "thought of. What the core did, each of which has a test now: a node that was late was less patient",
    "with others than it was late; a broadcast was reported as not confirmed (NewLifeError) by a life",
    "that it was for, where its id was told to have left before any life of it was known; where an older",
    "member was upgraded before anybody had a record of it, the cluster stayed at what the older release",
    "can do.",
    "",
    "Of the 16 seeds that 3c622676a0e2, 5198126e542e and 05be549638d1 violated, with many new checkers,",
    "half showed faults of the core; 2a2983388a3b is without them. A node that got copies of a",
    "founder's former life, and knew no other life of it, kept them for ever (683, 1033, 9655); so it",
    "asked for the programs of that life for ever (621). Of a source that was gone a node asked only a",
    "neighbor that was further, which had skipped what was missing, and not the others that had it",
    "(473). A process that took another id told its readers that they missed what it had itself sent in",
    "a former life (1268), and with few lives known forgot at once how far they were in all of them",
    "(4729). A source that lay on the way between two heads of the tree did not pass its own message on",
    "(4931). The others were faults of checkers, and two of the simulator: who had no room for a copy",
    "may miss it (222, 9640); a pause may have doubled where nobody saw it (209); an acknowledgement",
    "that comes back is none (557); the record that counts comes after the verdict (3285); of very many",
    "that are sent again the last have no turn in time (3344); a step took a whole tick (817); and a",
    "long message that was begun in the last tick was never finished (1329).",
    "",
    "What 4f88cccf816c violated was no fault of its own: a checker did not know that a node which",
    "remembers too many skips may forget that a broadcast of others passed it.",
    "",
    "What 4d3d2d05eea2 violated was its fault: a founder that began again without its state, in a life",
    "below its former one, was taken to have what the former one had acknowledged.",
    "",
    "Of the four seeds that fef9557f56d2 violated two showed faults of the core. Messages that were sent",
    "singly to a node that had begun a new life went on with the window of the former one. A node that",
    "was told of broadcasts before the record of their source's life came was not told of them again.",
    "Else a checker did not know that clocks may leap over the time for which copies are kept, and the",
    "simulator expected rest before its readers were back. With the workload before, two checkers did",
    "not know that a record may move in the step in which a broadcast is given up, and that a multicast",
    "for a former life ends its stream.",
    "",
    "What 246008282a35 violated was no fault of its own: a checker compared what was published with a",
    "layout that came after it.",
    "",
    "Of the eight seeds that fce76ecd4595 violated four showed faults of the core. A node that had been",
    "ready and left within seconds of its start let senders wait that knew no life of it. Who had heard",
    "of broadcasts from a neighbor, and lost that link before they came, was not told that it missed",
    "them. A process that took another id was told that it missed what it had sent under the former one.",
    "A life that another followed was kept for ever where nobody lacked any of it.",
    "",
    "One of what 9f2e20f8bb77 violated was its fault, in the 207th hour: a node that had been late",
    "looked a timeout too late at who was silent, where a record had come meanwhile. At 2 to 12 nodes",
    "five times second copies of messages, which are new in the simulator, came from a node that was",
    "cut off; once a program of the simulator asked a daemon that had ended; once a checker did not see",
    "that a record had gone out. At 2 to 33 parts of a cluster that found each other late were judged",
    "at once, and a checker took what came over a link that was closed at its beginning for heard. In",
    "an hour each, five times a checker took for kept back what had become stable while its source was",
    "alone; once a founder that had met nobody could ask nobody about another one that was cut off; and",
    "once the simulator let a copy come of a segment that was refused, of which its source could not",
    "know.",
    "",
)

BEFORE = (
    "Before, on 2026-11-22 and 23, these were on several states of the core, each of which mended what",
    "the one before it had shown (`bmgd sim --campaign`, seeds from 1 on):",
    "",
    "| what | seeds | violated | of which the core was to blame |",
    "|---|---|---|---|",
    "| 2 to 33 nodes, 5 s of faults | 4,365 | 15 | 7 |",
    "| 2 or 3 nodes, an hour each | 60 | 8 | 2 |",
    "| 3 to 9 nodes, 700 s | 65 | 6 | 1 |",
    "",
    "The others were faults of checkers, most of them of ids that are retired, which no seed had",
    "come to, and three of the simulator. What the core did: it took a neighbor to be dialled for",
    "ever after a secret was renewed; of broadcasts whose source had died it asked who had none,",
    "or asked for the same part again, or not for a gap at all, until the copies went; it told of",
    "one missed and not of the next, nor readers whose daemon took another id; it used streams",
    "that had been forgotten while it was stopped; it did not ask a source that came back; and it",
    "told a program that a message is not sent of which a copy was still underway.",
    "Each has a test now. One seed (3101, a broadcast that is not stable at rest) passes since,",
    "and was not explained.",
)


def report(rows: Iterable[Row]) -> Iterator[str]:
    """The page, line by line."""
    shown = list(rows)
    yield "# The campaign of random seeds"
    yield ""
    yield "Written by `python -m benchmarks.seeds report`, of [results/seeds.jsonl](results/seeds.jsonl)."
    yield "Each seed decides size, settings, network, faults and traffic ([simulator.md](simulator.md));"
    yield "all checkers watch each step."
    yield ""
    yield "*Core* is the digest of the sources that were run (`python -m benchmarks.core_sources` prints"
    yield "that of these); 1e0311c is the commit of an older one, without streams, reliable broadcasts,"
    yield "requests and programs. *Pass now* are seeds that violated something and do not any more, since"
    yield "a checker or the core was mended."
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for (name, core), group in _by_campaign(shown):
        if name in PARTS:
            yield _line(name, core, group)
    for row in shown:
        if row["campaign"] == "compared":
            yield ""
            yield (
                f"{row['seeds']} seeds of {row.get('core', OLDEST)} were run twice, in other processes"
                f" with another PYTHONHASHSEED: {len(row['failed'])} gave another trace."
            )
    yield ""
    yield from LATELY
    yield from BEFORE


def _by_campaign(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    """Rows of one campaign with one core together, the latest core first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["campaign"], row.get("core", OLDEST)), []).append(row)
    yield from reversed(groups.items())


def _line(name: str, core: str, rows: list[Row]) -> str:
    part = PARTS[name]
    failed = sum(len(row["failed"]) for row in rows)
    mended = sum(len(row.get("passes_now", [])) for row in rows)
    cells = (
        *(name, core, f"{sum(row['seeds'] for row in rows):,}"),
        *(f"{part.nodes[0]} to {part.nodes[1]}", f"{part.seconds:g}", failed, mended),
        f"{sum(row['virtual_s'] for row in rows) / 3600:,.1f}",
        f"{sum(row['events'] for row in rows):,}",
        f"{sum(row['real_s'] for row in rows) / 3600:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def shares(seeds: int = SHARES_OF) -> dict[str, float]:
    """In which share of the seeds each option is not as a daemon has it, and each fault occurs."""
    part, plain = PARTS["many"], asdict(Conditions())
    counted: Counter[str] = Counter()
    for seed in range(1, seeds + 1):
        nodes = Random(f"size {seed}").randint(*part.nodes)
        scenario = random_scenario(seed, nodes, part.seconds)
        on = {f"setting {key}" for key in scenario.settings}
        on |= {f"network {key}" for key, value in scenario.simulated.items() if value != plain[key]}
        on |= {f"fault {type(step.fault).__name__.lower()}" for step in scenario.steps}
        counted.update(on)
    return {name: counted[name] / seeds for name in sorted(counted)}


def shares_table() -> Iterator[str]:
    """The shares as a table of the page."""
    yield ""
    yield f"Of {SHARES_OF:,} seeds this share has a setting, network or fault that is no default:"
    yield ""
    yield "| option | share |"
    yield "|---|---|"
    for name, share in shares().items():
        yield f"| {name} | {100 * share:.0f} % |"
