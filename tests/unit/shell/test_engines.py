"""The choice of the engine of links."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from bmgd.errors import ConfigError
from bmgd.linklayer import LinkLayer
from bmgd.routing import BACKEND
from bmgd.shell.engine import Engine
from bmgd.shell.engines import choose_engine


def _built(monkeypatch: pytest.MonkeyPatch, engine: object) -> None:
    module = ModuleType("bmgd._engine")
    module.Engine = engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bmgd._engine", module)


def test_engine_in_python_is_taken_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMGD_ENGINE", "python")
    assert choose_engine() == ("python", Engine)


@pytest.mark.skipif(BACKEND != "c", reason="without the extension there is no engine in C either")
def test_engine_in_c_is_the_default_where_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    _built(monkeypatch, LinkLayer)
    monkeypatch.delenv("BMGD_ENGINE", raising=False)
    assert choose_engine() == ("c", LinkLayer)
    monkeypatch.setenv("BMGD_ENGINE", "c")
    assert choose_engine() == ("c", LinkLayer)


def test_engine_in_c_that_lacks_something_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    _built(monkeypatch, object)
    monkeypatch.delenv("BMGD_ENGINE", raising=False)
    assert choose_engine()[0] == "python"
    monkeypatch.setenv("BMGD_ENGINE", "c")
    with pytest.raises(ConfigError, match="BMGD_ENGINE is c, but"):
        choose_engine()


def test_engine_in_c_that_was_not_built_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bmgd._engine", None)
    monkeypatch.setenv("BMGD_ENGINE", "c")
    with pytest.raises(ConfigError, match="BMGD_ENGINE is c, but"):
        choose_engine()


def test_engine_of_an_unknown_name_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMGD_ENGINE", "rust")
    with pytest.raises(ConfigError, match="BMGD_ENGINE is 'rust', not c or python"):
        choose_engine()
