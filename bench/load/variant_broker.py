"""A NameServer and a broker in one process, as `rocketq up` runs them, with what only the Python API can add.

    python -m bench.load.variant_broker --guard --data-dir D --broker-port P --ready-file F [--set KEY=VALUE ...]
    python -m bench.load.variant_broker --credentials ACCESS_KEY SECRET_KEY ...

--guard adds a guard that lets every request pass, --credentials has the broker reject requests that are not signed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rocketq.broker import Broker, BrokerConfig
from rocketq.broker.pipeline.access import SignedAccess
from rocketq.cli.commands.broker import gather_settings, parse_changes
from rocketq.cli.logs import set_up_logs
from rocketq.cli.serving import serve
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.store import StoreConfig


class VariantBroker:
    """What is served: the broker is made when the NameServer's port is known."""

    def __init__(self, name_server: NameServer, settings: dict[str, str], given: argparse.Namespace) -> None:
        self._name_server = name_server
        self._settings = settings
        self._given = given
        self._broker: Broker | None = None

    async def start(self) -> None:
        await self._name_server.start()
        try:
            self._broker = make_broker(self._settings | {"namesrvAddr": self._name_server.addr}, self._given)
            await self._broker.start()
        except BaseException:
            await self._name_server.stop()
            raise

    async def stop(self) -> None:
        if self._broker is not None:
            await self._broker.stop()
        await self._name_server.stop()

    def addresses(self) -> dict[str, str]:
        assert self._broker is not None
        return {"namesrv": self._name_server.addr, self._broker.config.name: self._broker.addr}


def make_broker(settings: dict[str, str], given: argparse.Namespace) -> Broker:
    config = BrokerConfig.from_java(settings)
    store = StoreConfig.from_java(settings, root=Path(settings["storePathRootDir"]))
    if given.credentials:
        access_key, secret_key = given.credentials
        broker = Broker(config, store, access=SignedAccess({access_key: secret_key}))
    else:
        broker = Broker(config, store)
    if given.guard:
        broker.guards.append(lambda request, connection: None)
    return broker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--guard", action="store_true")
    parser.add_argument("--credentials", nargs=2, metavar=("ACCESS_KEY", "SECRET_KEY"))
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--broker-port", type=int, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    set_up_logs("warning", None)
    changes = parse_changes(given.changes) | {"listenPort": str(given.broker_port)}
    settings = gather_settings(None, given.data_dir / "broker", changes, brokerName="broker-0")
    folder = given.data_dir / "namesrv"
    names = NameServerConfig(port=0, kv_path=folder / "kvConfig.json", config_path=folder / "namesrv.properties")
    serve(VariantBroker(NameServer(names), settings, given), given.ready_file)


if __name__ == "__main__":
    main()
