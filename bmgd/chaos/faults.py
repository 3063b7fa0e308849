"""What can be done to a cluster, one class per fault, and how each looks in a plan's JSON.

The table at the end says for every fault which keys its step has. Reading checks each value; what is
wrong with a single value is found here, what contradicts the steps before is found in `plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bmgd.errors import PlanError
from bmgd.types import NodeId

Pair = tuple[NodeId, NodeId]

NODES_MAX = 2**20
JOINERS_MAX = 4096
HOGS_MAX = 64
_SECONDS_MAX = 1e9


@dataclass(frozen=True, slots=True)
class Kill:
    """End processes at once, as SIGKILL does."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Restart:
    """Start processes again that have ended, in a new life at the same address.

    Args:
        clock_s: how far their wall clock is from the true time.
        keeps_state: whether the incarnation counter of the former life is still known.
    """

    nodes: tuple[NodeId, ...]
    clock_s: float = 0.0
    keeps_state: bool = True


@dataclass(frozen=True, slots=True)
class Stop:
    """Let processes do nothing, as SIGSTOP does; their kernels still accept."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Continue:
    """Let stopped processes go on."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Let nodes leave gracefully."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Let new processes join, all at once.

    Args:
        count: how many.
        through: the node that they contact; None for a running one by chance.
    """

    count: int = 1
    through: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Let a node's operator throw others out."""

    nodes: tuple[NodeId, ...]
    by: NodeId


@dataclass(frozen=True, slots=True)
class Cut:
    """Let nothing pass from the first to the second of each pair, nor back unless `one_way`."""

    links: tuple[Pair, ...]
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """Cut between any two ids of different groups; an id in no group sees everybody.

    Args:
        one_way: group 0 still hears the others, which hear nobody outside their own group.
    """

    groups: tuple[tuple[NodeId, ...], ...]
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class Mend:
    """Undo cuts, partitions, slowness and half-open links: of these pairs, or (None) all of it."""

    links: tuple[Pair, ...] | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """Delay what passes between the pairs, both ways, or all that these nodes send and receive.

    Args:
        delay_ms: added to every chunk.
        bytes_per_second: at most; 0 for no bound.
    """

    links: tuple[Pair, ...] = ()
    nodes: tuple[NodeId, ...] = ()
    delay_ms: float = 0.0
    bytes_per_second: int = 0


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """Let the connections of these pairs die without either end being told."""

    links: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connections of these pairs, or (None) all, at once; either end may lose a suffix."""

    links: tuple[Pair, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hog:
    """Take processor time away; in the simulator some nodes are slow meanwhile."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Takeover:
    """Let another process listen at the addresses of dead nodes, until they restart or all is mended.

    Args:
        answers: whether it is the daemon of another cluster; else it accepts and says nothing.
    """

    nodes: tuple[NodeId, ...]
    answers: bool = False


@dataclass(frozen=True, slots=True)
class Clock:
    """Step the clocks of nodes."""

    nodes: tuple[NodeId, ...]
    step_ms: float


@dataclass(frozen=True, slots=True)
class Crash:
    """Let nodes die between two effects of their core (simulator; on real clusters: kill)."""

    nodes: tuple[NodeId, ...]
    after_effects: int = 0


Fault = (
    Kill
    | Restart
    | Stop
    | Continue
    | Leave
    | Join
    | Evict
    | Cut
    | Partition
    | Mend
    | Slow
    | HalfOpen
    | Reset
    | Hog
    | Takeover
    | Clock
    | Crash
)


# --- single values --------------------------------------------------------------------------------


def integer(low: int, high: int) -> Callable[[object], int]:
    """A reader of integers in a range."""

    def read(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise PlanError(f"not an integer in {low}..{high}: {value!r}")
        return value

    return read


def number(low: float, high: float) -> Callable[[object], float]:
    """A reader of numbers in a range."""

    def read(value: object) -> float:
        if type(value) not in (int, float) or not low <= float(str(value)) <= high:
            raise PlanError(f"not a number in {low:g}..{high:g}: {value!r}")
        return float(str(value))

    return read


def boolean(value: object) -> bool:
    """Read true or false."""
    if type(value) is not bool:
        raise PlanError(f"not true or false: {value!r}")
    return value


_node_number = integer(0, NODES_MAX + JOINERS_MAX)


def _node(value: object) -> NodeId:
    return NodeId(_node_number(value))


def _list(value: object) -> list[object]:
    if type(value) is not list or not value:
        raise PlanError(f"not a list with something in it: {value!r}")
    return value


def _nodes(value: object) -> tuple[NodeId, ...]:
    nodes = tuple(_node(item) for item in _list(value))
    if len(set(nodes)) != len(nodes):
        raise PlanError("a node twice in one list")
    return nodes


def _pairs(value: object) -> tuple[Pair, ...]:
    pairs = []
    for item in _list(value):
        ends = _nodes(item)
        if len(ends) != 2:
            raise PlanError(f"not a pair of nodes: {item!r}")
        pairs.append((ends[0], ends[1]))
    return tuple(pairs)


def _groups(value: object) -> tuple[tuple[NodeId, ...], ...]:
    groups = tuple(_nodes(item) for item in _list(value))
    members = [node for group in groups for node in group]
    if len(groups) < 2 or len(set(members)) != len(members):
        raise PlanError("not two or more groups without a common node")
    return groups


def _state(value: object) -> bool:
    if value not in ("kept", "lost"):
        raise PlanError(f"neither kept nor lost: {value!r}")
    return value == "kept"


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a step: its name in JSON, the attribute, and how it is read and written."""

    name: str
    read: Callable[[object], Any]
    required: bool = False
    attribute: str = ""
    write: Callable[[Any], object] | None = None

    @property
    def target(self) -> str:
        """The attribute's name."""
        return self.attribute or self.name


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault: its class, and the keys of its step beside ``at`` and ``fault``."""

    fault: type[Any]
    keys: tuple[Key, ...] = field(default=())


_NODES: Final = Key("nodes", _nodes, required=True)
_LINKS: Final = Key("links", _pairs, required=True)
_ONE_WAY: Final = Key("one_way", boolean)

KINDS: Final[dict[str, Kind]] = {
    "kill": Kind(Kill, (_NODES,)),
    "restart": Kind(
        Restart,
        (
            _NODES,
            Key("clock", number(-_SECONDS_MAX, _SECONDS_MAX), attribute="clock_s"),
            Key("state", _state, attribute="keeps_state", write=lambda k: "kept" if k else "lost"),
        ),
    ),
    "stop": Kind(Stop, (_NODES,)),
    "continue": Kind(Continue, (_NODES,)),
    "leave": Kind(Leave, (_NODES,)),
    "join": Kind(Join, (Key("count", integer(1, JOINERS_MAX)), Key("through", _node))),
    "evict": Kind(Evict, (_NODES, Key("by", _node, required=True))),
    "cut": Kind(Cut, (_LINKS, _ONE_WAY)),
    "partition": Kind(Partition, (Key("groups", _groups, required=True), _ONE_WAY)),
    "mend": Kind(Mend, (Key("links", _pairs),)),
    "slow": Kind(
        Slow,
        (
            Key("links", _pairs),
            Key("nodes", _nodes),
            Key("delay_ms", number(0, 3_600_000)),
            Key("bytes_per_second", integer(0, 10**12)),
        ),
    ),
    "half-open": Kind(HalfOpen, (_LINKS,)),
    "reset": Kind(Reset, (Key("links", _pairs),)),
    "hog": Kind(
        Hog,
        (
            Key("count", integer(1, HOGS_MAX), required=True),
            Key("seconds", number(0, 86_400), required=True),
        ),
    ),
    "takeover": Kind(Takeover, (_NODES, Key("answers", boolean))),
    "clock": Kind(
        Clock, (_NODES, Key("step_ms", number(-_SECONDS_MAX, _SECONDS_MAX), required=True))
    ),
    "crash": Kind(Crash, (_NODES, Key("after_effects", integer(0, 10**9)))),
}
"""Every fault by its name in a plan."""

NAME_OF: Final[dict[type[Any], str]] = {kind.fault: name for name, kind in KINDS.items()}


def read_fault(step: dict[str, object]) -> Fault:
    """Read a step's fault.

    Args:
        step: the step's JSON object without ``at``.

    Raises:
        PlanError: an unknown fault or key, a missing key, or a value of a wrong kind.
    """
    name = step.get("fault")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise PlanError(f"no such fault: {name!r}")
    unknown = sorted(step.keys() - {"fault"} - {key.name for key in kind.keys})
    if unknown:
        raise PlanError(f"{name} has no key {unknown[0]!r}")
    values = {}
    for key in kind.keys:
        if key.name in step:
            try:
                values[key.target] = key.read(step[key.name])
            except PlanError as error:
                raise PlanError(f"{name}, {key.name}: {error}") from None
        elif key.required:
            raise PlanError(f"{name} needs the key {key.name!r}")
    fault: Fault = kind.fault(**values)
    if isinstance(fault, Slow) and bool(fault.links) == bool(fault.nodes):
        raise PlanError("slow needs either links or nodes")
    return fault


def write_fault(fault: Fault) -> dict[str, object]:
    """A step's JSON object without ``at``; values that are the default are left out."""
    name = NAME_OF[type(fault)]
    row: dict[str, object] = {"fault": name}
    for key in KINDS[name].keys:
        value = getattr(fault, key.target)
        default = type(fault).__dataclass_fields__[key.target].default
        if key.required or value != default:
            row[key.name] = key.write(value) if key.write else value
    return row
