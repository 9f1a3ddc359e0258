"""`rocketq metrics`: files for Prometheus and Grafana."""

from __future__ import annotations

import json
from typing import Any

import click

from rocketq.cli.alert_rules import grafana_board, rules_yaml
from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.client.admin import AsyncAdmin
from rocketq.client.fan_out import outcomes
from rocketq.remoting.address import join_addr


@click.group()
def metrics() -> None:
    """Files for Prometheus and Grafana."""


@metrics.command(epilog=example("rocketq metrics rules > rocketq-rules.yml"))
def rules() -> None:
    """Print alert rules for Prometheus (YAML)."""
    click.echo(rules_yaml(), nl=False)


@metrics.command(epilog=example("rocketq metrics grafana > rocketq-board.json"))
def grafana() -> None:
    """Print a dashboard for Grafana (JSON)."""
    click.echo(json.dumps(grafana_board(), indent=2))


@metrics.command(epilog=example("rocketq metrics targets > rocketq-targets.json"))
@calls_cluster
def targets(caller: Caller) -> None:
    """Print scrape targets of all brokers (JSON).

    The format is that of file_sd_configs. Brokers without metrics (metricsExporterType) and brokers that do not
    answer are left out.
    """
    click.echo(json.dumps(caller.run(_targets), indent=2))


async def _targets(admin: AsyncAdmin) -> list[dict[str, Any]]:
    brokers = (await admin.brokers.cluster()).brokers
    addrs = {addr: (name, one.cluster) for name, one in sorted(brokers.items()) for addr in one.addrs.values()}
    found = await outcomes({addr: admin.brokers.config(addr) for addr in addrs})
    listed = []
    for addr, config in found.results.items():
        port = config.get("metricsPromExporterPort", "0")
        if config.get("metricsExporterType", "DISABLE").upper() not in ("PROM", "2") or port == "0":
            continue
        host = config.get("metricsPromExporterHost") or addr.rpartition(":")[0]
        name, cluster = addrs[addr]
        labels = {"rocketmq_cluster": cluster, "broker": name}
        listed.append({"targets": [join_addr(host.strip("[]"), int(port))], "labels": labels})
    return listed
