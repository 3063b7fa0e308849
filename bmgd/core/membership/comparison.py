"""What a flood has missed: digests are compared, then differing records are fetched, page by page.

Theory of operation. Every heartbeat carries the membership's digest. Unequal on two of them in a row,
the 64 bucket digests are exchanged. Each side then *fetches* from the other the records of the buckets
that differ, in pages of at most `RECORDS_PER_NOTICE_MAX` records, by ascending ids:

    (nothing) --digests differ twice--> Buckets --buckets differ--> PageAsk(lowest id)
    PageAsk --RecordPage, more to come--> PageAsk(the id that follows)
            --RecordPage, the last--> (nothing)         --link gone, no page for `PAGE_NS`--> (nothing)
            --RecordPage that does not go on--> (nothing)

So one page is underway at a time, however many records differ and over however many links: a node that
has missed much asks one of its peers, and finds the others equal afterwards. Who is asked keeps nothing.
What the first page brings is flooded: so two halves of a cluster that meet hear of each other quickly.
What later ones bring is not: whoever has missed as much finds by its digest that it has to fetch it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bmgd.core.context import Context, Link
from bmgd.core.links import Links
from bmgd.core.membership.notices import Notices
from bmgd.types import LinkId, NodeId, Record
from bmgd.wire.link_messages import BUCKETS, Buckets, PageAsk, RecordPage

MISMATCHES_TO_COMPARE = 2
PAGE_NS = 3_000_000_000
"""So long a page is waited for before another peer may be asked."""
FETCH_NS = 300_000_000_000
"""A fetch of more pages ends after so long, if others wait."""
REST_NS = PAGE_NS
REST_IN_VAIN_NS = 4 * PAGE_NS
"""If others waited, a peer rests so long after its last page; and so long if that was no good."""


@dataclass(slots=True)
class _Fetch:
    link: LinkId
    buckets: int
    began_ns: int
    asked_ns: int = 0
    after: int = 0
    pages: int = 0
    others_wait: bool = False


class Comparison:
    """The comparison of memberships over links."""

    def __init__(self, context: Context, links: Links, notices: Notices) -> None:
        self._context = context
        self._links = links
        self._notices = notices
        self._fetch: _Fetch | None = None
        self._rests_until_ns: dict[LinkId, int] = {}

    # --- digests ------------------------------------------------------------------------------

    def on_digest(self, link: Link, digest: int) -> bool:
        """A heartbeat's digest; returns whether it differed, for the first time on this link."""
        if digest == self._context.membership.digest:
            link.mismatches = 0
            link.agreed = True
            return False
        link.mismatches += 1
        if link.mismatches >= MISMATCHES_TO_COMPARE:
            link.mismatches = 0
            buckets = tuple(self._context.membership.buckets)
            self._context.send(link.id, Buckets(buckets, answer=True))
            return False
        return True

    def on_buckets(self, link: Link, theirs: Buckets) -> None:
        """Send the own buckets back if asked to, and fetch the records of those that differ."""
        ours = self._context.membership.buckets
        if theirs.answer:
            self._context.send(link.id, Buckets(tuple(ours), answer=False))
        differing = sum(1 << i for i in range(BUCKETS) if ours[i] != theirs.digests[i])
        if differing and self._may_fetch(link.id):
            self._fetch = _Fetch(link.id, differing, self._context.now_ns)
            self._ask(NodeId(0))

    def _may_fetch(self, link: LinkId) -> bool:
        """Whether a peer may be asked now: no other one is, and it is not others' turn."""
        fetch, now_ns = self._fetch, self._context.now_ns
        if fetch is not None and fetch.link not in self._links.table:
            # Lost, or closed by this node: no page comes any more.
            fetch = self._fetch = None
        if fetch is not None:
            if now_ns - fetch.asked_ns < PAGE_NS:
                fetch.others_wait |= fetch.link != link
                return False
            self._end(REST_IN_VAIN_NS)
        return now_ns >= self._rests_until_ns.get(link, 0)

    def _end(self, rest_ns: int) -> None:
        fetch, self._fetch, now_ns = self._fetch, None, self._context.now_ns
        resting = {i: until_ns for i, until_ns in self._rests_until_ns.items() if until_ns > now_ns}
        if fetch is not None and fetch.others_wait:
            resting[fetch.link] = min(now_ns, fetch.asked_ns + PAGE_NS) + rest_ns
        self._rests_until_ns = resting

    # --- pages --------------------------------------------------------------------------------

    def page(self, ask: PageAsk) -> RecordPage:
        """The page that somebody asks for."""
        found = self._context.membership.page(ask.after, ask.buckets)
        return RecordPage(found.records, found.retired, found.following)

    def on_page_ask(self, link: Link, ask: PageAsk) -> None:
        """A peer fetches records."""
        self._context.send(link.id, self.page(ask))

    def on_page(self, link: LinkId, page: RecordPage) -> None:
        """Records came over a link, which may be gone by now; ask for the next ones."""
        fetch = self._fetch
        is_expected = fetch is not None and fetch.link == link and link in self._links.table
        passes_on = fetch is None or not is_expected or fetch.pages == 0
        following = self._take(page, link, passes_on=passes_on)
        if fetch is None or not is_expected:
            return
        is_long = self._context.now_ns - fetch.began_ns > FETCH_NS and fetch.others_wait
        if following is None:
            self._end(REST_NS)
        elif following <= fetch.after or is_long:
            self._end(REST_IN_VAIN_NS)
        else:
            fetch.pages += 1
            self._ask(following)

    def _ask(self, after: NodeId) -> None:
        fetch = self._fetch
        assert fetch is not None
        fetch.after, fetch.asked_ns = after, self._context.now_ns
        self._context.send(fetch.link, PageAsk(after, fetch.buckets))

    def _take(self, page: RecordPage, link: LinkId, *, passes_on: bool) -> NodeId | None:
        """Take over a page, by ascending ids; returns where to go on, None for the end."""
        for first, last, record in in_order(page.records, page.retired):
            if record is not None:
                self._notices.take(first, record, link, passes_on=passes_on)
                continue
            done = self._notices.take_run(first, last, link, passes_on=passes_on)
            if done is not None and first <= done < last:
                return NodeId(done + 1)
        return page.following


def in_order(
    records: tuple[tuple[NodeId, Record], ...], retired: tuple[tuple[NodeId, NodeId], ...]
) -> list[tuple[NodeId, NodeId, Record | None]]:
    """Records and runs of retired ids by ascending ids, as (first, last, record or None)."""
    rows: list[tuple[NodeId, NodeId, Record | None]] = [(i, i, record) for i, record in records]
    rows += [(first, last, None) for first, last in retired]
    return sorted(rows, key=lambda row: row[0])
