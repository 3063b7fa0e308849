"""What a recorder makes of what daemons show."""

from __future__ import annotations

import pytest

from bmgd.trials.recorder import is_linked_exactly


@pytest.mark.parametrize(
    ("linked", "exact"), [([1, 4], True), ([1], False), ([1, 2, 4], False), ([1, 4, 4], False)]
)
def test_recorder_knows_exact_links_of_the_living_neighbors(linked: list[int], exact: bool) -> None:
    links = [{"id": peer} for peer in linked]
    status = {"neighbors": [1, 3, 4], "alive": [0, 1, 2, 4], "links": links}
    assert is_linked_exactly(status) == exact
