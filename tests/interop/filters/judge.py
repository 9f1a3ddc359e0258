"""What Apache's own parser and evaluation make of conditions, without any broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.interop.release import Release
from tests.unit.filter.conditions import Case

SOURCE = Path(__file__).with_name("SqlJudge.java")
RUN_SECONDS_MAX = 120


def apache_verdicts(release: Release, cases: Iterable[Case], home: Path) -> list[str]:
    """A letter for each: B does not compile, X fails, T, F, N."""
    ran = subprocess.run(
        [*release.java(heap_mb=256, home=home), str(SOURCE)],
        input="".join(case.line() + "\n" for case in cases).encode(),
        capture_output=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"the judge failed:\n{ran.stderr.decode(errors='replace')[-4000:]}")
    return ran.stdout.decode().split()
