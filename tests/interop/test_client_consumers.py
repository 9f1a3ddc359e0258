"""Our consumers with Apache's brokers: the scenes our own broker is held to, and groups mixed with Java's consumers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.client.delivery_scenes import SCENES, SETTINGS, Scene

from .apache import ApacheBroker, ApacheNameServer, free_broker_port

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=VERSIONS)
def addr(
    request: pytest.FixtureRequest,
    nameserver: Callable[[str], ApacheNameServer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The NameServer of a cluster of one Apache broker with quick retries."""
    folder: Path = tmp_path_factory.mktemp("consumers")
    names = nameserver(request.param)
    broker = ApacheBroker(
        names, port=free_broker_port(), store=folder / "store", work=folder / "work", settings=dict(SETTINGS)
    )
    with broker:
        yield names.address


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_scenes_with_apache(addr: str, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the same suite, the same results."""
    name = f"{scene.__name__}-{next(_NUMBERS)}"[:60]
    asyncio.run(asyncio.wait_for(scene(addr, f"T-{name}", f"G-{name}", monkeypatch), 90))
