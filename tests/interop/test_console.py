"""The web console beside Apache's brokers: pages, sending, offsets, dead letters, settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.client import Admin, Message, Producer
from tests.contract.console.kit import ApiClient, console
from tests.contract.console.test_api import until

from .conftest import StartBroker

AT = "/clusters/default"
pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_the_console_administers_an_apache_cluster(apache: StartBroker, version: str, tmp_path: Path) -> None:
    """Goal: everything an operator does works beside a Java broker, and nothing shown is a guess."""
    with apache(version) as broker:
        addr = broker.nameserver.address
        with Admin(addr) as admin, Producer("shop", name_servers=addr) as producer:
            until(lambda: "TBW102" in admin.topics.list(), 40)
            admin.topics.create("Orders", queues=2)
            admin.topics.create("%DLQ%billing", queues=1)
            admin.groups.set("billing", retry_max=3)
            for n in range(10):
                producer.send(Message(topic="Orders", body=b'{"n": %d}' % n, keys=(f"k{n}",), tag="t"))
            dead = {"DLQ_ORIGIN_TOPIC": "Orders"}
            producer.send(Message(topic="%DLQ%billing", body=b"dead", properties=dead))
            queues = [one.queue for one in admin.offsets.get("billing", "Orders")]
            admin.offsets.set("billing", dict.fromkeys(queues, 0))
        with console(addr, tmp_path / "console") as url, ApiClient(url) as api:
            found = until(lambda: (one := api.get(f"{AT}/overview"))["figures"]["dead_letters"] == 1 and one, 30)
            assert found["partial"] == []
            assert found["brokers"][0]["version"]
            for path in ("topics", "groups", "brokers", "nameservers", "retries", "dlq", "alerts", "access"):
                api.get(f"{AT}/{path}")
            detail = api.get(f"{AT}/topics/Orders")
            assert sum(one["messages"] for one in detail["queues"]) == 10
            group = api.get(f"{AT}/groups/billing")
            assert group["lag"] == 10
            listed = next(one for one in api.get(f"{AT}/groups")["items"] if one["name"] == "billing")
            assert (listed["lag"], listed["state"]) == (10, "known")
            lines = api.lines(f"{AT}/messages:search", topic="Orders", json="$.n >= 8")
            assert sorted(line["message"]["keys"][0] for line in lines if "message" in line) == ["k8", "k9"]
            sent = api.post(f"{AT}/topics/Orders/send", {"body": "hello", "keys": ["hi"]})["items"][0]["value"]
            assert api.get(f"{AT}/message", topic="Orders", id=sent["message_id"])["message"]["body"] == "hello"
            plan = api.post(f"{AT}/groups/billing:reset", {"topic": "Orders", "to": "latest"}, dryRun=True)
            reset = api.post(
                f"{AT}/groups/billing:reset",
                {"topic": "Orders", "to": "latest"},
                confirm="billing",
                token=plan["token"],
            )
            assert {one["status"] for one in reset["items"]} <= {"done", "unchanged"}
            assert api.get(f"{AT}/groups/billing")["lag"] == 0
            letters = [one["ref"] for one in api.get(f"{AT}/dlq/billing/letters")["items"]]
            run = api.post(f"{AT}/dlq/billing:replay", {"letters": letters})["items"][0]["value"]["run"]
            until(lambda: api.get(f"{AT}/runs/{run}")["counts"].get("sent") == 1)
            name = found["brokers"][0]["name"]
            changed = api.post(f"{AT}/brokers/{name}/config", {"changes": {"fileReservedTime": "71"}})
            assert changed["items"][0]["status"] == "done"
