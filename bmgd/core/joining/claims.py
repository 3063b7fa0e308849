"""Claims: a record says that a greater life of this very id is alive somewhere.

Theory of operation. Whether a record is believed depends on the record alone, so anybody can claim any
life for any id, by a defect or on purpose, and everybody believes it. The node that leads the id does not
believe it unseen: it dials the address in the record, expecting its own id there.

    claim --is at this node's own address--------------------------> a life above it
    claim --> dialled --that life, or another above this one, answers--> the id is lost
                      --anything else---------------------------------> a life above it
    claim --> dialled --a life above it has begun meanwhile------------> nothing is left to do

Somebody who goes on claiming could make it begin lives for ever: that has a bound, see `lifecycle.py`. A
joiner takes a new id at once, as after any lost race (ADR 16).
"""

from __future__ import annotations

from dataclasses import dataclass

from bmgd.core.context import Context
from bmgd.core.effects import Dial
from bmgd.core.events import DialFailed
from bmgd.core.neighbors.detector import DIAL_LEGS, Detector
from bmgd.core.neighbors.dialling import Dialling
from bmgd.types import NodeId, NodeState, Record
from bmgd.wire.hello import Refusal


@dataclass(slots=True)
class Claims:
    """Looks into claims of this node's id."""

    context: Context
    detector: Detector
    dialling: Dialling
    _claim: Record | None = None
    _dialled: Record | None = None
    _told_by: NodeId | None = None

    def on_claim(self, record: Record, told_by: NodeId | None) -> None:
        """A record of this id with a greater life that is not gone; it came from that neighbor."""
        context = self.context
        if context.settings.takes_new_id:
            context.lose_id(f"another life has the id {context.id}")
        elif context.state is not NodeState.LEAVING and (
            self._claim is None or record > self._claim
        ):
            self._claim, self._told_by = record, told_by
            if self._dialled is None:
                self._look_into(record)

    def _look_into(self, claim: Record) -> None:
        context = self.context
        if claim.address == context.settings.address:
            self._answer_claim()
            return
        self._dialled = claim
        context.observe("claimed", context.id, claim.incarnation, f"at {claim.address}")
        context.emit(
            Dial(
                peer=context.id,
                address=claim.address,
                known=claim.incarnation,
                dial_number=self.dialling.next_number(),
                timeout_ns=self.detector.patience_ns(context.settings.dial_ns, DIAL_LEGS),
            )
        )

    def on_dial_failed(self, failed: DialFailed) -> None:
        """What came of the dial; a dial that expects one's own id never becomes a link."""
        context, dialled, claim = self.context, self._dialled, self._claim
        if dialled is None or claim is None:
            return
        self._dialled = None
        lives = failed.refusal is Refusal.DUPLICATE and failed.known_of_me > context.incarnation
        if lives:
            context.lose_id(
                f"another life has the id {context.id}: it answers at {dialled.address}"
            )
        elif claim.incarnation <= context.incarnation:
            # What is said of a life that is over needs no other one, and least of all a lower one.
            self._claim = None
        elif claim > dialled:
            self._look_into(claim)
        else:
            self._answer_claim()

    def _answer_claim(self) -> None:
        """Nobody is there: begin a life above the claimed one."""
        context, claim = self.context, self._claim
        assert claim is not None
        self._claim = None
        told = "a contact" if self._told_by is None else f"node {self._told_by}"
        context.begin_above(
            claim.incarnation, f"said to be at {claim.address}, where it is not; told by {told}"
        )
