"""Tests that use no kernel are run whole with one form of it only."""

from __future__ import annotations

from pathlib import Path

import rocketq.kernel

COMPILED_IS_TESTED_TOO = not rocketq.kernel.compiled and any(Path(rocketq.kernel.__file__).parent.glob("*.so"))
