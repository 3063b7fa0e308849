"""What is done for each effect that the core gives, all in one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from bmgd.core.effects import (
    AbsorbHeartbeats,
    Announce,
    AskContact,
    Close,
    Deliver,
    Dial,
    Displaced,
    Effect,
    Exit,
    ForwardingChanged,
    Grant,
    Joined,
    Observed,
    Overlooked,
    ProgramsChanged,
    RecordChanged,
    Refuse,
    Renewed,
    Reply,
    Reported,
    ReportWanted,
    Send,
    StreamEnded,
    StreamMoved,
    TellMissed,
    Welcome,
)
from bmgd.errors import InvariantError
from bmgd.shell.ending import Ending
from bmgd.shell.surveying import Surveying
from bmgd.shell.telling import Telling
from bmgd.shell.transport import Transport
from bmgd.types import Incarnation

OWN_REQUEST: Final = 0
"""The request number of commands that the daemon itself issues; programs' numbers begin at 1, those of
surveys are negative."""


class CarryingOut:
    """Carries out the effects of one daemon's cores.

    Args:
        telling: tells programs, the log and the starter, after the step.
        surveying: told of what was asked of other nodes.
        ending: ends the daemon, or its life as this node.
        keep: keeps a new life; a ConfigError ends the daemon.
        own_answer: takes the answer to a command of the daemon's own.
    """

    def __init__(
        self,
        telling: Telling,
        surveying: Surveying,
        ending: Ending,
        keep: Callable[[Incarnation], None],
        own_answer: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._telling = telling
        self._surveying = surveying
        self._ending = ending
        self._keep = keep
        self._own_answer = own_answer

    def begin(self, transport: Transport) -> None:
        """These are the core's links from now on."""
        self._transport = transport

    def carry_out(self, effect: Effect) -> None:
        """Do what the core orders.

        Raises:
            ConfigError: a new life cannot be kept.
        """
        transport, telling = self._transport, self._telling
        match effect:
            case Send(link, message):
                transport.links.send(link, message)
            case Deliver() | StreamMoved():
                telling.untold.append(effect)
            case Observed() | RecordChanged():
                telling.happened.append((time.monotonic_ns(), effect))
            case ForwardingChanged(snapshot):
                transport.links.publish(snapshot)
            case AbsorbHeartbeats(digest, links):
                transport.links.absorb_heartbeats(digest, links)
            case Overlooked(notice):
                transport.links.overlook(notice)
            case Dial():
                transport.dials.dial(effect)
            case Welcome():
                transport.hellos.welcome(effect)
            case Refuse():
                transport.hellos.refuse(effect)
            case Grant():
                transport.hellos.grant(effect)
            case Close(link, reason):
                transport.close(link, reason)
            case Reply(request) if request < 0:
                self._surveying.reply(effect)
            case Reply(request) if request == OWN_REQUEST:
                if effect.result is not None:
                    self._own_answer(effect.result)
            case Reply() | Announce() | TellMissed() | ProgramsChanged() | StreamEnded():
                telling.untold.append(effect)
            case Renewed(incarnation):
                self._keep(incarnation)
                transport.own.incarnation = incarnation
            case Displaced():
                self._ending.lose_id(effect)
            case ReportWanted():
                self._surveying.report_wanted(effect)
            case Reported():
                self._surveying.reported(effect)
            case AskContact() | Joined():
                raise InvariantError("a node asks no contact")
            case Exit(code, reason):
                self._ending.end(code, reason)
