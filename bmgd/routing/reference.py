"""The reference of what the extension does: the same functions with the same answers, in Python.

It serves where the extension could not be built, and the tests hold the extension against it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import index
from typing import final

from bmgd import frameheader as header
from bmgd.errors import GraphError
from bmgd.routing.ranks import (
    checked_id,
    checked_id_space,
    id_of,
    link_changes,
    neighbor_ids,
    rank_of,
)
from bmgd.routing.runs import Runs
from bmgd.topology import SIZE_MAX
from bmgd.topology.distance import first_hop, first_hops, hop_count, optimal_jumps

__all__ = [
    "Snapshot",
    "first_hop",
    "first_hops",
    "hop_count",
    "id_of",
    "link_changes",
    "neighbor_ids",
    "rank_of",
]

_U32 = 2**32
_U63 = 2**63
_U64_MAX = 2**64 - 1


@final
class Snapshot:
    """What a relay needs to know to forward messages; immutable.

    Args:
        generation: the number of the snapshot, 0..2**63-1. Only carried along.
        self_id: the own id, 0..id_space-1.
        id_space: 1 + the highest id known, 1..2**31.
        outside: the ids of the space outside the layout, ascending; each item is an id, or a run
            (first, last) of them.
        links: (peer id, link id) of the links that are up. Peer ids 0..2**31-1, each once, not the
            own; link ids 1..2**63-1, each once.

    Raises:
        GraphError: an argument is out of its range, or `outside` is not ascending.

    O(items of outside + len(links)).
    """

    __slots__ = (
        "_generation",
        "_id_space",
        "_jump_links",
        "_layout_size",
        "_links",
        "_outside",
        "_rank",
        "_self_id",
    )

    def __init__(
        self,
        generation: int,
        self_id: int,
        id_space: int,
        outside: Sequence[int | tuple[int, int]],
        links: Sequence[tuple[int, int]],
    ) -> None:
        self._generation = index(generation)
        if not 0 <= self._generation < _U63:
            raise GraphError(f"generation {self._generation} is not within 0..2**63-1")
        self._id_space = checked_id_space(id_space)
        self._self_id = checked_id(self_id, self._id_space)
        self._outside = _checked_outside(outside, self._id_space)
        self._links = _checked_links(links, self._self_id)
        self._layout_size = self._id_space - len(self._outside)
        self._rank = self._rank_of(self._self_id)
        self._jump_links = self._link_every_jump()

    @property
    def generation(self) -> int:
        """The number of the snapshot."""
        return self._generation

    @property
    def self_id(self) -> int:
        """The own id."""
        return self._self_id

    @property
    def id_space(self) -> int:
        """1 + the highest id known."""
        return self._id_space

    @property
    def layout_size(self) -> int:
        """The number of ids inside the layout."""
        return self._layout_size

    @property
    def rank(self) -> int:
        """The own rank, -1 if the own id is outside the layout."""
        return self._rank

    def next_hop(self, destination: int, came_from: int = -1, flow: int = 0) -> int:
        """The link that a message goes out on.

        A destination that is itself linked is reached over its link. Else one of the linked
        neighbors that start a shortest path is taken, never the one the message came from; the
        flow decides which, so that load is spread and a flow keeps its path.

        Args:
            destination: a node id, 0..2**32-1.
            came_from: the id at the other end of the link the message came on, -1 for none.
            flow: any number from 0 to 2**64-1, see `bmgd.frameheader.flow_of`.

        Returns:
            A link id; or -1 without such a neighbor, and where the destination is this node or
            it or this node is not in the layout.

        Raises:
            GraphError: an argument is out of its range.

        O(log n + log(len(outside))). Source: Routing §3.1, §3.3.
        """
        to, back, key = index(destination), index(came_from), index(flow)
        if not 0 <= to < _U32:
            raise GraphError(f"destination {to} is not within 0..2**32-1")
        if not -1 <= back < _U32:
            raise GraphError(f"came_from {back} is not within -1..2**32-1")
        if not 0 <= key <= _U64_MAX:
            raise GraphError(f"flow {key} is not within 0..2**64-1")
        return self._choose(to, back, key)

    def split(
        self, buffer: bytearray, end: int, came_from: int
    ) -> tuple[int, list[tuple[int, bytes]], list[bytes], str | None]:
        """Split what came from a link into frames and decide where each one goes.

        Args:
            buffer: what was received; the hop budgets of relayed frames are decremented in it.
            end: how many bytes of it count, 0..len(buffer).
            came_from: the id at the other end of the link, -1 for none.

        Returns:
            (consumed, runs, frames, error): the length of the whole frames at the start; one
            (link id, bytes) per outgoing link and class (priority 0, 1, or any other), in order of
            first use, each the frames to send there with their length prefixes; the bodies of the
            frames for the core, in order; and the reason why the bytes from `consumed` on are
            malformed, or None.

        Raises:
            GraphError: `end` or `came_from` is out of its range.

        O(end). Source: docs/wire-protocol.md.
        """
        last, back = index(end), index(came_from)
        if not 0 <= last <= len(buffer):
            raise GraphError(f"end {last} is not within 0..{len(buffer)}")
        if not -1 <= back < _U32:
            raise GraphError(f"came_from {back} is not within -1..2**32-1")
        runs: dict[tuple[int, int], bytearray] = {}
        frames: list[bytes] = []
        error = None
        at = 0
        while last - at >= header.LENGTH_BYTES:
            body = at + header.LENGTH_BYTES
            length = int.from_bytes(buffer[at:body], "big")
            if not header.BODY_BYTES_MIN <= length <= header.FRAME_BYTES_MAX:
                error = header.BAD_LENGTH
                break
            if last - body < length:
                break
            error = _malformed(buffer, body)
            if error is not None:
                break
            link = self._relay(buffer, body + header.BODY_PREFIX_BYTES, back)
            if link == -1:
                frames.append(bytes(buffer[body : body + length]))
            else:
                priority = buffer[body + header.BODY_PREFIX_BYTES + header.PRIORITY_AT]
                run = runs.setdefault((link, min(priority, 2)), bytearray())
                run.extend(buffer[at : body + length])
            at = body + length
        return at, [(link, bytes(run)) for (link, _), run in runs.items()], frames, error

    def _relay(self, buffer: bytearray, at: int, came_from: int) -> int:
        """The link for the frame with its header at `at`, its hop budget spent; -1: the core."""
        kind, flags, _, budget, to, source, *_ = header.HEADER.unpack_from(buffer, at)
        if (
            kind <= header.LINK_LOCAL_LAST
            or flags & (header.FLAG_CAREFUL | header.FLAG_RECORD)
            or budget == 0
        ):
            return -1
        link = self._choose(to, came_from, header.flow_of(source, to))
        if link != -1:
            buffer[at + header.HOP_BUDGET_AT] -= 1
        return link

    def _choose(self, destination: int, came_from: int, flow: int) -> int:
        rank = self._rank_of(destination)
        if self._rank == -1 or rank == -1 or destination == self._self_id:
            return -1
        if destination in self._links:
            return self._links[destination]
        distance = (rank - self._rank) % self._layout_size
        forward, backward = optimal_jumps(self._layout_size, distance)
        optimal = forward | backward << 32
        live = [
            link
            for bit, (peer, link) in self._jump_links.items()
            if optimal >> bit & 1 and peer != came_from
        ]
        return live[_spread(flow, self._self_id, len(live))] if live else -1

    def _rank_of(self, node_id: int) -> int:
        if node_id >= self._id_space:
            return -1
        if node_id in self._outside:
            return -1
        return node_id - bisect_left(self._outside, node_id)

    def _link_every_jump(self) -> dict[int, tuple[int, int]]:
        """(peer id, link id) by the bit of `optimal_jumps`, forward ones first, where linked."""
        linked: dict[int, tuple[int, int]] = {}
        n = self._layout_size
        if self._rank == -1:
            return linked
        for sign, base in ((1, 0), (-1, 32)):
            for i in range((n - 1).bit_length()):
                peer = id_of((self._rank + sign * (1 << i)) % n, self._outside)
                if peer in self._links:
                    linked[base + i] = (peer, self._links[peer])
        return linked


def _malformed(buffer: bytearray, body: int) -> str | None:
    """The reason why a whole frame's body cannot be a frame, or None."""
    if (
        not header.ARRAY_FIRST <= buffer[body] <= header.ARRAY_LAST
        or buffer[body + 1] != header.BIN_8
        or buffer[body + 2] != header.HEADER_BYTES
    ):
        return header.BAD_HEADER
    kind = buffer[body + header.BODY_PREFIX_BYTES + header.KIND_AT]
    if not header.LINK_LOCAL_FIRST <= kind <= header.ROUTED_LAST:
        return header.BAD_KIND
    return None


def _spread(flow: int, self_id: int, count: int) -> int:
    """One of `count` choices by hash; nodes mix in their id, or a flow would always lean one way.

    The hash is splitmix64's finalizer.
    """
    x = (flow + (self_id + 1) * 0x9E3779B97F4A7C15) & _U64_MAX
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _U64_MAX
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _U64_MAX
    x ^= x >> 31
    return (x >> 32) * count >> 32


def _checked_outside(outside: Sequence[int | tuple[int, int]], id_space: int) -> Runs:
    runs, before = Runs(), -1
    for item in outside:
        first, last = _checked_run(item)
        if not 0 <= first <= last < id_space:
            raise GraphError(f"an id outside the layout is not within 0..{id_space - 1}")
        if first <= before:
            raise GraphError("the ids outside the layout are not ascending")
        runs.add(first, last)
        before = last
    return runs


def _checked_run(item: int | tuple[int, int]) -> tuple[int, int]:
    if not isinstance(item, tuple):
        return index(item), index(item)
    if len(item) != 2:
        raise GraphError("a run of ids is not (first, last)")
    return index(item[0]), index(item[1])


def _checked_links(links: Sequence[tuple[int, int]], self_id: int) -> dict[int, int]:
    checked: dict[int, int] = {}
    for peer, link in links:
        if not 0 <= index(peer) < SIZE_MAX or peer == self_id or peer in checked:
            raise GraphError(f"peer {peer} cannot be linked, or is linked twice")
        if not 1 <= index(link) < _U63:
            raise GraphError(f"link id {link} is not within 1..2**63-1")
        checked[peer] = link
    if len(set(checked.values())) != len(checked):
        raise GraphError("two peers have the same link id")
    return checked
