"""Errors in control frames: what is told of one becomes it again."""

from __future__ import annotations

import pytest

from bmgd.errors import BmgdError, DeadError, NoDaemonError, RefusedError, RequestError
from bmgd.wire.control_errors import error_of, failure_of


@pytest.mark.parametrize(
    "error",
    [RequestError("no"), DeadError(3, "it is dead"), RefusedError("busy"), NoDaemonError("x")],
)
def test_errors_come_back(error: BmgdError) -> None:
    failure = failure_of(1, error)
    again = error_of(failure.name, failure.message, failure.fields)
    assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize("name", ["Surprise", "annotations", "ValueError", "DeliveryError", ""])
def test_unknown_errors_become_request_errors(name: str) -> None:
    assert type(error_of(name, "text")) is RequestError
