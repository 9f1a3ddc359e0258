"""Messages with a timer: to the second or better, never early, taken back, across restarts; raw frames."""

from __future__ import annotations

import base64
import shutil
import struct
from collections.abc import Callable
from typing import Any

import pytest

from rocketq.protocol.bodies.stats import TimerMetrics
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.runtime.clock import ManualClock
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    Peer,
    connected,
    eventually,
    make_topic,
    over_loopback,
    properties,
    props,
    pull,
    records,
    send,
)

MakeCluster = Callable[..., EmbeddedCluster]
WHEEL = "rmq_sys_wheel_timer"
DAY_MS = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_250)


@pytest.fixture
def cluster(make_rocketq_cluster: MakeCluster, clock: ManualClock) -> EmbeddedCluster:
    return make_rocketq_cluster(clock=clock)


async def count(peer: Peer, topic: str) -> int:
    answer = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})
    return int(answer.ext_fields["offset"])


async def arrives(peer: Peer, topic: str, wanted: int) -> None:
    async def there() -> bool:
        return await count(peer, topic) >= wanted

    await eventually(there)


def rests(cluster: EmbeddedCluster) -> None:
    """Everything that is due by now is delivered."""

    async def turn() -> None:
        while cluster.brokers[0].parts.delay.timers.step():
            pass

    cluster.thread.run(turn())


async def recall(peer: Peer, topic: str, handle: str) -> Command:
    return await peer.ask(RequestCode.RECALL_MESSAGE, {"producerGroup": "p", "topic": topic, "recallHandle": handle})


@pytest.mark.parametrize(
    ("given", "delay_ms"),
    [
        ({"TIMER_DELAY_MS": "1500"}, 1_500),
        ({"TIMER_DELAY_SEC": "2"}, 2_000),
        ({"TIMER_DELIVER_MS": "1700000003000"}, 2_750),
        ({"TIMER_DELIVER_MS": "1700000003001"}, 2_751),
        ({"TIMER_DELAY_MS": "7", "TIMER_DELIVER_MS": "1800000000000"}, 7),
        ({"TIMER_DELAY_SEC": "259200"}, 259_200_000),
    ],
)
@over_loopback
async def test_a_timer_is_kept_to_the_millisecond_and_never_early(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str, given: dict[str, str], delay_ms: int
) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        text = props(TAGS="T", KEYS="k", UNIQ_KEY="U1", mine="yes", **given)
        answer = await send(peer, topic, b"later", properties=text, flag=4)
        assert (answer.code, answer.ext_fields["queueId"]) == (0, "0")
        rests(cluster)
        while delay_ms > 10 * DAY_MS // 24:
            clock.advance(10 * DAY_MS // 24)
            delay_ms -= 10 * DAY_MS // 24
            rests(cluster)
        clock.advance(delay_ms - 1)
        rests(cluster)
        early = await count(peer, topic)
        clock.advance(1)
        rests(cluster)
        if "259200" in text:  # it was put on its way again twice: kept to the second
            clock.advance(1_000)
            rests(cluster)
        assert (early, await count(peer, topic)) == (0, 1)
        (record,) = records(await pull(peer, topic))
        assert (record.body, record.flag, record.born_ms) == (b"later", 4, 1_700_000_000_123)
        assert {"TAGS": "T", "KEYS": "k", "UNIQ_KEY": "U1", "mine": "yes"}.items() <= properties(record).items()


@over_loopback
async def test_timers_are_delivered_in_the_order_they_are_due(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str
) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        delays = [(number * 7919) % 5_000 + 1 for number in range(400)]
        for delay_ms in delays:
            await send(peer, topic, str(delay_ms).encode(), properties=props(TIMER_DELAY_MS=str(delay_ms)))
        for _ in range(100):
            clock.advance(51)
            rests(cluster)
        found: list[int] = []
        while len(found) < len(delays):
            found += [int(record.body) for record in records(await pull(peer, topic, len(found)))]
        assert found == sorted(delays)
        assert await count(peer, topic) == len(delays)


@over_loopback
async def test_a_delay_level_beside_a_timer_wins(cluster: EmbeddedCluster, clock: ManualClock, topic: str) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        assert (await send(peer, topic, properties=props(DELAY="1", TIMER_DELAY_SEC="50"))).code == 0
        clock.advance(1_000)
        await arrives(peer, topic, 1)
        (record,) = records(await pull(peer, topic))
        assert "TIMER_DELAY_SEC" not in properties(record)


@over_loopback
async def test_a_broker_without_a_timer_says_so(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster(settings={"timerWheelEnable": "false"})
    async with connected(cluster.broker_addr) as (peer,):
        answer = await send(peer, topic, properties=props(TIMER_DELAY_SEC="5"))
        assert (answer.code, "timerWheelEnable" in (answer.remark or "")) == (1, True)
        assert (await send(peer, topic, properties=props(DELAY="1"))).code == 0
        assert (await recall(peer, topic, "x")).code == 16
        for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
            answer = await peer.ask(code)
            assert (answer.code, "timerWheelEnable" in (answer.remark or "")) == (1, True)


# taking back


async def timed(peer: Peer, topic: str, key: str, seconds: str) -> str:
    answer = await send(peer, topic, key.encode(), properties=props(UNIQ_KEY=key, TIMER_DELAY_SEC=seconds))
    assert answer.code == 0, answer
    return answer.ext_fields["recallHandle"]


@over_loopback
async def test_a_message_that_was_taken_back_is_never_delivered(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str
) -> None:
    """Goal: before and in the second it is due, near and far ahead; the others come."""
    async with connected(cluster.broker_addr) as (peer,):
        handles = {key: await timed(peer, topic, key, "10") for key in ("A", "B", "C")}
        far = await timed(peer, topic, "D", "250000")
        name = cluster.brokers[0].config.name
        text = base64.urlsafe_b64decode(handles["A"]).decode().split(" ")
        assert text == ["v1", topic, name, "1700000010000", "A"]
        answer = await recall(peer, topic, handles["A"])
        assert (answer.code, dict(answer.ext_fields)) == (0, {"msgId": "A"})
        assert (await recall(peer, topic, far)).code == 0
        assert (await recall(peer, topic, handles["A"])).code == 0
        clock.advance(9_900)
        rests(cluster)
        assert (await recall(peer, topic, handles["B"])).code == 0
        clock.advance(100)
        rests(cluster)
        assert [record.body for record in records(await pull(peer, topic))] == [b"C"]
        late = await recall(peer, topic, handles["C"])
        assert (late.code, bool(late.remark)) == (604, True)
        for _ in range(30):
            clock.advance(9_000_000)
            rests(cluster)
        assert await count(peer, topic) == 1


@over_loopback
async def test_what_is_no_handle_of_a_waiting_message_is_refused(
    cluster: EmbeddedCluster, clock: ManualClock, topic: str
) -> None:
    name = cluster.brokers[0].config.name
    async with connected(cluster.broker_addr) as (peer,):
        await timed(peer, topic, "A", "10")
        before = await count(peer, WHEEL)
        for text in (
            f"v1 {topic} elsewhere 1700000010000 A",
            f"v1 Other {name} 1700000010000 A",
            f"v2 {topic} {name} 1700000010000 A",
            f"v1 {topic} {name} soon A",
            "v1",
        ):
            answer = await recall(peer, topic, base64.urlsafe_b64encode(text.encode()).decode())
            assert (answer.code, bool(answer.remark)) == (604, True), text
        assert (await recall(peer, topic, "\xff not base64")).code == 604
        assert await count(peer, WHEEL) == before
        unknown = base64.urlsafe_b64encode(f"v1 {topic} {name} 1700000010000 unknown".encode()).decode()
        assert (await recall(peer, topic, unknown)).code == 0  # as 5.3.3, which does not look for the message


# what others ask


async def waiting(peer: Peer) -> dict[str, int]:
    answer = await peer.ask(RequestCode.GET_TIMER_METRICS)
    assert answer.code == 0, answer
    return {topic: one.count for topic, one in TimerMetrics.decode(answer.body).topics.items()}


@over_loopback
async def test_what_waits_is_counted_by_topic(cluster: EmbeddedCluster, clock: ManualClock, topic: str) -> None:
    """Goal: request 61; one that was taken back or delivered does not count, one far ahead that is put on its way again
    counts once; the numbers outlive a restart."""
    async with connected(cluster.broker_addr) as (peer,):
        handle = await timed(peer, topic, "A", "10")
        await timed(peer, topic, "B", "10")
        await timed(peer, "Other", "C", "250000")
        rests(cluster)
        assert await waiting(peer) == {topic: 2, "Other": 1}
        assert (await recall(peer, topic, handle)).code == 0
        clock.advance(10_000)
        rests(cluster)
        assert await waiting(peer) == {topic: 0, "Other": 1}
        for _ in range(25):
            clock.advance(9_000_000)
            rests(cluster)
        assert (await waiting(peer))["Other"] == 1
        cluster.restart_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert await waiting(peer) == {"Other": 1}
        assert (cluster.store_dir() / "config" / "timermetrics").exists()
    cluster.stop_broker()
    for path in (cluster.store_dir() / "config").glob("timermetrics*"):
        path.write_text("not at all")
    cluster.start_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert await waiting(peer) == {}


@over_loopback
async def test_the_check_point_of_the_wheel_is_told(cluster: EmbeddedCluster, clock: ManualClock, topic: str) -> None:
    """Goal: request 60 as slaves of 5.x read it: the second that is read next, the end of the log of timers, the next
    message of the timer topic."""
    async with connected(cluster.broker_addr) as (peer,):
        for key in ("A", "B"):
            await timed(peer, topic, key, "10")
        rests(cluster)
        clock.advance(11_000)
        rests(cluster)
        answer = await peer.ask(RequestCode.GET_TIMER_CHECK_POINT)
        assert answer.code == 0
        read_ms, log_end, queue_offset, master_offset, *rest = struct.unpack(">7q", answer.body)
        assert clock.now_ms() - 1_000 < read_ms <= clock.now_ms() + 1_000
        assert (log_end, queue_offset, master_offset, len(rest)) == (2 * 52, 2, 2, 3)
        data = (cluster.store_dir() / "config" / "timercheck").read_bytes()
        assert data.startswith(answer.body)


# files


@pytest.mark.parametrize("lost", ["nothing", "timercheck", "everything"])
@over_loopback
async def test_timers_survive_a_restart(cluster: EmbeddedCluster, clock: ManualClock, topic: str, lost: str) -> None:
    """Goal: each once, whatever of the timer's own files is left: they can all be made again from the log."""
    async with connected(cluster.broker_addr) as (peer,):
        handle = await timed(peer, topic, "gone", "30")
        assert (await recall(peer, topic, handle)).code == 0
        for number in range(60):
            await timed(peer, topic, f"K{number}", str(1 + number))
        for _ in range(100):
            clock.advance(100)
            rests(cluster)
        assert await count(peer, topic) == 10
        clock.advance(400)
        rests(cluster)
    cluster.stop_broker()
    if lost != "nothing":
        (cluster.store_dir() / "config" / "timercheck").unlink()
    if lost == "everything":
        (cluster.store_dir() / "timerwheel").unlink()
        shutil.rmtree(cluster.store_dir() / "timerlog")
    clock.advance(5_100)
    cluster.start_broker()
    async with connected(cluster.broker_addr) as (peer,):
        rests(cluster)
        assert await count(peer, topic) == 15
        for _ in range(60):
            clock.advance(1_000)
            rests(cluster)
        bodies: list[Any] = []
        while len(bodies) < await count(peer, topic):
            bodies += [record.body.decode() for record in records(await pull(peer, topic, len(bodies)))]
        assert bodies == [f"K{number}" for number in range(60)]


@over_loopback
async def test_what_is_asked_of_the_wheel_of_a_stopping_broker_is_refused(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    """Goal: requests are answered until the connections close, and the wheel's files are closed before."""
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        sent = await send(peer, topic, properties=props(UNIQ_KEY="U1", TIMER_DELAY_SEC="60"))
        cluster.thread.run(cluster.brokers[0].parts.delay.timers.stop())
        answers = [
            await peer.ask(RequestCode.GET_TIMER_CHECK_POINT),
            await peer.ask(RequestCode.GET_TIMER_METRICS),
            await recall(peer, topic, sent.ext_fields["recallHandle"]),
        ]
        assert [(answer.code, answer.remark) for answer in answers] == [(14, "this broker is stopping")] * 3
