"""For the whole suite: where tests run side by side, each row of them has ports of its own.

A broker that is killed and started again must find its port free, so no neighbour may have taken it meanwhile.
"""

from __future__ import annotations

import os

from rocketq.broker.free_port import RANGE_VARIABLE

_LOW, _STEP = 20_000, 2_000


def _ports_of_this_row() -> str:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw5")[2:]) % 6
    return f"{_LOW + _STEP * number}-{_LOW + _STEP * (number + 1)}"


os.environ[RANGE_VARIABLE] = _ports_of_this_row()
