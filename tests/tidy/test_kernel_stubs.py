"""The types of the kernel that mypy checks its callers against are those of its code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_committed_stubs_are_what_the_code_gives() -> None:
    """Goal: a signature that changes in a .py or .pxd changes in the .pyi too; `make stubs` writes them."""
    command = [sys.executable, "tools/kernel_stubs.py", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, f"run make stubs:\n{checked.stdout}{checked.stderr}"
