"""Delays, retries and dead letters of Apache's clients with our broker; pending delays change hands with Apache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketq.client import AsyncAdmin, AsyncProducer, Message
from rocketq.protocol.bodies.stats import TimerMetrics
from rocketq.protocol.codes import RequestCode

from .apache import BROKER_NAME, ApacheBroker, ApacheNameServer
from .cache import Unavailable
from .client_programs import HEAP_MB, Program, go
from .our_cluster import SETTINGS, OurCluster
from .release import obtain
from .routes import await_route

pytestmark = pytest.mark.interop

TOPIC = "Later"
LEVELS = {"messageDelayLevel": "1s 20s 1s 1s 1s 1s"}
LEVEL_FLAGS = [part for key, value in LEVELS.items() for part in ("--set", f"{key}={value}")]

NameServers = Callable[[str], ApacheNameServer]


def java_delivery(version: str, prefix: str = "") -> Program:
    """java/Delivery.java."""
    try:
        release = obtain(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    return Program(lambda home: [*release.java(heap_mb=HEAP_MB, home=home), "Delivery"], {"NUMBERS": prefix})


def go_delivery() -> Program:
    """go/delivery."""
    try:
        return go("delivery")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[OurCluster]:
    cluster = OurCluster(tmp_path)
    try:
        yield cluster
        cluster.stop()
    finally:
        cluster.kill()


def start_all(cluster: OurCluster) -> None:
    data = str(cluster.folder / "data")
    cluster.start("up", "--data-dir", data, "--namesrv-port", "0", "--broker-port", "0", *LEVEL_FLAGS)


@pytest.mark.parametrize("version", ["4.7.1", "4.9.7", "5.3.3"])
def test_java_delays_timers_retries_and_dead_letters(version: str, ours: OurCluster, tmp_path: Path) -> None:
    """Goal: each delayed message once and not early; a bad one is tried three times, also of a new group without the
    half minute until a client looks for routes again, and then a readable dead letter."""
    program = java_delivery(version)
    start_all(ours)
    said = program.play("run", ours.nameserver_addr, TOPIC, tmp_path / "home")
    expected = {"delayed": "5", "timed": "5", "tries": "15", "prompt": "5", "early": "0", "dead": "5"}
    assert said == expected, ours.log()


def test_go_delays_retries_and_dead_letters(ours: OurCluster, tmp_path: Path) -> None:
    program = go_delivery()
    start_all(ours)
    said = program.play("run", ours.nameserver_addr, TOPIC, tmp_path / "home")
    assert said == {"delayed": "5", "tries": "15", "early": "0", "dead": "5"}, ours.log()


@pytest.mark.parametrize(("version", "leave"), [("4.9.7", "leave"), ("5.3.3", "leave"), ("5.3.3", "timers")])
def test_pending_messages_change_hands(
    version: str,
    leave: str,
    ours: OurCluster,
    nameserver: NameServers,
    broker_port: int,
    store_dir: Path,
    tmp_path: Path,
) -> None:
    """Goal: what waits with us is delivered by Apache and the other way round, each once, also after a kill of ours."""
    names = nameserver(version)
    counter = iter(range(10))

    def theirs() -> ApacheBroker:
        work = tmp_path / f"apache-{next(counter)}"
        return ApacheBroker(
            names,
            port=broker_port,
            store=store_dir,
            work=work,
            settings={**SETTINGS, **LEVELS, "timerWheelEnable": "true"},
        )

    def start_ours() -> None:
        ours.start(
            "broker", "-n", names.address, "--port", str(broker_port), "--data-dir", str(store_dir), *LEVEL_FLAGS
        )

    def play(mode: str, prefix: str) -> dict[str, str]:
        return java_delivery(version, prefix).play(mode, names.address, TOPIC, tmp_path / "home")

    start_ours()
    assert play(leave, "a") == {"left": "10"}
    ours.stop()
    with theirs():
        assert play("settle", "a") == {"received": "10"}
        assert play(leave, "b") == {"left": "10"}
    start_ours()
    assert play("settle", "b") == {"received": "10"}
    assert play(leave, "c") == {"left": "10"}
    ours.kill()
    start_ours()
    assert play("settle", "c") == {"received": "10"}


def test_what_waits_is_told_as_apache_tells_it(
    nameserver: NameServers, broker_port: int, store_dir: Path, tmp_path: Path
) -> None:
    """Goal: requests 60 and 61 of a broker of 5.3.3 have the shape of ours, and counts it left are taken up."""
    names = nameserver("5.3.3")
    settings = {**SETTINGS, "timerWheelEnable": "true"}
    theirs = ApacheBroker(names, port=broker_port, store=store_dir, work=tmp_path / "apache", settings=settings)
    with theirs:
        await_route(names.address)
        told = asyncio.run(asyncio.wait_for(timers_of(names.address, send=3), 60))
    ours = OurCluster(tmp_path)
    try:
        ours.start("broker", "-n", names.address, "--port", str(broker_port), "--data-dir", str(store_dir))
        assert asyncio.run(asyncio.wait_for(timers_of(names.address, send=0), 60)) == told == (56, 3)
        ours.stop()
    finally:
        ours.kill()


async def timers_of(addr: str, *, send: int) -> tuple[int, int]:
    """The bytes of the check point, and how many messages of the topic wait once they are all counted."""
    async with AsyncProducer("timers", name_servers=addr) as producer:
        for number in range(send):
            message = Message(topic=TOPIC, body=b"%d" % number, delay_ms=3_600_000)
            await producer.send(message, timeout_ms=10_000)
        broker_addr = await AsyncAdmin(session=producer.session).brokers.addr(BROKER_NAME)
        check = await producer.session.call(broker_addr, None, code=RequestCode.GET_TIMER_CHECK_POINT)
        while True:
            answer = await producer.session.call(broker_addr, None, code=RequestCode.GET_TIMER_METRICS)
            waiting = TimerMetrics.decode(answer.body).topics
            if TOPIC in waiting and waiting[TOPIC].count >= send:
                return len(check.body), waiting[TOPIC].count
            await asyncio.sleep(0.2)
