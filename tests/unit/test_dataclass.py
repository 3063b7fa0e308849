"""Classes of the faster decorator are as those of the standard one."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from bmgd.dataclass import dataclass


def _classes(decorator: Callable[..., Any]) -> tuple[type[Any], ...]:
    @decorator(frozen=True, slots=True)
    class Empty:
        """Without a field."""

    @decorator(frozen=True, slots=True)
    class One:
        """With one."""

        only: int

    @decorator(frozen=True, slots=True)
    class Some:
        """With all kinds of fields."""

        first: int
        second: str = "two"
        third: list[int] = dataclasses.field(default_factory=list, compare=False)
        hidden: int = dataclasses.field(default=4, repr=False)
        made: dict[str, int] = dataclasses.field(default_factory=dict, init=False, compare=False)

        def __post_init__(self) -> None:
            self.made["first"] = self.first

        @property
        def double(self) -> int:
            """A method of its own."""
            return 2 * self.first

    @decorator(frozen=True, slots=True)
    class Compared:
        """With a comparison of its own."""

        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Compared) and self.value % 2 == other.value % 2

        def __hash__(self) -> int:
            return self.value % 2

        def __repr__(self) -> str:
            return f"<{self.value}>"

    return Empty, One, Some, Compared


PLAIN, STANDARD = _classes(dataclass), _classes(dataclasses.dataclass)
BOTH = pytest.mark.parametrize(("plain", "standard"), list(zip(PLAIN, STANDARD, strict=True)))
CHANGING: list[int] = []
VALUES = [(), (1,), (1, "a"), (1, "a", [2], 5)]


@BOTH
def test_dataclass_has_the_fields_of_the_standard_one(
    plain: type[Any], standard: type[Any]
) -> None:
    def told(cls: type[Any]) -> list[tuple[Any, ...]]:
        return [
            (f.name, f.type, f.default, f.default_factory, f.init, f.repr, f.compare, f.kw_only)
            for f in dataclasses.fields(cls)
        ]

    assert told(plain) == told(standard)
    for name in ("__slots__", "__match_args__", "__doc__", "__name__", "__qualname__"):
        assert getattr(plain, name) == getattr(standard, name), name
    assert "__dict__" not in vars(plain)


@BOTH
@pytest.mark.parametrize("values", VALUES)
def test_dataclass_takes_what_the_standard_one_takes(
    plain: type[Any], standard: type[Any], values: tuple[Any, ...]
) -> None:
    made = []
    for cls in (plain, standard):
        try:
            made.append(repr(cls(*values)))
        except TypeError as error:
            made.append(str(error))
    assert made[0] == made[1]


@BOTH
def test_dataclass_compares_and_hashes_as_the_standard_one(
    plain: type[Any], standard: type[Any]
) -> None:
    rows = []
    for cls in (plain, standard):
        values = [
            cls(*given[: len(cls.__match_args__)]) for given in ((1, "a"), (1, "a"), (3, "b"))
        ]
        rows.append(
            [[a == b for b in values] + [a == 1, a != 1] for a in values]
            + [[hash(value) for value in values]]
        )
    assert rows[0] == rows[1]


def test_dataclass_is_frozen() -> None:
    value = PLAIN[2](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'first'"):
        value.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="'first'"):
        del value.first
    assert (value.first, value.double, value.made) == (1, 2, {"first": 1})


def test_dataclass_is_replaced_copied_and_matched() -> None:
    cls = PLAIN[2]
    value = cls(1, "a", [2], 5)
    other = dataclasses.replace(value, second="b")
    assert (other.second, other.third, other.hidden) == ("b", [2], 5)
    assert copy.deepcopy(value) == value
    assert dataclasses.asdict(other)["made"] == {"first": 1}
    match value:
        case cls(1, second):
            assert second == "a"
        case _:
            pytest.fail("not matched")


@dataclass(frozen=True, slots=True)
class Travelling:
    """Goes from process to process."""

    first: int
    second: tuple[int, ...] = ()


def test_dataclass_can_be_pickled() -> None:
    value = Travelling(1, (2, 3))
    assert pickle.loads(pickle.dumps(value)) == value


def test_dataclass_refuses_a_default_that_can_change() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @dataclass(frozen=True, slots=True)
        class Wrong:
            items: list[int] = CHANGING


def test_dataclass_leaves_the_rest_to_the_standard_one() -> None:
    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        first: int

    @dataclass(slots=True)
    class Changing:
        kind: ClassVar[str] = "c"
        first: int = 0

    @dataclass(frozen=True, slots=True)
    class Below(Travelling):
        third: int = 3

    assert Ordered(1) < Ordered(2)
    changing = Changing()
    changing.first = 7
    assert (changing.first, changing.kind) == (7, "c")
    assert Below(1, (), 4) == Below(1, third=4)
    assert repr(Below(1)).endswith("Below(first=1, second=(), third=3)")
