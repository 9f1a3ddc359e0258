"""A short run of the fuzz target of the fenced replication port."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TARGET = Path(__file__).parents[3] / "fuzz" / "replication_port.py"


def test_the_replication_port_survives_random_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the process lives, memory returns, and a genuine slave is answered in time."""
    spec = importlib.util.spec_from_file_location("replication_port", TARGET)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "replication_port", module)
    monkeypatch.syspath_prepend(str(TARGET.parent))
    spec.loader.exec_module(module)
    assert "connections" in module.fuzz(seconds=2, seed=7)
