"""For the whole suite: where tests run side by side, each row of them has ports of its own.

A broker that is killed and started again must find its port free, so no neighbour may have taken it meanwhile.
And a disk that is too full is told at once: brokers refuse messages there, which would look like a hundred defects.
What a test gives as `record_property("figures", line)` is printed in the end.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from rocketq.broker.free_port import RANGE_VARIABLE
from rocketq.store.disk import Disk

_LOW, _STEP = 20_000, 2_000
_FULL = 0.85


def _ports_of_this_row() -> str:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw5")[2:]) % 6
    return f"{_LOW + _STEP * number}-{_LOW + _STEP * (number + 1)}"


os.environ[RANGE_VARIABLE] = _ports_of_this_row()


def pytest_sessionstart() -> None:
    folder = Path(tempfile.gettempdir())
    used = Disk().usage(folder).used_ratio
    if used > _FULL:
        pytest.exit(
            f"the disk of {folder} is {used:.0%} full: brokers clean up and refuse messages on such a disk, so tests "
            f"would fail for want of room. Free some, or set TMPDIR to a disk that is less than {_FULL:.0%} full.",
            returncode=3,
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {line}")
