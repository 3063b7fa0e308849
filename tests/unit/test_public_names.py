"""What `import bmgd` offers, to programs and to the completion of an editor."""

from __future__ import annotations

import bmgd


def test_public_names_are_listed_before_their_first_use() -> None:
    assert set(dir(bmgd)) >= set(bmgd.__all__)


def test_public_names_can_all_be_had() -> None:
    for name in bmgd.__all__:
        assert getattr(bmgd, name) is not None
