"""The ways between the ends of connections: in order, and able to lose any suffix when they break.

Theory of operation. What one end sends is planned to arrive at the other after a delay, never before
what was sent earlier. On arrival it is looked at:

    sent after the cut-off of a broken connection --> lost
    the way is cut, or the connection is dead     --> held, until the cut is mended
    the other process is stopped or busy          --> held back, until it goes on
    otherwise                                     --> read: bytes by the real splitter and codec

So whether bytes pass is decided when they arrive. A kernel that gets no acknowledgement gives up after
the user timeout, tells its own side only, and answers later bytes with a reset.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from bmgd.sim.blockade import Blockade
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import End, Host
from bmgd.sim.timeline import Timeline

_MILLION: Final = 1_000_000


class Ways:
    """Carries things from one end of a connection to the other.

    Args:
        timeline: virtual time.
        random: for delays and losses.
        conditions: what the network is like.
        blockade: who does not hear whom.
        on_given_up: called with an end whose kernel has waited too long for an acknowledgement.
    """

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        conditions: Conditions,
        blockade: Blockade,
        on_given_up: Callable[[End], None],
    ) -> None:
        self._timeline = timeline
        self._random = random
        self._conditions = conditions
        self._delay_ns, self._span_ns = conditions.delay_min_ns, conditions.delay_span_ns
        self._blockade = blockade
        self._on_given_up = on_given_up

    def delay_ns(self) -> int:
        """How long one chunk travels."""
        span_ns = self._span_ns
        return self._delay_ns + (int(self._random.random() * span_ns) if span_ns else 0)

    def carry(self, end: End, size: int, action: Callable[..., None], *args: Any) -> None:
        """Let something happen at the other end, after all that was sent before."""
        other = end.other
        assert other is not None
        at_ns = self._timeline.now_ns + self.delay_ns()
        if self._blockade.any_slow:
            at_ns += self._blockade.delay_of(end.host.where, other.host.where, size)
        if at_ns < end.last_ns:
            at_ns = end.last_ns
        end.last_ns = at_ns
        end.sent += 1
        self._timeline.plan(at_ns, self._arrive, end, end.sent, action, args)

    def _arrive(
        self, end: End, number: int, action: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        if number > end.cut_off:
            return
        other = end.other
        assert other is not None
        here, there, blockade = end.host, other.host, self._blockade
        if end.dead or (blockade.any_blocked and blockade.blocks(here.where, there.where)):
            self._hold(end, number, action, args)
            return
        if end.held:
            # What was held goes first: this waits behind it.
            end.held.append((number, action, args))
            return
        end.arrived = number
        if blockade.any_blocked and blockade.blocks(there.where, here.where):
            self._doubt(end)
        if not there.alive:
            return
        if there.stopped or there.busy:
            there.held_back.append((action, args))
        else:
            action(*args)

    def _hold(
        self, end: End, number: int, action: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        if end.held is None:
            end.held = []
        end.held.append((number, action, args))
        self._doubt(end)

    def _doubt(self, end: End) -> None:
        """Its kernel waits for an acknowledgement."""
        timeout_ns = self._conditions.user_timeout_ms * _MILLION
        if timeout_ns and not end.doubted_ns:
            end.doubted_ns = self._timeline.now_ns or 1
            at_ns = self._timeline.now_ns + timeout_ns
            self._timeline.plan(at_ns, self._give_up, end, end.doubted_ns)

    def _give_up(self, end: End, since_ns: int) -> None:
        if not end.open or end.doubted_ns != since_ns:
            return
        end.cut_off = end.arrived
        end.held = None
        self._on_given_up(end)

    def release(self, ends: list[End]) -> None:
        """What was held for these ends is sent again, where nothing holds it any more.

        Args:
            ends: in a fixed order.
        """
        for end in ends:
            other = end.other
            if other is None or end.dead:
                continue
            here, there = end.host.where, other.host.where
            if self._blockade.blocks(here, there):
                continue
            if not self._blockade.blocks(there, here):
                end.doubted_ns = 0
            if end.held:
                retry_ns = self._conditions.retry_us_max * 1_000
                at_ns = self._timeline.now_ns + self.delay_ns()
                at_ns += int(self._random.random() * retry_ns) if retry_ns else 0
                self._timeline.plan(at_ns, self._arrive_held, end)

    def _arrive_held(self, end: End) -> None:
        held, end.held = end.held, None
        for number, action, args in held or ():
            self._arrive(end, number, action, args)

    def tell(self, host: Host, action: Callable[..., None], *args: Any) -> None:
        """Let something happen at a host now, or when it is no longer stopped."""
        if not host.alive:
            return
        if host.stopped or host.busy:
            host.held_back.append((action, args))
        else:
            action(*args)

    def lose_suffix(self, end: End) -> None:
        """Of what is underway to the other end something, from some moment on, never arrives."""
        kept = self._random.randint(end.arrived, max(end.arrived, end.sent))
        end.cut_off = min(end.cut_off, kept)

    def carry_past_loss(self, end: End, action: Callable[..., None], *args: Any) -> None:
        """What the kernel itself says at the end is not lost: it is numbered as the last kept."""
        at_ns = max(self._timeline.now_ns + self.delay_ns(), end.last_ns)
        end.last_ns = at_ns
        number = min(end.sent, end.cut_off)
        self._timeline.plan(at_ns, self._arrive, end, number, action, args)
