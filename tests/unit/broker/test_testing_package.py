"""`rocketq.testing` costs nothing until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rocketq.testing


def test_the_plugin_does_not_load_a_broker() -> None:
    """Goal: every pytest run of every user loads it."""
    loaded = "sorted(name for name in sys.modules if name.startswith('rocketq.'))"
    look = f"import sys, rocketq.testing.pytest_plugin; print({loaded})"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "['rocketq.testing', 'rocketq.testing.pytest_plugin']"


def test_other_names_are_not_there() -> None:
    assert rocketq.testing.EmbeddedCluster.__name__ == "EmbeddedCluster"
    with pytest.raises(AttributeError, match="nobody"):
        _ = rocketq.testing.nobody
