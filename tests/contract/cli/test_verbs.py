"""Every verb against a running cluster: what it prints for people, what for programs, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import threading

from rocketq.client import Message, Sender, Session
from rocketq.testing.embedded import EmbeddedCluster

from .conftest import RunCommand


def test_a_topic_from_its_making_to_its_end(rocketq: RunCommand, cluster: EmbeddedCluster, topic: str) -> None:
    made = rocketq("topic", "create", topic, "--queues", "2", "--json")
    assert made.code == 0
    assert made.json == {"topic": topic, "brokers": {"broker-0": cluster.broker_addr}, "routed": True}
    assert rocketq("topic", "create", topic, "--queues", "2").out == f"{topic} is on broker-0\n"
    assert topic in rocketq("topic", "list").out.splitlines()
    listed = rocketq("topic", "list", "--all", "--json").json
    assert {"topic": topic, "kind": "normal"} in listed
    assert {"topic": "TBW102", "kind": "system"} in listed
    shown = rocketq("topic", "show", topic, "--json").json
    assert shown == {
        "topic": topic,
        "order": None,
        "brokers": [
            {
                "broker": "broker-0",
                "read_queues": 2,
                "write_queues": 2,
                "perm": "RW-",
                "addresses": {"0": cluster.broker_addr},
            }
        ],
        "groups": [],
    }
    assert "RW-" in rocketq("topic", "show", topic).out
    rocketq("send", topic, "one")
    stats = rocketq("topic", "stats", topic, "--json").json
    assert (stats["topic"], stats["messages"]) == (topic, 1)
    assert set(stats["queues"][0]) == {"broker", "queue_id", "min", "max", "messages", "last_ms"}
    assert "1 messages" in rocketq("topic", "stats", topic).out
    deleted = rocketq("topic", "delete", topic, "--yes", "--json")
    assert deleted.json == {"topic": topic, "brokers": {"broker-0": cluster.broker_addr}}
    assert rocketq("topic", "show", topic).code == 3


def test_a_topic_is_not_deleted_unasked(rocketq: RunCommand, topic: str) -> None:
    rocketq("topic", "create", topic)
    refused = rocketq("topic", "delete", topic, stdin="n\n")
    assert refused.code == 1
    assert rocketq("topic", "show", topic).code == 0
    assert rocketq("topic", "delete", topic, stdin="y\n").code == 0


def test_messages_are_sent_and_found(rocketq: RunCommand, topic: str) -> None:
    rocketq("topic", "create", topic, "--queues", "1")
    said = rocketq("send", topic, "hällo", "--tag", "t", "--key", "k1", "--key", "k2", "--property", "a=b=c", "--json")
    assert said.code == 0
    sent = said.json
    assert set(sent) == {
        "status",
        "message_id",
        "offset_message_id",
        "topic",
        "broker",
        "queue_id",
        "queue_offset",
    }
    assert (sent["status"], sent["queue_id"], sent["queue_offset"]) == ("SEND_OK", 0, 0)
    got = rocketq("message", "get", sent["offset_message_id"], "--json").json
    assert (got["body"], got["tag"], got["keys"], got["properties"]["a"]) == ("hällo", "t", ["k1", "k2"], "b=c")
    assert rocketq("message", "get", sent["message_id"], "-t", topic, "--json").json == got
    text = rocketq("message", "get", sent["offset_message_id"]).out
    assert "hällo" in text
    assert sent["message_id"] in text
    assert rocketq("message", "query", topic, "--key", "k2", "--json").json == [got]
    assert rocketq("message", "query", topic, "--unique-key", sent["message_id"], "--json").json == [got]
    assert rocketq("message", "query", topic, "--since", "1h", "--json").json == [got]
    assert rocketq("message", "query", topic, "--since", "1h", "--tag", "other").code == 3
    assert rocketq("message", "query", topic, "--until", "1d", "--json").code == 3
    assert "hällo" in rocketq("message", "query", topic, "--key", "k1").out
    again = rocketq("message", "resend", sent["message_id"], "-t", topic, "--json").json
    assert again["queue_offset"] == 1
    assert "SEND_OK" in rocketq("message", "resend", sent["offset_message_id"], "--to-topic", topic).out


def test_standard_input_is_one_message_or_one_per_line(rocketq: RunCommand, topic: str) -> None:
    rocketq("topic", "create", topic, "--queues", "1")
    assert rocketq("send", topic, stdin="all\nof it\n").code == 0
    assert len(rocketq("send", topic, "--lines", "--queue", "broker-0:0", stdin="a\n\nb\n").out.splitlines()) == 2
    tailed = rocketq("tail", topic, "--from", "earliest", "--no-follow", "--json")
    assert tailed.code == 0
    assert [json.loads(line)["body"] for line in tailed.out.splitlines()] == ["all\nof it\n", "a", "b"]
    lines = rocketq("tail", topic, "--from", "1h", "--no-follow").out.splitlines()
    assert len(lines) == 3
    assert "broker-0:0@0" in lines[0]
    assert "all\\nof it" in lines[0]
    assert rocketq("tail", topic, "--no-follow").out == ""


def test_bytes_that_are_no_text_are_shown_in_base64(rocketq: RunCommand, topic: str) -> None:
    rocketq("topic", "create", topic, "--queues", "1")
    assert rocketq("send", topic, os.fsdecode(b"\xff\xfe")).code == 0  # as the shell gives it
    assert rocketq("send", topic, stdin=b"\xff\xfe").code == 0
    lines = rocketq("tail", topic, "--from", "earliest", "--no-follow", "--json").out.splitlines()
    assert [json.loads(line)["body_base64"] for line in lines] == ["//4=", "//4="]
    assert "body" not in json.loads(lines[0])
    assert "(2 bytes) fffe" in rocketq("tail", topic, "--from", "earliest", "--no-follow").out


def test_a_topic_is_watched_as_messages_come(rocketq: RunCommand, cluster: EmbeddedCluster, topic: str) -> None:
    rocketq("topic", "create", topic, "--queues", "2")

    async def send() -> None:
        async with Session(cluster.name_server_addr) as session:
            sender = Sender(session, "p")
            for at in range(3):
                await sender.send(Message(topic=topic, body=b"m%d" % at, tag="x"))
                await sender.send(Message(topic=topic, body=b"other", tag="z"))

    later = threading.Timer(0.1, lambda: asyncio.run(send()))
    later.start()
    said = rocketq("tail", topic, "--from", "earliest", "--tag", "x || y", "--count", "3", "--json")
    later.join()
    assert said.code == 0
    assert sorted(json.loads(line)["body"] for line in said.out.splitlines()) == ["m0", "m1", "m2"]
    assert rocketq("tail", topic, "--for", "0.1").code == 0


def test_a_group_from_its_making_to_its_end(rocketq: RunCommand, topic: str, group: str) -> None:
    rocketq("topic", "create", topic, "--queues", "1")
    for at in range(4):
        rocketq("send", topic, f"m{at}")
    made = rocketq("group", "set", group, "--retry-max", "3", "--no-broadcast", "--json")
    assert made.code == 0
    assert made.json["brokers"]["broker-0"]["retry_max"] == 3
    assert made.json["brokers"]["broker-0"]["consume_broadcast_enable"] is False
    (listed,) = [one for one in rocketq("group", "list", "--json").json if one["group"] == group]
    assert (listed["brokers"], listed["consume_enabled"], listed["retry_max"]) == (["broker-0"], True, 3)
    assert (listed["members"], listed["state"]) == (0, "not-subscribed")
    assert group in rocketq("group", "list").out
    assert "TOOLS_CONSUMER" in rocketq("group", "list", "--all").out
    set_to = rocketq("offset", "set", group, topic, "1", "--queue", "broker-0:0", "--json")
    assert set_to.json["queues"] == [
        {"topic": topic, "broker": "broker-0", "queue_id": 0, "committed": 1, "min": 0, "max": 4}
    ]
    assert rocketq("offset", "get", group, topic, "--json").json == set_to.json
    assert "COMMITTED" in rocketq("offset", "get", group, topic).out
    status = rocketq("group", "status", group, "--json").json
    assert (status["group"], status["online"], status["lag"], status["lag_known"]) == (group, False, 3, 3)
    assert status["queues"] == [
        {
            "topic": topic,
            "broker": "broker-0",
            "queue_id": 0,
            "committed": 1,
            "max": 4,
            "lag": 3,
            "unknown": None,
            "last_ms": status["queues"][0]["last_ms"],
        }
    ]
    assert "offline" in rocketq("group", "status", group).out
    preview = rocketq("group", "reset", group, topic, "--to-latest", "--preview", "--json").json
    assert preview["preview"] is True
    assert (preview["queues"][0]["before"], preview["queues"][0]["after"], preview["queues"][0]["again"]) == (1, 4, -3)
    assert rocketq("offset", "get", group, topic, "--json").json == set_to.json
    assert "nothing was changed" in rocketq("group", "reset", group, topic, "--to-time", "1h", "--preview").out
    assert rocketq("group", "reset", group, topic, "--to-offset", "2", "--queue", "broker-0:0").code == 0
    assert rocketq("offset", "get", group, topic, "--json").json["queues"][0]["committed"] == 2
    assert rocketq("group", "reset", group, topic, "--to-earliest").code == 0
    assert rocketq("group", "status", group, "--json").json["lag"] == 4
    assert rocketq("group", "delete", group, "--yes", "--json").json == {"group": group, "brokers": ["broker-0"]}
    assert rocketq("group", "status", group).code == 3


def test_lag_that_is_unknown(rocketq: RunCommand, topic: str, group: str) -> None:
    rocketq("topic", "create", topic, "--queues", "2")
    rocketq("group", "set", group)
    rocketq("offset", "set", group, topic, "0", "--queue", "broker-0:1")
    status = rocketq("group", "status", group, "--json").json
    assert [(queue["lag"], queue["unknown"]) for queue in status["queues"]] == [(0, None), (0, None)]
    assert status["lag"] == 0
    assert rocketq("send", topic, "x", "--queue", "broker-0:0").code == 0
    status = rocketq("group", "status", group, "--json").json
    assert [(queue["lag"], queue["unknown"]) for queue in status["queues"]] == [(None, "never_committed"), (0, None)]
    assert status["lag"] is None
    assert "? never_committed" in rocketq("group", "status", group).out


def test_the_cluster_and_its_brokers(rocketq: RunCommand, cluster: EmbeddedCluster) -> None:
    shown = rocketq("cluster", "show", "--json").json["brokers"]
    assert [(one["cluster"], one["broker"], one["id"], one["address"], one["error"]) for one in shown] == [
        ("DefaultCluster", "broker-0", 0, cluster.broker_addr, None)
    ]
    assert cluster.broker_addr in rocketq("cluster", "show").out
    status = rocketq("broker", "status", "broker-0", "--json").json
    assert status["brokerActive"] == "true"
    assert "putTps" in rocketq("broker", "status", cluster.broker_addr).out
    config = rocketq("broker", "config", "get", "broker-0", "--json").json
    assert config["brokerName"] == "broker-0"
    assert rocketq("broker", "config", "get", "broker-0", "brokerName").out == "brokerName=broker-0\n"
    changed = rocketq("broker", "config", "set", "broker-0", "fileReservedTime=70", "--json")
    assert changed.json == {"fileReservedTime": "70"}
    assert rocketq("broker", "config", "get", "broker-0", "fileReservedTime").out == "fileReservedTime=70\n"
