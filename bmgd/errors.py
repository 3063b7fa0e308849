"""Every error that bmgd raises on purpose.

BmgdError
├── InvariantError            a bug in bmgd: the process ends loudly
├── GraphError (ValueError)   a rank, size or id outside the graph
├── ConfigError               a flag, variable, file or key that cannot be used
├── ProtocolError             bytes that are not the wire protocol
│   └── RefusedError          the other daemon refused the link; `.reason` says why
├── ControlError              between a program and its daemon; `.sent`
│   ├── NoDaemonError         nobody answers at that address
│   ├── SilentDaemonError     the daemon is there and does not answer in time
│   ├── RequestError          the daemon cannot do what was asked
│   ├── VersionError          the daemon and the program have no version in common
│   └── SubscriptionError     the daemon ended a subscription (a reader too slow)
├── DeliveryError             a message that is not confirmed; `.destination`, `.sent`
│   ├── DeadError             the destination is dead, excluded or has left
│   ├── UnreachableError      no confirmation before the deadline
│   ├── QueueFullError        the destination's queue for that topic is full
│   ├── NewLifeError          the destination restarted before it confirmed
│   ├── NoReaderError         nobody there reads that topic
│   ├── ReaderLostError       the program that read a long message, or was asked, went away
│   ├── FailedAnswerError     the program that was asked says that it cannot answer
│   ├── LeavingError          the destination, or the daemon that was to send it, drains and leaves
│   └── NoQuorumError         the node that sends is in a minority, and stands aside
├── PartialError              not every node has a broadcast or multicast; `.report` says who has
├── LaunchError               a local cluster that cannot be started or changed
└── PlanError                 a fault plan that cannot be carried out; `.step` says which step
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

ALL_NODES: Final = -1
"""The destination in an error about what was for all nodes."""


class BmgdError(Exception):
    """The root of the tree."""


class InvariantError(BmgdError):
    """Something that cannot happen did: a bug in bmgd."""


class GraphError(BmgdError, ValueError):
    """A rank, size, distance or id that the graph does not have."""


class ConfigError(BmgdError):
    """A flag, environment variable, file or key that cannot be used."""


class ProtocolError(BmgdError):
    """Bytes that are not the wire protocol; the link they came on is closed."""


class RefusedError(ProtocolError):
    """The other daemon refused the link.

    Args:
        reason: the name of the refusal, see docs/wire-protocol.md.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"refused: {reason}")
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,), self.__dict__


class ControlError(BmgdError):
    """Something went wrong between a program and its daemon.

    Args:
        text: what.
        sent: whether a message, or what was asked, was handed to the daemon, and so may have been taken,
            or done, or may yet be; False where asking again is safe.
    """

    def __init__(self, text: str = "", *, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


class NoDaemonError(ControlError):
    """Nobody answers at the control address."""


class SilentDaemonError(ControlError):
    """The daemon accepted the connection and did not answer in time."""


class RequestError(ControlError):
    """The daemon understood the request and cannot do it."""


class VersionError(ControlError):
    """The daemon and the program have no version of the control protocol in common."""


class SubscriptionError(ControlError):
    """The daemon ended a subscription, because its reader was too slow or another has the topic."""


class DeliveryError(BmgdError):
    """A message that is not confirmed.

    Args:
        destination: the node id that it was for; `ALL_NODES` of a broadcast.
        detail: what is known of its fate.
        sent: whether it may have been taken, or may yet be; False where sending it again is safe.
    """

    def __init__(self, destination: int, detail: str, *, sent: bool = False) -> None:
        super().__init__(detail if destination == ALL_NODES else f"node {destination}: {detail}")
        self.destination = destination
        self.detail = detail
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        # An error may go to another process, such as that of a pool.
        return type(self), (self.destination, self.detail), self.__dict__


class DeadError(DeliveryError):
    """The destination is dead, excluded or has left."""


class UnreachableError(DeliveryError):
    """No confirmation came before the deadline."""


class QueueFullError(DeliveryError):
    """The destination's queue for that topic is full; the message was not taken."""


class NewLifeError(DeliveryError):
    """The destination restarted before it confirmed; its former life may have taken the message."""


class NoReaderError(DeliveryError):
    """Nobody at the destination reads that topic; long messages and requests do not wait for a reader.

    Of an answer: the program that asked is gone. It was not taken.
    """


class ReaderLostError(DeliveryError):
    """The program that read a long message, or was asked, went away before it had finished."""


class FailedAnswerError(DeliveryError):
    """The program that was asked says that it cannot answer; `detail` is its text."""


class LeavingError(DeliveryError):
    """The destination, or the daemon that was to send it, is leaving; the message was not taken."""


class NoQuorumError(DeliveryError):
    """The sending node is on the smaller side of a partition, and stands aside; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a broadcast or multicast.

    Args:
        confirmed: the ids whose daemons hold it; of a broadcast, the sender's own among them.
        failed: the other ids that it was for, and why they have not confirmed it.
    """

    confirmed: frozenset[int]
    failed: dict[int, DeliveryError]


class PartialError(BmgdError):
    """A broadcast or multicast that is not confirmed by everybody.

    Args:
        report: who confirmed it, and why the others did not.
    """

    def __init__(self, report: Report) -> None:
        count = len(report.failed) + len(report.confirmed)
        text = f"{len(report.failed)} of {count} nodes have not confirmed it"
        if report.failed:
            # Each error names its node.
            first = report.failed[min(report.failed)]
            text += f"; {type(first).__name__}: {first}"
        super().__init__(text)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,), self.__dict__


class LaunchError(BmgdError):
    """A local cluster that cannot be started or changed."""


class PlanError(BmgdError):
    """A fault plan that cannot be carried out.

    Args:
        detail: what is wrong.
        step: which step, counted from 1; None when it is not a step.
    """

    def __init__(self, detail: str, step: int | None = None) -> None:
        super().__init__(detail if step is None else f"step {step}: {detail}")
        self.step = step


def innermost(error: BaseException) -> BaseException:
    """The first error of a group, and of the groups in it; one that is no group itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Ungrouped:
    """A block of which a group of bmgd's errors comes out as the first of them.

    A group that has another error in it, such as a bug, comes out whole.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, BaseExceptionGroup):
            expected, rest = error.split(BmgdError)
            if expected is not None and rest is None:
                raise innermost(expected) from None
