"""The REST API over a real cluster: what is shown is true, what is changed is confirmed."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rocketq.cli.main import main
from rocketq.client import Admin
from rocketq.testing import EmbeddedCluster

from .kit import DEAD, ORDERS, ApiClient

AT = "/clusters/default"


def run_cli(addr: str, *arguments: str) -> Any:
    result = CliRunner().invoke(main, [*arguments, "-n", addr, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def until(check: Callable[[], Any], timeout_s: float = 15) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.1)
    return found


def parses(command: str) -> None:
    """Every shown command is one that the command line accepts."""
    for part in command.split(" && "):
        words = shlex.split(part)
        assert words[0] == "rocketq"
        group: click.Command = main
        context = click.Context(main)
        rest = words[1:]
        while isinstance(group, click.Group):
            found = group.get_command(context, rest[0])
            assert found is not None, command
            group, rest = found, rest[1:]
        group.make_context(rest[0] if rest else "x", list(rest), resilient_parsing=False)


def test_overview_counts_what_is_there_in_few_requests(api: ApiClient) -> None:
    found = until(lambda: (one := api.get(f"{AT}/overview"))["figures"]["dead_letters"] == DEAD and one)
    assert found["figures"]["brokers"] == 2
    assert found["figures"]["brokers_missing"] == 0
    assert found["partial"] == []
    billing = next(one for one in found["groups"] if one["name"] == "billing")
    assert (billing["lag"], billing["state"]) == (ORDERS, "known")
    assert found["requests"] < 200  # 15 for two brokers, and those that are asked for one by one


def test_topics_are_filtered_and_sorted_by_the_server(api: ApiClient) -> None:
    page = until(
        lambda: (
            (one := api.get(f"{AT}/topics", sort="-messages", names="Orders,Quiet"))["items"][0]["messages"] == ORDERS
            and one
        )
    )
    assert [one["name"] for one in page["items"]] == ["Orders", "Quiet"]
    assert page["total"] == 2
    assert api.get(f"{AT}/topics", q="ord")["total"] == 1
    assert {one["kind"] for one in api.get(f"{AT}/topics", kind="dlq")["items"]} == {"dlq"}
    assert [one["name"] for one in api.get(f"{AT}/topics", show="unread", names="Orders,Quiet")["items"]] == ["Quiet"]


def test_figures_are_those_of_the_command_line(api: ApiClient, cluster: EmbeddedCluster) -> None:
    addr = cluster.name_server_addr
    stats = run_cli(addr, "topic", "stats", "Orders")
    shown = api.get(f"{AT}/topics/Orders")["queues"]
    assert [(one["broker"], one["queue_id"], one["max"]) for one in shown] == [
        (one["broker"], one["queue_id"], one["max"]) for one in stats["queues"]
    ]
    status = run_cli(addr, "group", "status", "billing")
    group = api.get(f"{AT}/groups/billing")
    assert (group["lag"], group["lag_known"]) == (status["lag"], status["lag_known"])
    assert [one["lag"] for one in group["queues"]] == [one["lag"] for one in status["queues"]]


def test_a_lag_that_nobody_knows_is_unknown_with_its_reason(api: ApiClient, cluster: EmbeddedCluster) -> None:
    with Admin(cluster.name_server_addr) as admin:
        queue = admin.offsets.get("billing", "Orders")[0].queue
        admin.groups.set("half")
        admin.offsets.set("half", {queue: 10_000})
    group = api.get(f"{AT}/groups/half")
    row = next(one for one in group["queues"] if one["committed"] == 10_000)
    assert (row["lag"], row["reason"]) == (None, "offset_ahead")
    assert group["lag"] is None
    listed = until(lambda: next((one for one in api.get(f"{AT}/groups")["items"] if one["name"] == "half"), None))
    assert (listed["lag"], listed["state"]) == (None, "unknown")


def test_search_streams_everything_and_says_what_it_looked_at(api: ApiClient) -> None:
    lines = api.lines(f"{AT}/messages:search", topic="Orders", n=1000)
    messages = [line["message"] for line in lines if "message" in line]
    progress = lines[-1]["progress"]
    assert (len(messages), progress["looked_at"], progress["done"]) == (ORDERS, ORDERS, True)
    times = [one["store_ms"] for one in messages]
    assert times == sorted(times, reverse=True)
    paid = api.lines(f"{AT}/messages:search", topic="Orders", tag="paid", json="$.order.total > 500", n=1000)
    assert sorted(line["message"]["keys"][0] for line in paid if "message" in line) == [
        f"order-{n}" for n in range(51, ORDERS, 2)
    ]


def test_search_goes_on_where_it_stopped_without_gap_or_repetition(api: ApiClient) -> None:
    seen: list[str] = []
    cursor = None
    for _ in range(20):
        query = {"topic": "Orders", "n": 7, "direction": "oldest"} | ({"cursor": cursor} if cursor else {})
        lines = api.lines(f"{AT}/messages:search", **query)
        seen += [line["message"]["keys"][0] for line in lines if "message" in line]
        cursor = lines[-1]["progress"]["cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(f"order-{n}" for n in range(ORDERS))


def test_a_bad_condition_is_a_problem_with_its_reason(api: ApiClient) -> None:
    lines = api.lines(f"{AT}/messages:search", topic="Orders", json="nonsense")
    assert lines[-1]["problem"]["code"] == "invalid"
    missing = api.http.get(f"api/v1{AT}/topics/NoSuchTopic")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.json()["code"] == "not-found"


def test_a_topic_is_previewed_made_and_deleted(api: ApiClient) -> None:
    body = {"topic": "Made", "read_queues": 2, "write_queues": 2}
    plan = api.post(f"{AT}/topics", body, dryRun=True)
    assert [one["name"] for one in plan["items"]] == ["broker-0", "broker-1"]
    parses(plan["command"])
    assert api.http.get(f"api/v1{AT}/topics/Made").status_code == 404
    made = api.post(f"{AT}/topics", body, token=plan["token"])
    assert {one["status"] for one in made["items"]} == {"done"}
    refused = api.send("DELETE", f"{AT}/topics/Made")
    assert (refused.status_code, refused.json()["code"]) == (422, "confirm")
    plan = api.send("DELETE", f"{AT}/topics/Made", dryRun=True).json()
    parses(plan["command"])
    assert plan["confirm"] == "Made"
    done = api.send("DELETE", f"{AT}/topics/Made", confirm="Made", token=plan["token"])
    assert {one["status"] for one in done.json()["items"]} == {"done"}
    audit = api.get("/audit")
    assert [one["action"] for one in audit["items"][:2]] == ["topic.delete", "topic.create"]
    assert audit["intact"]


def test_a_message_is_sent_and_found_by_its_id(api: ApiClient) -> None:
    plan = api.post(f"{AT}/topics/Quiet/send", {"body": "hello {{n}}", "count": 2, "keys": ["k-{{n}}"]}, dryRun=True)
    parses(plan["command"])
    sent = api.post(f"{AT}/topics/Quiet/send", {"body": "hello {{n}}", "count": 2, "keys": ["k-{{n}}"]})
    values = [one["value"] for one in sent["items"]]
    assert [one["status"] for one in sent["items"]] == ["done", "done"]
    found = api.get(f"{AT}/message", topic="Quiet", id=values[1]["message_id"])["message"]
    assert (found["body"], found["keys"]) == ("hello 1", ["k-1"])
    place = api.get(
        f"{AT}/message", topic="Quiet", broker=values[0]["broker"], queue=values[0]["queue_id"],
        offset=values[0]["queue_offset"],
    )  # fmt: skip
    assert place["message"]["body"] == "hello 0"


def test_a_repeated_request_with_the_same_key_is_carried_out_once(api: ApiClient) -> None:
    headers = {"x-rocketq-token": api.token or "", "idempotency-key": "once"}
    url = f"api/v1{AT}/topics/Quiet/send"
    answers = [api.http.post(url, json={"body": "once"}, headers=headers).json() for _ in range(2)]
    assert answers[0]["items"][0]["value"] == answers[1]["items"][0]["value"]


def test_reset_does_what_the_preview_said_and_undo_puts_it_back(api: ApiClient, cluster: EmbeddedCluster) -> None:
    with Admin(cluster.name_server_addr) as admin:
        admin.groups.set("resets")
        queues = [one.queue for one in admin.offsets.get("resets", "Orders")]
        admin.offsets.set("resets", dict.fromkeys(queues, 3))
    path, body = f"{AT}/groups/resets:reset", {"topic": "Orders", "to": "latest"}
    plan = api.post(path, body, dryRun=True)
    assert {one["before"] for one in plan["items"]} == {3}
    assert plan["confirm"] == "resets"  # messages are skipped
    parses(plan["command"])
    with Admin(cluster.name_server_addr) as admin:
        admin.offsets.set("resets", {queues[0]: 4})
    changed = api.send("POST", path, body, token=plan["token"], confirm="resets")
    assert (changed.status_code, changed.json()["code"]) == (409, "state-changed")
    plan = api.post(path, body, dryRun=True)
    result = api.post(path, body, token=plan["token"], confirm="resets")
    after = {one["name"]: one["after"] for one in plan["items"]}
    assert {one["name"]: one["value"] for one in result["items"]} == after
    back = api.post(f"{AT}/groups/resets:undo", topic="Orders")
    assert {one["status"] for one in back["items"]} == {"done"}
    with Admin(cluster.name_server_addr) as admin:
        found = {one.queue: one.committed for one in admin.offsets.get("resets", "Orders")}
    assert found == {queue: 4 if queue == queues[0] else 3 for queue in queues}
    parses(api.post(path, {"topic": "Orders", "to": "by", "value": -1}, dryRun=True)["command"])


def test_settings_and_groups_are_changed_with_read_back(api: ApiClient) -> None:
    plan = api.post(f"{AT}/brokers/broker-0/config", {"changes": {"fileReservedTime": "71"}}, dryRun=True)
    assert plan["items"][0]["after"] == "71"
    parses(plan["command"])
    result = api.post(f"{AT}/brokers/broker-0/config", {"changes": {"fileReservedTime": "71"}}, token=plan["token"])
    assert result["items"][0]["status"] == "done"
    rows = api.get(f"{AT}/brokers/broker-0")["settings"]
    row = next(one for one in rows if one["key"] == "fileReservedTime")
    assert row["differs"]
    plan = api.post(f"{AT}/groups", {"group": "billing", "consume_enable": False}, dryRun=True)
    parses(plan["command"])
    assert {one["status"] for one in api.post(f"{AT}/groups", {"group": "fresh"})["items"]} == {"done"}
    plan = api.send("DELETE", f"{AT}/groups/fresh", dryRun=True).json()
    parses(plan["command"])
    gone = api.send("DELETE", f"{AT}/groups/fresh", confirm="fresh")
    assert {one["status"] for one in gone.json()["items"]} == {"done"}


def test_dead_letters_are_replayed_with_a_result_for_each(api: ApiClient) -> None:
    page = api.get(f"{AT}/dlq/billing/letters")
    assert len(page["items"]) == DEAD
    assert page["origins"] == {"Orders": DEAD}
    assert page["causes"] == {"bank # is down": 10, "bank ## is down": 2}
    letters = [one["ref"] for one in page["items"]][:4]
    api.post(f"{AT}/topics", {"topic": "Target", "read_queues": 1, "write_queues": 1})
    edits = [{"letter": letters[0], "body": '{"fixed": true}', "keys": ["fixed-1"]}]
    body = {"letters": letters, "to": "Target", "edits": edits}
    plan = api.post(f"{AT}/dlq/billing:replay", body, dryRun=True)
    assert [one["after"] for one in plan["items"]] == ["Target"] * 4
    parses(plan["command"])
    run = api.post(f"{AT}/dlq/billing:replay", body, token=plan["token"])["items"][0]["value"]["run"]
    found = until(lambda: (one := api.get(f"{AT}/runs/{run}"))["state"] == "done" and one)
    assert found["counts"]["sent"] == 4
    lines = api.lines(f"{AT}/messages:search", topic="Target")
    bodies = sorted(line["message"]["text"] for line in lines if "message" in line)
    assert '{"fixed": true}' in bodies
    assert len(bodies) == 4
    again = api.post(f"{AT}/dlq/billing:replay", body, dryRun=True)
    assert {"code": "replayed-before", "fields": {"count": 4}} in again["warnings"]
    assert sum(bool(one["replayed"]) for one in api.get(f"{AT}/dlq/billing/letters")["items"]) == 4
    large = [{"letter": letters[0], "body": "x" * (5 << 20)}]
    refused = api.post(f"{AT}/dlq/billing:replay", {"letters": letters[:1], "to": "Target", "edits": large})
    run = refused["items"][0]["value"]["run"]
    found = until(lambda: (one := api.get(f"{AT}/runs/{run}"))["state"] == "done" and one)
    (result,) = found["results"].values()
    assert (result["status"], "over" in result["reason"]) == ("refused", True)


def test_every_page_of_the_console_has_an_answer(api: ApiClient) -> None:
    for path in (
        "brokers",
        "nameservers",
        "timers",
        "transactions",
        "retries",
        "spark/queries",
        "alerts",
        "dlq",
        "runs",
    ):
        assert api.get(f"{AT}/{path}") is not None
    assert api.get(f"{AT}/nameservers")["agree"]
    assert api.get(f"{AT}/history", series="in,lag")["series"][1]["points"]


def test_the_document_of_the_api_names_every_route(api: ApiClient) -> None:
    document = api.get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    fields = document["components"]["schemas"]["TopicSummary"]["properties"]
    from rocketq.client.core.overview import TopicSummary  # noqa: PLC0415 - the class the document is made from

    assert set(fields) == set(TopicSummary.__dataclass_fields__)
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            assert route.get("description") or path.endswith("/logout") or method == "delete", path


@pytest.mark.parametrize("count", [1, 3])
def test_an_alert_fires_and_is_acknowledged(api: ApiClient, count: int) -> None:
    rule = {"id": f"lag-{count}", "name": "lag", "metric": "group.lag", "threshold": count, "for_s": 0}
    api.post(f"{AT}/alerts/rules", rule)
    alert = until(lambda: [one for one in api.get(f"{AT}/alerts")["active"] if one["rule"] == rule["id"]])[0]
    assert (alert["state"], alert["subject"]) == ("firing", "billing")
    api.post(f"{AT}/alerts:acknowledge", {"key": f"{rule['id']}/billing", "note": "seen"})
    active = api.get(f"{AT}/alerts")["active"]
    assert next(one for one in active if one["rule"] == rule["id"])["note"] == "seen"
    assert api.send("DELETE", f"{AT}/alerts/rules/{rule['id']}").status_code == 200
    bad = api.send("POST", f"{AT}/alerts/rules", {"name": "x", "metric": "group.nonsense"})
    assert bad.status_code == 422


def test_shown_commands_of_rare_changes_are_commands(api: ApiClient) -> None:
    clean = api.post(f"{AT}/brokers/broker-0:clean", what="unused-topics", dryRun=True)
    parses(clean["command"])
    result = api.post(f"{AT}/brokers/broker-0:clean", what="unused-topics", confirm="broker-0")
    assert result["items"][0]["status"] == "done"
    for writable in ("false", "true"):
        plan = api.post(f"{AT}/brokers/broker-0:maintenance", writable=writable, dryRun=True)
        parses(plan["command"])
        done = api.post(f"{AT}/brokers/broker-0:maintenance", writable=writable)
        assert done["items"][0]["status"] == "done"
    for command in (
        "rocketq transaction check ID",
        "rocketq transaction decide ID --rollback",
        "rocketq timer cancel H",
    ):
        parses(command)


def test_the_list_of_groups_on_the_command_line_has_lag_and_members(cluster: EmbeddedCluster) -> None:
    row = next(one for one in run_cli(cluster.name_server_addr, "group", "list") if one["group"] == "billing")
    assert (row["lag"], row["members"], row["state"]) == (ORDERS, 0, "known")
