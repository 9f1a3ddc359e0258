"""An Apache broker that checks signatures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .test_producer_access import ACCOUNTS, SETTINGS


@contextmanager
def guarded_broker(shared: ApacheNameServer, folder: Path, version: str) -> Iterator[ApacheBroker]:
    """With a NameServer of its own, of the release of `shared`: no other broker of its name may be asked instead."""
    conf = folder / "broker" / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    with (
        ApacheNameServer(shared.release, work=folder / "nameserver") as own,
        ApacheBroker(
            own,
            port=free_broker_port(),
            store=folder / "store",
            work=folder / "broker",
            settings=SETTINGS[version] | {"authConfigPath": str(folder / "auth")},
        ) as broker,
    ):
        yield broker
