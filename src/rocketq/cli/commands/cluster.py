"""`rocketq cluster`: the brokers of a cluster."""

from __future__ import annotations

from typing import Any

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import NONE, table
from rocketq.client.admin import AsyncAdmin
from rocketq.client.fan_out import outcomes

_STATS = {
    "version": "brokerVersionDesc",
    "release": "rocketqVersion",
    "put_tps": "putTps",
    "get_tps": "getTransferedTps",
}


@click.group()
def cluster() -> None:
    """Clusters: show."""


@cluster.command(epilog=example("rocketq cluster show"))
@calls_cluster
def show(caller: Caller) -> None:
    """Show all registered brokers. ? marks the rates of a broker that does not answer."""
    rows = caller.run(_rows)
    titles = ["CLUSTER", "BROKER", "ID", "ADDRESS", "VERSION", "ROCKETQ", "IN/S", "OUT/S", "STATE"]
    lines = [
        (*(row[name] for name in ("cluster", "broker", "id", "address", *_STATS)), row["error"] or "up") for row in rows
    ]
    caller.show({"brokers": rows}, table(titles, lines) if rows else "no broker is registered")


async def _rows(admin: AsyncAdmin) -> list[dict[str, Any]]:
    brokers = (await admin.brokers.cluster()).brokers
    places = [(name, broker_id, addr) for name in sorted(brokers) for broker_id, addr in brokers[name].addrs.items()]
    found = await outcomes({addr: admin.brokers.status(addr) for _, _, addr in places})
    return [
        {
            "cluster": brokers[name].cluster,
            "broker": name,
            "id": broker_id,
            "address": addr,
            **_stats(found.results.get(addr)),
            "error": str(found.failures[addr]) if addr in found.failures else None,
        }
        for name, broker_id, addr in places
    ]


def _stats(status: dict[str, str] | None) -> dict[str, str | None]:
    """Rates are of the last ten seconds, the first of several numbers."""
    if status is None:
        return dict.fromkeys(_STATS)
    return {ours: (status.get(theirs, "").split(" ")[0] or NONE) for ours, theirs in _STATS.items()}
