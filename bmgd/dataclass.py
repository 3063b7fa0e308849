"""`dataclass` for what a daemon imports before it starts: as the standard one, in a fourth of the time.

The standard decorator compiles six functions for each frozen class with slots. For the 150 classes of
messages, commands, events and effects that was more than half of the time until the first daemon of a
launch could be forked, and most of those functions are never called. Here only `__init__` is compiled;
the other functions are the same for all classes, and look the fields up. What is not that plain case
(`order`, a base, `ClassVar`, a class that can change) is left to the standard decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from inspect import get_annotations
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, **others: Any
    ) -> Callable[[type[Any]], type[Any]]:
        """As `dataclasses.dataclass`, with parentheses."""
        standard = dataclasses.dataclass(frozen=frozen, slots=slots, **others)

        def make(cls: type[Any]) -> type[Any]:
            is_plain = frozen and slots and not others
            is_plain = is_plain and type(cls) is type and cls.__bases__ == (object,)
            types = get_annotations(cls)
            if not is_plain or any("Var" in str(words) for words in types.values()):
                return standard(cls)
            return _made(cls, [_field(cls, name, words) for name, words in types.items()])

        return make


@dataclasses.dataclass(frozen=True)
class _Sample:
    """What the standard decorator notes for itself is taken from here."""

    field: int


_PARAMETERS: Final[Any] = _Sample.__dataclass_params__  # type: ignore[attr-defined]
_ORDINARY: Final[Any] = _Sample.__dataclass_fields__["field"]._field_type  # type: ignore[attr-defined]


def _field(cls: type[Any], name: str, words: str) -> Any:
    given: Any = cls.__dict__.get(name, MISSING)
    made: Any = given if isinstance(given, Field) else dataclasses.field(default=given)
    made.name, made.type, made.kw_only, made._field_type = name, words, False, _ORDINARY
    if made.default is not MISSING and type(made.default).__hash__ is None:
        raise ValueError(f"{cls.__qualname__}.{name} needs a default_factory")
    return made


def _made(cls: type[Any], fields: list[Any]) -> type[Any]:
    names = tuple(field.name for field in fields)
    left_out = {*names, "__dict__", "__weakref__"}
    parts = {name: part for name, part in cls.__dict__.items() if name not in left_out}
    if "__eq__" not in parts:
        # Where a class has `__eq__` and no `__hash__`, Python has put None there.
        compared = tuple(field.name for field in fields if field.compare)
        parts["__eq__"], hashing = _comparing(_values_of(compared))
        parts.setdefault("__hash__", hashing)
    parts.setdefault("__repr__", _show)
    parts |= {
        "__qualname__": cls.__qualname__,
        "__slots__": names,
        "__match_args__": tuple(field.name for field in fields if field.init),
        "__dataclass_fields__": {field.name: field for field in fields},
        "__dataclass_params__": _PARAMETERS,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _get_state,
        "__setstate__": _set_state,
    }
    made = type(cls.__name__, cls.__bases__, parts)
    made.__init__ = _init_of(made, fields)  # type: ignore[misc]
    return made


def _init_of(cls: type[Any], fields: list[Any]) -> Any:
    """`__init__`, which is called often enough to be worth compiling.

    Each slot is set by its own descriptor: `object.__setattr__` would look it up, and takes longer.
    """
    known: dict[str, Any] = {"_missing": MISSING}
    words, lines = ["self"], []
    for field in fields:
        name = value = field.name
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()"
            if field.init:
                words.append(f"{name}=_missing")
                value += f" if {name} is _missing else {name}"
        elif field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            words.append(f"{name}=_default_{name}")
        else:
            words.append(name)
        known[f"_set_{name}"] = cls.__dict__[name].__set__
        lines.append(f" _set_{name}(self,{value})\n")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()\n")
    exec(f"def __init__({','.join(words)}):\n{''.join(lines) or ' pass'}", known)
    made = known.pop("__init__")
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values_of(names: tuple[str, ...]) -> Callable[[Any], Any]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _comparing(values: Callable[[Any], Any]) -> tuple[Any, Any]:
    def is_equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def hashing(self: Any) -> int:
        return hash(values(self))

    return is_equal, hashing


def _show(self: Any) -> str:
    fields = self.__dataclass_fields__.values()
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__slots__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__slots__, state, strict=True):
        object.__setattr__(self, name, value)
