"""Every error that bmgd raises on purpose.

BmgdError
├── InvariantError            a bug in bmgd: the process ends loudly
├── GraphError (ValueError)   a rank, size or id outside the graph
├── ConfigError               a flag, variable, file or key that cannot be used
├── ProtocolError             bytes that are not the wire protocol
│   └── RefusedError          the other daemon refused the link; `.reason` says why
├── ControlError              between a program and its daemon
│   ├── NoDaemonError         nobody answers at that address
│   ├── SilentDaemonError     the daemon is there and does not answer in time
│   ├── RequestError          the daemon cannot do what was asked
│   └── SubscriptionError     the daemon ended a subscription (a reader too slow)
├── DeliveryError             a message that is not confirmed; `.destination` says whose
│   ├── DeadError             the destination is dead, excluded or has left
│   ├── UnreachableError      no confirmation before the deadline
│   ├── QueueFullError        the destination's queue for that topic is full
│   ├── NewLifeError          the destination restarted before it confirmed
│   └── NoQuorumError         the node that sends is in a minority, and stands aside
├── LaunchError               a local cluster that cannot be started or changed
└── PlanError                 a fault plan that cannot be carried out; `.step` says which step
"""

from __future__ import annotations


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


class ControlError(BmgdError):
    """Something went wrong between a program and its daemon."""


class NoDaemonError(ControlError):
    """Nobody answers at the control address."""


class SilentDaemonError(ControlError):
    """The daemon accepted the connection and did not answer in time."""


class RequestError(ControlError):
    """The daemon understood the request and cannot do it."""


class SubscriptionError(ControlError):
    """The daemon ended a subscription, because its reader was too slow or another has the topic."""


class DeliveryError(BmgdError):
    """A message that is not confirmed.

    Args:
        destination: the node id that it was for.
        detail: what is known of its fate.
    """

    def __init__(self, destination: int, detail: str) -> None:
        super().__init__(f"node {destination}: {detail}")
        self.destination = destination
        self.detail = detail


class DeadError(DeliveryError):
    """The destination is dead, excluded or has left."""


class UnreachableError(DeliveryError):
    """No confirmation came before the deadline."""


class QueueFullError(DeliveryError):
    """The destination's queue for that topic is full; the message was not taken."""


class NewLifeError(DeliveryError):
    """The destination restarted before it confirmed; its former life may have taken the message."""


class NoQuorumError(DeliveryError):
    """The sending node is on the smaller side of a partition, and stands aside; nothing was sent."""


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
