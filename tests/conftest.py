"""For the whole suite: where tests run side by side, each row of them has ports of its own.

A broker that is killed and started again must find its port free, so no neighbour may have taken it meanwhile.
And a disk that is too full is told at once: brokers refuse messages there, which would look like a hundred defects.
What a test gives as `record_property("figures", line)` is printed in the end. Generated cases may take their time: how
fast the machine is says nothing about them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import hypothesis
import pytest

from rocketq.broker.free_port import RANGE_VARIABLE
from rocketq.store.disk import Disk

_LOW, _STEP = 20_000, 2_000
_FULL = 0.85
_LONG = ("adversity", "sim")


def _ports_of_this_row() -> str:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw5")[2:]) % 6
    return f"{_LOW + _STEP * number}-{_LOW + _STEP * (number + 1)}"


os.environ[RANGE_VARIABLE] = _ports_of_this_row()
os.environ.setdefault("ROCKETQ_CONSOLE", "0")  # the tests of the console start it themselves
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")


def deal(sizes: dict[str, int], row_count: int) -> list[str]:
    """Files in an order whose equal parts, one for each row, all begin with some of those that take long."""
    rows: list[list[str]] = [[] for _ in range(row_count)]
    long = [name for name in sizes if name.startswith(tuple(f"tests/{folder}/" for folder in _LONG))]
    for number, name in enumerate(long):
        rows[number % row_count].append(name)
    for name in sorted(sizes.keys() - set(long), key=lambda name: (-sizes[name], name)):
        min(rows, key=lambda row: sum(sizes[each] for each in row)).append(name)
    return [name for row in rows for name in row]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    row_count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if row_count > 1:
        by_file: dict[str, list[pytest.Item]] = {}
        for item in items:
            by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
        files = deal({name: len(found) for name, found in by_file.items()}, row_count)
        items[:] = [item for name in files for item in by_file[name]]


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
