"""Errors go to other processes whole: those of a pool, for instance."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bmgd import errors
from bmgd.errors import (
    BmgdError,
    ControlError,
    DeadError,
    DeliveryError,
    PartialError,
    Report,
    RequestError,
    Ungrouped,
)


def _classes(root: type[BmgdError]) -> Iterator[type[BmgdError]]:
    yield root
    for each in root.__subclasses__():
        yield from _classes(each)


def _made(kind: type[BmgdError]) -> BmgdError:
    if issubclass(kind, DeliveryError):
        return kind(7, "it is dead", sent=True)
    if issubclass(kind, ControlError):
        return kind("closed", sent=True)
    if kind is PartialError:
        return PartialError(Report(frozenset({1}), {7: DeadError(7, "it is dead", sent=True)}))
    if kind is errors.PlanError:
        return errors.PlanError("no such node", 3)
    made: BmgdError = kind("wrong")
    return made


def _told(error: BmgdError) -> Any:
    """What a program can see of an error."""
    fields = {name: value for name, value in vars(error).items() if name != "report"}
    report = getattr(error, "report", None)
    failed = {} if report is None else {i: _told(each) for i, each in report.failed.items()}
    return type(error), str(error), fields, failed, report and report.confirmed


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "kind", [each for each in _classes(BmgdError) if each.__module__ == errors.__name__]
)
def test_error_is_the_same_in_another_process(
    kind: type[BmgdError], again: Callable[[BmgdError], BmgdError]
) -> None:
    error = _made(kind)
    error.add_note("from a worker")
    assert _told(again(error)) == _told(error)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_block_of_errors_raises_the_first_of_them_alone(depth: int) -> None:
    first = DeadError(3, "it is dead")
    raised: Exception = first
    for _ in range(depth):
        raised = ExceptionGroup("several", [raised, RequestError("later")])
    with pytest.raises(DeadError) as caught, Ungrouped():
        raise raised
    assert caught.value is first


def test_block_of_errors_lets_what_is_no_error_of_bmgd_pass() -> None:
    with pytest.raises(ExceptionGroup) as caught, Ungrouped():
        raise ExceptionGroup("several", [RequestError("no"), ValueError("a bug")])
    assert [type(each) for each in caught.value.exceptions] == [RequestError, ValueError]
    with Ungrouped():
        pass
