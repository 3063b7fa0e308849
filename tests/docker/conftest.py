"""The image under test, built once a session, and a cluster of its containers for each test."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.compose import Cluster, composed
from tests.docker.engine import built_image, need_engine


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the image."""
    need_engine()
    with built_image(tmp_path_factory.mktemp("image")) as name:
        yield name


@pytest.fixture
def cluster(image: str, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is ready, with exactly the links of the graph."""
    secret = tmp_path / "secrets" / "bmgd"
    secret.parent.mkdir()
    secret.write_text(secrets.token_hex(32) + "\n")
    # The container's user is another one; the directory keeps this machine's users out.
    secret.chmod(0o644)
    with composed(image, secret) as started:
        started.settled()
        yield started
