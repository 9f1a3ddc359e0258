"""`rocketq bench`: how much a cluster takes, or gives, of one kind of request."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from rocketq.cli.commands.calling import FAILED, NOT_FOUND, Caller, calls_cluster, example
from rocketq.cli.load.driving import Locate, Outcome, Plan, drive
from rocketq.cli.load.figures import Figures
from rocketq.cli.load.processes import cpu_seconds, listeners
from rocketq.cli.load.requests import GROUP, QueueStretch, SendShape, pull_requests, send_requests, signed
from rocketq.cli.numbers import FiniteRange
from rocketq.client.admin import AsyncAdmin
from rocketq.client.core.routes import master_addr, publish_queues, subscribe_queues
from rocketq.client.errors import NotFoundError
from rocketq.client.offsets import QueuePositions
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.failures import TopicNotFoundError

REQUEST_BYTES_MAX: Final = 15_000_000
REQUESTS_MAX: Final = 4_096
_CLEAR: Final = "\r\x1b[K"

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def bench() -> None:
    """Measure throughput, latency and CPU.

    Requests are built before the clock starts and kept in flight on every connection; nothing else of a client is
    measured. Answers are matched with requests in their order.
    """


def takes_load(command: _Command) -> _Command:
    """The options of every load."""

    @click.option("--connections", type=click.IntRange(1, 1_000), default=8, show_default=True, help="How many.")
    @click.option(
        "--in-flight", type=click.IntRange(1, 10_000), default=128, show_default=True, help="Requests on each of them."
    )
    @click.option("--seconds", type=FiniteRange(0.1), default=5.0, show_default=True, help="How long to measure.")
    @click.option(
        "--warm-up", "warm_up_s", type=FiniteRange(0), default=1.0, show_default=True, help="Seconds before that."
    )
    @click.option("--count", type=click.IntRange(1), help="Messages to measure instead of a time, without warming up.")
    @click.option(
        "--pid",
        "pids",
        type=click.IntRange(1),
        multiple=True,
        help="A broker's process; detected automatically on this host.",
    )
    @functools.wraps(command)
    def wrapped(caller: Caller, pids: tuple[int, ...], **given: Any) -> Any:
        try:
            cpu_seconds(pids)
        except OSError as error:
            raise click.BadParameter(f"no such process can be seen here: {error}", param_hint="--pid") from None
        return command(caller, pids=pids, **given)

    return wrapped  # type: ignore[return-value]


@bench.command(
    epilog=example(
        "rocketq bench send BenchTopic --size 1024 --connections 8 --in-flight 128",
        "rocketq bench send BenchTopic --batch 32 --in-flight 16 --count 1000000 --json",
    )
)
@calls_cluster
@click.argument("topic")
@click.option(
    "--size",
    "body_bytes",
    type=click.IntRange(1, REQUEST_BYTES_MAX),
    default=128,
    show_default=True,
    help="Bytes of a body.",
)
@click.option("--batch", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Messages in a request.")
@click.option("--queues", type=click.IntRange(1, 1_000), default=8, show_default=True, help="Of a topic that is made.")
@takes_load
def send(caller: Caller, topic: str, body_bytes: int, batch: int, queues: int, **load: Any) -> None:
    """Measure sends to TOPIC. The topic is created if it does not exist, and the messages stay in it."""
    if body_bytes * batch > REQUEST_BYTES_MAX:
        raise click.UsageError(f"{batch} messages of {body_bytes} bytes are more than a request may hold")
    shape = SendShape(topic, body_bytes, batch)

    async def work(admin: AsyncAdmin) -> Outcome:
        route = await _route(admin, topic, queues)
        plan = _send_plan(shape, route, publish_queues(topic, route), **load, locate=_locator(admin, topic, route))
        return await drive(_as_caller(_with_pids(plan), caller), _teller(caller, plan))

    _report(caller, f"sends of {batch if batch > 1 else 'single'} x {body_bytes} bytes", caller.run(work))


@bench.command(epilog=example("rocketq bench consume BenchTopic --pull-count 32 --in-flight 4"))
@calls_cluster
@click.argument("topic")
@click.option(
    "--pull-count", type=click.IntRange(1, 1_024), default=32, show_default=True, help="Messages requested by one pull."
)
@takes_load
def consume(caller: Caller, topic: str, pull_count: int, **load: Any) -> None:
    """Pull the messages of TOPIC over and over. No offset is committed."""

    async def work(admin: AsyncAdmin) -> Outcome:
        route = await admin.topics.route(topic)
        stretches = await _stretches(admin, subscribe_queues(topic, route))
        if not stretches:
            raise NotFoundError("a message of topic", topic, f"`rocketq bench send {topic}` makes some")
        plan = _pull_plan(stretches, route, pull_count, **load, locate=_locator(admin, topic, route))
        return await drive(_as_caller(_with_pids(plan), caller), _teller(caller, plan))

    _report(caller, f"pulls of {pull_count}", caller.run(work))


# What is asked of whom


async def _route(admin: AsyncAdmin, topic: str, queues: int) -> TopicRoute:
    try:
        return await admin.topics.route(topic)
    except (TopicNotFoundError, NotFoundError):
        await admin.topics.create(topic, queues=queues)
        return await admin.topics.route(topic)


def _send_plan(
    shape: SendShape,
    route: TopicRoute,
    queues: Sequence[MessageQueue],
    *,
    connections: int,
    in_flight: int,
    **load: Any,
) -> Plan:
    """Connections go to the brokers in turn, each to all queues of its broker."""
    by_addr: dict[str, list[int]] = {}
    for queue in queues:
        by_addr.setdefault(master_addr(route, queue), []).append(queue.queue_id)
    if not by_addr:
        raise NotFoundError("a broker that takes messages of topic", shape.topic)
    now_ms, addrs = time.time_ns() // 1_000_000, list(by_addr)
    count = min(max(2 * in_flight, 64), max(in_flight, (64 << 20) // (shape.body_bytes * shape.batch)))
    links = []
    for number in range(connections):
        addr = addrs[number % len(addrs)]
        ids = by_addr[addr][number % len(by_addr[addr]) :] + by_addr[addr][: number % len(by_addr[addr])]
        links.append((addr, send_requests(shape, ids, count, now_ms, time.time_ns() + number)))
    return Plan(
        links=links,
        in_flight=in_flight,
        messages_per_request=shape.batch,
        body_bytes=shape.body_bytes,
        **load,
    )


async def _stretches(admin: AsyncAdmin, queues: Sequence[MessageQueue]) -> list[tuple[MessageQueue, QueueStretch]]:
    positions = QueuePositions(admin.session)
    bounds = await asyncio.gather(*(positions.bounds(queue) for queue in queues))
    return [
        (queue, QueueStretch(queue.topic, queue.queue_id, found.min_offset, found.max_offset))
        for queue, found in zip(queues, bounds, strict=True)
        if found.max_offset > found.min_offset
    ]


def _pull_plan(
    stretches: Sequence[tuple[MessageQueue, QueueStretch]],
    route: TopicRoute,
    pull_count: int,
    *,
    connections: int,
    in_flight: int,
    **load: Any,
) -> Plan:
    """A queue for every connection, queues in turn."""
    links = []
    for number in range(connections):
        queue, stretch = stretches[number % len(stretches)]
        links.append((master_addr(route, queue), pull_requests(stretch, pull_count, REQUESTS_MAX)))
    return Plan(links=links, in_flight=in_flight, messages_per_request=None, **load)


def _locator(admin: AsyncAdmin, topic: str, route: TopicRoute) -> Locate:
    """Finds the master that continues for a broker after a failover or a restart."""
    names = {addr: broker.broker_name for broker in route.brokers for addr in broker.addrs.values()}

    async def locate(addr: str) -> str:
        current = await admin.session.routes.refresh(topic)
        names.update({addr: broker.broker_name for broker in current.brokers for addr in broker.addrs.values()})
        return master_addr(current, MessageQueue(topic=topic, broker_name=names[addr], queue_id=0))

    return locate


def _with_pids(plan: Plan) -> Plan:
    """Brokers of this host need not be named."""
    return plan if plan.pids else replace(plan, pids=listeners({addr for addr, _ in plan.links}))


def _as_caller(plan: Plan, caller: Caller) -> Plan:
    """Signed and encrypted as the caller's other requests."""
    plan = replace(plan, tls=caller.tls)
    if caller.credentials is None:
        return plan
    return replace(plan, links=[(addr, signed(requests, caller.credentials)) for addr, requests in plan.links])


# Output


def _teller(caller: Caller, plan: Plan) -> Callable[[float, float], None]:
    """A line on the terminal that is written over every second."""
    goal = f"of {plan.seconds:g} s" if plan.count is None else f"s, until {plan.count:,} messages are done"
    if caller.as_json or not sys.stderr.isatty():
        return lambda ran_s, rate: None
    return lambda ran_s, rate: click.echo(f"{_CLEAR}{ran_s:.0f} {goal}: {rate:,.0f} messages/s", nl=False, err=True)


def _report(caller: Caller, what: str, outcome: Outcome) -> None:
    figures = outcome.figures
    if not caller.as_json and sys.stderr.isatty():
        click.echo(_CLEAR, nl=False, err=True)
    caller.show(figures, figures_text(what, figures))
    if figures.refused:
        click.echo(f"{figures.refused} requests were refused, the first with: {outcome.refusal}", err=True)
    if figures.reconnects or figures.gap_s:
        click.echo(
            f"connections lost: {figures.unanswered} requests without an answer, {figures.reconnects} reconnects, "
            f"no answer for up to {figures.gap_s:.2f} s",
            err=True,
        )
    if outcome.broken_off:
        click.echo(f"the run ended after {figures.seconds:.1f} s: {outcome.broken_off}", err=True)
    if figures.refused or outcome.broken_off:
        sys.exit(FAILED)
    if not figures.messages:
        click.echo(f"nothing was answered by {GROUP}'s brokers in {figures.seconds:g} s", err=True)
        sys.exit(NOT_FOUND if "pulls" in what else FAILED)


def figures_text(what: str, figures: Figures) -> str:
    cpu = f"\nCPU         client {figures.client_cpu_us_per_message or 0:.2f}"
    if figures.broker_cpu_us_per_message is not None:
        cpu += f"  broker {figures.broker_cpu_us_per_message:.2f}"
    cpu += " us a message"
    if figures.gap_s:
        cpu += f"\noutage      no answer for up to {figures.gap_s:.2f} s"
    return (
        f"{what}, {figures.seconds:g} s\n"
        f"messages    {figures.messages_per_s:,.0f}/s ({figures.messages:,})\n"
        f"requests    {figures.requests_per_s:,.0f}/s\n"
        f"data        {figures.mb_per_s:,.1f} MB/s\n"
        f"latency     p50 {figures.p50_us:,.0f}  p90 {figures.p90_us:,.0f}  p99 {figures.p99_us:,.0f}  "
        f"p99.9 {figures.p999_us:,.0f}  max {figures.max_us:,.0f} us{cpu}"
    )
