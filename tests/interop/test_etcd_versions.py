"""The control store and failovers with newer etcds than Debian's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .cache import Unavailable
from .etcd_program import etcd

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
SUITE = [
    "tests/contract/replication/test_control_stores.py",
    "tests/contract/replication/test_etcd_faults.py",
    "tests/adversity/test_failover_processes.py::test_no_answered_message_is_lost_by_failovers[sync-strict-mixed]",
]
SECONDS_MAX = 600


@pytest.mark.parametrize("version", ["3.5.21", "3.6.16", "3.7.3"])
def test_the_suite_of_the_control_store_passes_with_another_etcd(version: str, tmp_path: Path) -> None:
    """Goal: contract, faults, passwords, TLS and four kinds of failover; really with that version."""
    try:
        program = etcd(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"etcd Version: {version}" in said
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", f"--basetemp={tmp_path / 'suite'}", *SUITE],
        cwd=ROOT,
        env={**os.environ, "ROCKETQ_ETCD": str(program), "ROCKETQ_FAILOVERS": "4"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert "passed" in ran.stdout
    skipped = [line for line in ran.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("no kernel is used" in line for line in skipped), skipped  # interpreted: those know no difference
