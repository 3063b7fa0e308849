"""Errors in the control protocol: what a frame says of one, and the error that it becomes again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bmgd import errors
from bmgd.errors import BmgdError, DeliveryError, RefusedError
from bmgd.wire.control import End, Failure

_TEXT_BYTES_MAX = 4096


def failure_of(sequence: int, error: BmgdError) -> Failure:
    """The frame that tells a program of an error."""
    return Failure(sequence, type(error).__name__, str(error)[:_TEXT_BYTES_MAX], fields_of(error))


def fields_of(error: BmgdError) -> dict[str, object]:
    """What an error has beyond its text."""
    if isinstance(error, DeliveryError):
        detail = error.detail[:_TEXT_BYTES_MAX]
        return {"destination": error.destination, "detail": detail, "sent": error.sent}
    if isinstance(error, RefusedError):
        return {"reason": error.reason}
    return {}


def failed_end(sequence: int, error: BmgdError) -> End:
    """The frame that tells a program why its stream is over."""
    return End(sequence, type(error).__name__, str(error)[:_TEXT_BYTES_MAX], fields_of(error))


def error_of(name: str, message: str, fields: Mapping[str, Any] | None = None) -> BmgdError:
    """The error that a frame tells of; an unknown name becomes a `RequestError`."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BmgdError)):
        return errors.RequestError(f"{name}: {message}")
    match dict(fields or {}):
        case {"destination": int(destination), "detail": str(detail)} if issubclass(
            kind, DeliveryError
        ):
            return kind(destination, detail, sent=(fields or {}).get("sent") is True)
        case {"reason": str(reason)} if issubclass(kind, RefusedError):
            return kind(reason)
    if issubclass(kind, DeliveryError | RefusedError):
        return errors.RequestError(f"{name}: {message}")
    return kind(message)
