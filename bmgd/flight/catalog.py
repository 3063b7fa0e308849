"""The classes that a recording may name: those of the core and of what it is told, and no others.

A recording is read as data. Nothing in it can name a class or a function that is not listed here, so
whoever gets a recording from elsewhere can replay it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, Final

_ROOMS: Final = ("core", "wire", "routing")
_BESIDE_CORE: Final = ("types", "peers", "policy", "profiles", "healing", "errors")
_ABOUT_BYTES: Final = {
    *("wire.codec", "wire.fields", "wire.packing", "routing.papers"),
    *("wire.control", "wire.control_reader", "wire.control_errors"),
    *("wire.link_formats", "wire.stream_formats", "wire.ask_formats", "wire.broadcast_formats"),
}
"""Modules of those rooms whose classes no core holds."""
_SECRET: Final = {"wire.hello.Identity", "wire.hello.Hello"}
"""What holds secrets, or proofs of them, and is no part of a core: it cannot be recorded."""

_SLOTS: Final[dict[type[Any], tuple[str, ...]]] = {}


@cache
def classes() -> dict[str, type[Any]]:
    """Every class that can be recorded, by name: ``core.events.Received``."""
    found: dict[str, type[Any]] = {}
    for module in _modules():
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                found[_name(module, value.__qualname__)] = value
    return {name: value for name, value in found.items() if name not in _SECRET}


@cache
def functions() -> dict[str, FunctionType]:
    """Every function of a module of the core, by name; a core may keep one to call later."""
    found: dict[str, FunctionType] = {}
    for module in _modules():
        for value in vars(module).values():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                found[_name(module, value.__qualname__)] = value
    return found


@cache
def names() -> dict[type[Any], str]:
    """The same, by class."""
    return {value: name for name, value in classes().items()}


def slots_of(cls: type[Any]) -> tuple[str, ...]:
    """The slots of a class and its bases, the bases' first."""
    known = _SLOTS.get(cls)
    if known is None:
        found: dict[str, None] = {}
        for base in reversed(cls.__mro__):
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__"):
                    found[name] = None
        known = _SLOTS[cls] = tuple(found)
    return known


def is_enum(cls: type[Any]) -> bool:
    """Whether its values are named constants."""
    return issubclass(cls, Enum)


@cache
def _modules() -> tuple[ModuleType, ...]:
    found = {*_BESIDE_CORE}
    for room in _ROOMS:
        found.update(_inside(room))
    return tuple(importlib.import_module(f"bmgd.{name}") for name in sorted(found))


def _inside(room: str) -> Iterator[str]:
    package = importlib.import_module(f"bmgd.{room}")
    for info in pkgutil.iter_modules(package.__path__):
        name = f"{room}.{info.name}"
        if name not in _ABOUT_BYTES:
            yield name
            if info.ispkg:
                yield from _inside(name)


def _name(module: ModuleType, qualname: str) -> str:
    return f"{module.__name__.removeprefix('bmgd.')}.{qualname}"
