"""What Python workers keep from the garbage collector."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from rocketq.spark.source import spare_what_is_loaded
spare_what_is_loaded()
spared = gc.get_freeze_count()
kept = [[] for _ in range(1_000)]
spare_what_is_loaded()
print(spared > 1_000, gc.get_freeze_count() <= spared)
"""


def test_what_is_loaded_is_spared_once_and_later_objects_are_not() -> None:
    """Goal: tasks after the first do not pay for modules, and what they leave behind is still collected."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["True", "True"]
