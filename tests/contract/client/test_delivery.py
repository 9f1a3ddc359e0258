"""Delivery with our broker; the same scenes run with Apache's brokers in tests/interop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rocketq.testing.embedded import EmbeddedCluster

from .delivery_scenes import SCENES, SETTINGS, Scene


@pytest.fixture(scope="module")
def quick() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, settings=SETTINGS) as running:
        yield running


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_with_our_broker(
    quick: EmbeddedCluster, topic: str, group: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(asyncio.wait_for(scene(quick.name_server_addr, topic, group[:60], monkeypatch), 120))
