"""`rocketq bench` against a running cluster."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import suppress

import pytest

from rocketq.cli.load.driving import Outcome, Plan, drive
from rocketq.client.errors import NoQueueError
from rocketq.errors import ConnectionClosedError
from rocketq.protocol.command import Command
from rocketq.protocol.frame import encode_command

from .conftest import RunCommand

QUICK = ("--seconds", "1", "--warm-up", "0", "--connections", "2", "--in-flight", "4")


def test_sends_are_measured_and_stay(rocketq: RunCommand, topic: str) -> None:
    """Goal: the topic is made, what was counted is stored, and the figures are whole."""
    said = rocketq("bench", "send", topic, *QUICK, "--queues", "2", "--pid", str(os.getpid()), "--json")
    assert (said.code, said.err) == (0, "")
    assert said.json["messages"] > 0
    assert said.json["refused"] == 0
    assert said.json["broker_cpu_us_per_message"] > 0
    assert said.json["client_cpu_us_per_message"] > 0
    assert 0 < said.json["p50_us"] <= said.json["p99_us"] <= said.json["max_us"]
    assert rocketq("topic", "stats", topic, "--json").json["messages"] >= said.json["messages"]


def test_batches_and_pulls_are_measured(rocketq: RunCommand, topic: str) -> None:
    """Goal: a batch counts its messages, and pulls bring what was sent."""
    sent = rocketq("bench", "send", topic, *QUICK, "--batch", "8", "--size", "64", "--json").json
    assert sent["messages_per_s"] >= 7.9 * sent["requests_per_s"]
    pulled = rocketq("bench", "consume", topic, *QUICK, "--pull-count", "16", "--json")
    assert pulled.code == 0
    assert pulled.json["messages"] > pulled.json["requests_per_s"] * pulled.json["seconds"]
    text = rocketq("bench", "consume", topic, *QUICK).out
    assert "messages/s" not in text
    assert all(word in text for word in ("pulls of 32", "messages", "latency", "p99.9"))


def test_a_count_ends_the_run(rocketq: RunCommand, topic: str) -> None:
    """Goal: exactly so many messages are sent, in whole batches; pulls end when so many came."""
    said = rocketq("bench", "send", topic, *QUICK, "--count", "100", "--batch", "8", "--json")
    assert (said.code, said.json["messages"]) == (0, 104)
    assert rocketq("topic", "stats", topic, "--json").json["messages"] == 104
    pulled = rocketq("bench", "consume", topic, *QUICK, "--count", "1000", "--json")
    assert pulled.code == 0
    assert pulled.json["messages"] >= 1000


def test_a_broker_of_this_host_needs_no_pid(rocketq: RunCommand, topic: str) -> None:
    """Goal: its CPU is told because it listens here."""
    said = rocketq("bench", "send", topic, *QUICK, "--count", "50", "--json")
    assert said.json["broker_cpu_us_per_message"] > 0


def test_what_cannot_be_measured_is_said(rocketq: RunCommand, topic: str) -> None:
    """Goal: an empty topic, a process that is not here and a batch that no request holds, each with its exit code."""
    rocketq("topic", "create", topic)
    empty = rocketq("bench", "consume", topic, *QUICK)
    assert (empty.code, "bench send" in empty.err) == (3, True)
    assert rocketq("bench", "send", topic, *QUICK, "--pid", str(2**22 + 1)).code == 2
    assert rocketq("bench", "send", topic, *QUICK, "--batch", "10000", "--size", "4000").code == 2


def test_refused_sends_are_a_failure(rocketq: RunCommand, topic: str) -> None:
    """Goal: a body that the broker does not take ends with 1 and the broker's own words."""
    rocketq("topic", "create", topic)
    said = rocketq("bench", "send", topic, *QUICK[:4], "--connections", "1", "--in-flight", "1", "--size", "5000000")
    assert said.code == 1
    assert "requests were refused, the first with" in said.err
    assert "body" in said.err


def drive_until_it_leaves(answers: int) -> Outcome:
    """A run against a broker that closes the connection after so many answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(answers):
            await reader.readexactly(4)
            writer.write(encode_command(Command(code=0, flag=1)))
        await writer.drain()
        writer.close()

    async def work() -> Outcome:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        plan = Plan(
            links=[(f"{host}:{port}", [b"send"])],
            in_flight=2,
            messages_per_request=1,
            seconds=60,
            warm_up_s=0,
            pids=(),
            count=1_000,
        )
        async with server:
            return await drive(plan, lambda ran_s, rate: None)

    return asyncio.run(asyncio.wait_for(work(), 30))


def test_a_run_whose_broker_goes_away_has_figures_all_the_same() -> None:
    """Goal: a switch in the middle of a run costs the rest of it, not what was measured."""
    outcome = drive_until_it_leaves(7)
    assert outcome.figures.messages == 7
    assert outcome.broken_off


def test_a_broker_that_goes_away_before_the_first_answer_is_an_error() -> None:
    """Goal: figures of nothing are none."""
    with pytest.raises(ConnectionClosedError):
        drive_until_it_leaves(0)


def test_a_run_continues_on_the_next_master_and_reports_the_gap() -> None:
    """Goal: a failover costs the time until the next answer, and no figure becomes negative."""

    async def work() -> Outcome:
        first_ends = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            answers = itertools.count()
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while not (next(answers) >= 20 and not first_ends.is_set()):
                    await reader.readexactly(4)
                    writer.write(encode_command(Command(code=0, flag=1)))
                    await writer.drain()
            first_ends.set()
            writer.close()

        servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(2)]
        first, second = (f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers)
        asked = itertools.count()

        async def locate(addr: str) -> str:
            assert addr == first
            if next(asked) < 5:
                raise NoQueueError("T", "no master")
            return second

        plan = Plan(
            links=[(first, [b"send"])],
            in_flight=2,
            messages_per_request=1,
            seconds=60,
            warm_up_s=0,
            pids=(),
            count=1_000,
            locate=locate,
        )
        async with servers[0], servers[1]:
            return await drive(plan, lambda ran_s, rate: None)

    outcome = asyncio.run(asyncio.wait_for(work(), 30))
    assert not outcome.broken_off
    assert outcome.figures.messages == 1_000
    assert outcome.figures.reconnects == 1
    assert 0.2 < outcome.figures.gap_s < 10
