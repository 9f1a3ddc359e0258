"""Verbs for monitors: exit codes of `check`, files of `metrics`, and the exporter's names against a real broker."""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from rocketq.broker.stats import families
from rocketq.cli.alert_rules import PANELS, RULES, grafana_board, rules_yaml
from rocketq.cli.commands.calling import Caller
from rocketq.cli.commands.check import State, judge
from rocketq.cli.commands.exporter import Exporter
from rocketq.testing import EmbeddedCluster
from rocketq.testing.loop_thread import LoopThread
from tests.contract.cli.conftest import RunCommand


def test_check_follows_the_plugin_convention(rocketq: RunCommand, topic: str, group: str) -> None:
    assert rocketq("check", "cluster").code == 0
    assert rocketq("check", "cluster", "--brokers", "9").code == 2
    said = rocketq("check", "broker", "broker-0", "--disk-warning", "100", "--disk-critical", "100")
    assert (said.code, said.out.startswith("OK - broker broker-0 runs, disk ")) == (0, True)
    assert rocketq("check", "broker", "broker-0", "--disk-warning", "0", "--disk-critical", "100").code == 1
    assert rocketq("check", "broker", "nobody").code == 3
    assert rocketq("check", "group", "nobody").code == 3
    rocketq("topic", "create", topic, "--queues", "2")
    rocketq("group", "set", group)
    assert rocketq("check", "group", group).code == 3
    rocketq("send", topic, "x", "--queue", "broker-0:0")
    rocketq("offset", "set", group, topic, "0", "--queue", "broker-0:0")
    assert "offline with lag 1" in rocketq("check", "group", group).out
    assert rocketq("check", "group", group, "--offline-ok").code == 0
    assert rocketq("check", "group", group, "--warning", "0", "--offline-ok").code == 1
    assert rocketq("check", "group", group, "--critical", "0", "--offline-ok").code == 2
    rocketq("send", topic, "x", "--queue", "broker-0:1")
    said = rocketq("check", "group", group, "--offline-ok", "--json")
    assert (said.code, said.json["state"]) == (3, "UNKNOWN")
    assert "never_committed" in said.json["message"]


@pytest.mark.parametrize(("value", "state"), [(5, State.OK), (6, State.WARNING), (11, State.CRITICAL)])
def test_limits_are_exclusive(value: float, state: State) -> None:
    assert judge(value, 5, 10) is state


def test_rules_and_board_use_metrics_that_exist() -> None:
    names = {family.name for family in (*families.APACHE, *families.OURS)}
    names |= {f"{family.name}_bucket" for family in (*families.APACHE, *families.OURS) if family.buckets}
    for expression in (*(rule.expression for rule in RULES), *(panel[1] for panel in PANELS)):
        used = {
            word for word in re.findall(r"\w+", expression) if word.startswith(("rocketmq_", "rocketq_", "process_"))
        }
        assert used <= names, used - names
    assert rules_yaml().count("- alert:") == len(RULES)
    assert len(json.loads(json.dumps(grafana_board()))["panels"]) == len(PANELS)


@pytest.fixture
def exporting(cluster: EmbeddedCluster) -> Iterator[str]:
    thread = LoopThread("exporter")
    exporter = Exporter(Caller(cluster.name_server_addr, 3_000, as_json=False), "127.0.0.1", 0, 60)
    thread.run(exporter.start())
    yield exporter.addresses()["exporter"]
    thread.run(exporter.stop())
    thread.close()


def test_the_exporter_has_its_names_with_values(exporting: str, rocketq: RunCommand) -> None:
    with urllib.request.urlopen(f"http://{exporting}/metrics", timeout=10) as answer:
        found = {family.name: family for family in parse(answer.read().decode())}
    status = rocketq("broker", "status", "broker-0", "--json").json
    offset = found["rocketmq_brokeruntime_commitlog_minoffset"].samples[0]
    assert offset.value == float(status["commitLogMinOffset"])
    assert set(offset.labels) == {"cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"}
    assert {"rocketmq_brokeruntime_pmdt_0ms", "rocketmq_brokeruntime_commitlog_disk_ratio"} <= found.keys()
    with urllib.request.urlopen(f"http://{exporting}/readyz", timeout=10) as answer:
        assert answer.status == 200


def test_log_levels_change_at_run_time(rocketq: RunCommand) -> None:
    assert rocketq("broker", "log-level", "broker-0", "debug", "--logger", "rocketq.store", "--json").json == {
        "rocketq.store": "DEBUG"
    }
    assert logging.getLogger("rocketq.store").level == logging.DEBUG  # the broker runs in this process
    assert rocketq("broker", "log-level", "broker-0", "--json").json == {"rocketq.store": "DEBUG"}
    assert rocketq("broker", "log-level", "broker-0", "default", "--logger", "rocketq.store", "--json").json == {}
    assert logging.getLogger("rocketq.store").level == logging.NOTSET
    assert rocketq("broker", "log-level", "broker-0", "debug", "--logger", "root").code != 0
