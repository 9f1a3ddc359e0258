from __future__ import annotations

import pytest

from rocketq.errors import ConfigError
from rocketq.remoting.address import join_addr, split_addr


@pytest.mark.parametrize(
    ("addr", "host", "port"),
    [("127.0.0.1:9876", "127.0.0.1", 9876), ("broker-a:1", "broker-a", 1), ("[::1]:10911", "::1", 10911)],
)
def test_an_address_splits_and_joins(addr: str, host: str, port: int) -> None:
    assert split_addr(addr) == (host, port)
    assert join_addr(host, port) == addr


@pytest.mark.parametrize("addr", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1", "host:²"])
def test_what_is_no_address_is_refused(addr: str) -> None:
    with pytest.raises(ConfigError):
        split_addr(addr)
