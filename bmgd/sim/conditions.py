"""What the simulated network and machines are like: the options of the simulator, docs/simulator.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from bmgd.errors import PlanError

_US = 1_000


@dataclass(frozen=True, slots=True)
class Conditions:
    """Options of the simulator; a plan's `simulated` has them by these names.

    Args:
        delay_min_us, delay_max_us: how long bytes travel, chosen anew for each chunk; a connection
            keeps their order.
        hello_trips: how many such delays pass until a dial's hello is at the core of the dialled one.
        loses_suffix: whether a connection that breaks may lose what is underway, from some byte on.
        torn: how many of a million chunks arrive in two pieces.
        linger_us_max: for so long after its death a listener may still accept.
        proxied_percent: how many hosts are behind a proxy that accepts for ever, and closes at once
            when they are dead.
        stale_us_max: for so long after the core published a snapshot the relay may use the old one.
        late_us_max: how late a deadline may be noticed.
        retry_us_max: how long after a cut was mended what was held back is sent again.
        user_timeout_ms: unacknowledged bytes break a connection after so long (TCP_USER_TIMEOUT);
            0 for never.
        drift_ppm: by how much at most clocks run fast or slow.
        skewed: whether the clocks of hosts show different times.
        start_us_max: founders start within this time.
        pipe_bytes: so many bytes a connection holds that were written and not yet read, in each
            direction; 0 for any number.
        write_bytes_max: a write takes at most so many bytes, often fewer, and the next one comes up to
            0.2 ms later; 0 for all at once.
        bulk_bytes_max: so many bytes of bulk wait for one link at most; 0 for what a daemon has.
        together_percent: how often a host that was stopped or busy reads all that came over its links
            before its core is told of anything.
        step_cost_us: for so long a step keeps a host busy, and a fiftieth of it for each effect.
        reading_messages: so many a program has in its hands at most.
        reading_us_max: how long a program has a message before it says that it has consumed it, while
            faults go on; afterwards 2 ms at most.
        reading_bytes: what a program has in its hands at most, in bytes of segments.
        bursts_percent: how often a program sends 2 to 8 messages at one moment to one node.
        streams_percent: how many of the sendings are segments of streams; the others are sent singly.
        long_percent: how many of those are pieces of a long message.
        long_bytes_max: how long one is at most.
        absent_ms_max: for how long readers go away at a time; 0 for never.
        second_reader_percent: how many daemons have two programs that read the same topic.
        stalled_percent: how many readers of broadcasts take nothing while faults go on.
        older_percent: how many founders are of an older release, until they are started again with
            their state.
        rekeys: how often the secret changes that links are made under, on one host after the other;
            0 for links without one.
        looks_per_s: how many programs look at something in a second, while faults go on.
        unusable_per_s: how many programs ask for what cannot be in a second, while faults go on.
        malformed_per_s: how many malformed frames members say in a second, while faults go on.
        forgeries: how many lies about members come over links, while faults go on.
        lags: how often a process stands still until it is just as late as makes a difference to it.
        floods: how often a member sends thousands of messages of one kind at once, while faults go on.
        former_lives: how many messages of former lives come late, at most, to nodes that wait for
            their first answer of another, while faults go on.
        legacies: how many former lives have left broadcasts of which each node has a part, at most.
        second_copies_percent: how many copies of messages at best effort come twice, while faults go on.
        late_segments_percent: how many segments come twice to a destination that is a neighbor, while
            faults go on.
        tick_us: everything happens at a multiple of this; 0 for any moment. Times are then equal to
            bounds, and to each other, as they are by chance only once in a while.
        narrow_percent: how many of the core's bounds in `narrowing.py` are small.
        refusing_percent: how many of those at which something is refused, while faults go on.
    """

    delay_min_us: int = 100
    delay_max_us: int = 100
    hello_trips: int = 1
    loses_suffix: bool = False
    torn: int = 0
    linger_us_max: int = 0
    proxied_percent: int = 0
    stale_us_max: int = 0
    late_us_max: int = 0
    retry_us_max: int = 0
    user_timeout_ms: int = 0
    drift_ppm: int = 0
    skewed: bool = False
    start_us_max: int = 0
    pipe_bytes: int = 0
    write_bytes_max: int = 0
    bulk_bytes_max: int = 0
    step_cost_us: int = 0
    together_percent: int = 0
    reading_messages: int = 16
    reading_us_max: int = 2_000
    reading_bytes: int = 1 << 20
    bursts_percent: int = 0
    streams_percent: int = 0
    long_percent: int = 0
    long_bytes_max: int = 100_000
    absent_ms_max: int = 0
    second_reader_percent: int = 0
    stalled_percent: int = 0
    older_percent: int = 0
    looks_per_s: int = 0
    rekeys: int = 0
    unusable_per_s: int = 0
    malformed_per_s: int = 0
    forgeries: int = 0
    floods: int = 0
    lags: int = 0
    former_lives: int = 0
    legacies: int = 0
    second_copies_percent: int = 0
    late_segments_percent: int = 0
    tick_us: int = 0
    narrow_percent: int = 0
    refusing_percent: int = 0

    @classmethod
    def of(cls, options: Mapping[str, object]) -> Conditions:
        """Read a plan's `simulated`.

        Raises:
            PlanError: an unknown option, or a value of a wrong kind or range.
        """
        kinds = {f.name: type(f.default) for f in fields(cls)}
        for name, value in options.items():
            kind = kinds.get(name)
            if kind is None:
                raise PlanError(f"simulated has no option {name!r}")
            if type(value) is not kind or (kind is int and not 0 <= int(str(value)) <= 10**9):
                raise PlanError(f"simulated, {name}: not a {kind.__name__} in range: {value!r}")
        conditions = cls(**options)  # type: ignore[arg-type]
        if conditions.delay_max_us < conditions.delay_min_us or conditions.hello_trips < 1:
            raise PlanError("simulated: delays or trips that cannot be")
        return conditions

    @property
    def delay_min_ns(self) -> int:
        """The shortest way of bytes."""
        return self.delay_min_us * _US

    @property
    def delay_span_ns(self) -> int:
        """How much longer the longest way is."""
        return (self.delay_max_us - self.delay_min_us) * _US
