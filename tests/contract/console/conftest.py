"""One cluster and one console for all tests of the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketq.testing import EmbeddedCluster

from . import kit


@pytest.fixture(scope="package")
def cluster() -> Iterator[EmbeddedCluster]:
    with kit.cluster() as running:
        yield running


@pytest.fixture(scope="package")
def url(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kit.console(cluster.name_server_addr, tmp_path_factory.mktemp("console")) as address:
        yield address


@pytest.fixture
def api(url: str) -> Iterator[kit.ApiClient]:
    with kit.ApiClient(url) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "console"
