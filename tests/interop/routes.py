"""Brokers of Apache serve before their NameServer knows them; on a busy machine long before."""

from __future__ import annotations

import time

from rocketq.client import Admin
from rocketq.protocol.failures import TopicNotFoundError

ROUTED_SECONDS_MAX = 90
EVERYBODYS_TOPIC = "TBW102"


def await_route(name_servers: str) -> None:
    """Until a broker is registered."""
    deadline_s = time.monotonic() + ROUTED_SECONDS_MAX
    with Admin(name_servers) as admin:
        while True:
            try:
                admin.topics.route(EVERYBODYS_TOPIC)
                return
            except TopicNotFoundError:
                assert time.monotonic() < deadline_s, "no broker has registered"
                time.sleep(0.1)
