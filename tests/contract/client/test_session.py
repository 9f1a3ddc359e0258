"""Sessions: several NameServers, peers that are gone or silent, routes that grow old, retries, sharing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rocketq.client import (
    AsyncAdmin,
    ClientClosedError,
    Message,
    PartlyFailedError,
    ResetTo,
    Sender,
    Session,
    SessionConfig,
)
from rocketq.client.fan_out import outcomes
from rocketq.client.name_servers import parse_name_servers
from rocketq.errors import ConfigError, RemotingError, RequestTimeoutError, UnreachableError
from rocketq.protocol.acl import Credentials, is_signed
from rocketq.protocol.command import Command
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.remoting import Connection
from rocketq.runtime.clock import ManualClock
from rocketq.testing.embedded import EmbeddedCluster
from rocketq.testing.fault_proxy import FaultProxy

from .kit import closed_port, member, on_a_loop, send


class Silent:
    """A peer that takes connections and says nothing."""

    async def __aenter__(self) -> str:
        self._writers: list[asyncio.StreamWriter] = []
        self._server = await asyncio.start_server(self._keep, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)


@on_a_loop
async def test_a_name_server_that_is_gone_is_passed_over(cluster: EmbeddedCluster) -> None:
    for addrs in ([closed_port(), cluster.name_server_addr], [cluster.name_server_addr, closed_port()]):
        async with AsyncAdmin(addrs) as admin:
            for _ in range(3):
                assert "broker-0" in (await admin.brokers.cluster()).brokers
            assert admin.session.name_servers._failover.order()[0] == cluster.name_server_addr


@on_a_loop
async def test_a_name_server_that_says_nothing_costs_one_timeout(cluster: EmbeddedCluster) -> None:
    config = SessionConfig(control_timeout_ms=200)
    async with Silent() as silent, AsyncAdmin([silent, cluster.name_server_addr], config=config) as admin:
        for _ in range(2):
            assert "broker-0" in (await admin.brokers.cluster()).brokers
    async with Silent() as silent, AsyncAdmin(silent, config=config) as admin:
        with pytest.raises(RequestTimeoutError) as caught:
            await admin.brokers.cluster()
        assert caught.value.addr == silent
        assert caught.value.timeout_ms == 200
        assert str(caught.value) == f"list of brokers from NameServer {silent} timed out after 200 ms"
        with pytest.raises(RequestTimeoutError) as caught:
            await admin.session.routes.get("Orders")
        assert str(caught.value) == f"route of topic Orders from NameServer {silent} timed out after 200 ms"


@on_a_loop
async def test_no_name_server_at_all_is_unreachable() -> None:
    async with AsyncAdmin([closed_port(), closed_port()]) as admin:
        with pytest.raises(UnreachableError) as caught:
            await admin.topics.list()
        assert caught.value.retriable


@on_a_loop
async def test_telling_all_name_servers_says_which_did_not_hear(cluster: EmbeddedCluster, topic: str) -> None:
    gone = closed_port()
    async with AsyncAdmin([cluster.name_server_addr, gone]) as admin:
        await admin.topics.create(topic, queues=1)
        with pytest.raises(PartlyFailedError) as caught:
            await admin.topics.delete(topic)
        assert set(caught.value.failures) == {gone}
        assert caught.value.done == (cluster.name_server_addr,)
        assert caught.value.retriable


def test_name_servers_come_from_the_caller_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1; b:2;a:1")
    assert parse_name_servers(None) == ("a:1", "b:2")
    assert parse_name_servers("http://c:3,d:4") == ("c:3", "d:4")
    assert parse_name_servers(["e:5"]) == ("e:5",)
    monkeypatch.delenv("NAMESRV_ADDR")
    assert parse_name_servers(None) == ("127.0.0.1:9876",)
    for wrong in ("", ";", "nonsense", ["a"]):
        with pytest.raises(ConfigError):
            parse_name_servers(wrong)


class Counting:
    """How often each code was asked for."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.requests: list[Command] = []

    def before(self, connection: Connection, request: Command) -> None:
        self.codes.append(request.code)
        self.requests.append(request)

    def after(self, connection: Connection, request: Command, response: Command | None) -> None:
        pass


@on_a_loop
async def test_routes_are_kept_for_their_life_and_asked_for_once(cluster: EmbeddedCluster, topic: str) -> None:
    clock, counting = ManualClock(), Counting()
    async with Session(cluster.name_server_addr, hooks=[counting], clock=clock) as session:
        await AsyncAdmin(session=session).topics.create(topic, queues=1)
        counting.codes.clear()
        session.routes.forget(topic)
        routes = await asyncio.gather(*(session.routes.get(topic) for _ in range(5)))
        assert all(route == routes[0] for route in routes)
        await session.routes.get(topic)
        assert counting.codes == [105]
        clock.advance(30_000)
        assert await session.routes.get(topic) is routes[0]  # at once, while it is asked for again
        await session.routes.refresh(topic)
        assert counting.codes == [105, 105]
        session.routes.expire(topic)
        assert await session.routes.get(topic) is routes[0]
        assert counting.codes == [105, 105, 105]
        with pytest.raises(TopicNotFoundError):
            await session.routes.get("no-such-topic")


@on_a_loop
async def test_an_old_route_serves_while_no_name_server_answers(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str
) -> None:
    cluster, clock = make_rocketq_cluster(), ManualClock()
    async with Session(cluster.name_server_addr, clock=clock) as session:
        admin = AsyncAdmin(session=session)
        await admin.topics.create(topic, queues=1)
        before = await session.routes.get(topic)
        await asyncio.to_thread(cluster.stop_name_server)
        clock.advance(60_000)
        assert await session.routes.get(topic) == before
        with pytest.raises(RemotingError):
            await session.routes.refresh(topic)
        assert (await Sender(session, "p").send(Message(topic=topic, body=b"x"))).queue_offset == 0
        await asyncio.to_thread(cluster.start_name_server)


@on_a_loop
async def test_a_send_goes_to_another_broker_when_one_is_gone(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, group: str
) -> None:
    cluster = make_rocketq_cluster(brokers=2)
    async with AsyncAdmin(cluster.name_server_addr) as admin:
        await admin.topics.create(topic, queues=1)
        await send(admin, topic, 4)
        await asyncio.to_thread(cluster.stop_broker, 0)
        results = await send(admin, topic, 4)
        assert {one.queue.broker_name for one in results} == {"broker-1"}
        await admin.groups.set(group)
        changes = await admin.offsets.reset(group, topic, ResetTo.latest())
        assert {one.queue.broker_name for one in changes} == {"broker-1"}


@on_a_loop
async def test_the_timeout_of_a_send_bounds_looking_for_a_route_too(cluster: EmbeddedCluster, topic: str) -> None:
    async with Silent() as silent, Session(silent) as session, asyncio.timeout(2):
        with pytest.raises(RequestTimeoutError) as caught:
            await Sender(session, "p").send(Message(topic=topic, body=b"x"), timeout_ms=200)
        assert caught.value.addr == silent
        assert str(caught.value).startswith(f"route of topic {topic} from NameServer {silent} timed out after ")


@on_a_loop
async def test_a_broker_that_does_not_answer_leaves_its_queues_unknown(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str, group: str
) -> None:
    """Goal: a broker that is registered but silent is named, and its part of the lag is unknown, not zero."""
    cluster = make_rocketq_cluster(brokers=2)
    config = SessionConfig(control_timeout_ms=300)
    async with AsyncAdmin(cluster.name_server_addr, config=config) as admin:
        await admin.topics.create(topic, queues=1)
        await send(admin, topic, 4)
        async with member(cluster.broker_addrs[:1], group, topic), Silent() as silent:
            real = admin.session.exchange

            async def misled(addr: str, command: Command, **given: object) -> Command:
                target = silent if addr == cluster.broker_addrs[1] else addr
                return await real(target, command, **given)  # type: ignore[arg-type]

            admin.session.exchange = misled  # type: ignore[method-assign, assignment]
            status = await admin.groups.status(group)
        assert set(status.unreachable) == {"broker-1"}
        assert [(one.queue.broker_name, one.max_offset, one.lag) for one in status.queues] == [
            ("broker-0", 2, None),
            ("broker-1", None, None),
        ]
        assert status.lag is None


@on_a_loop
async def test_requests_are_signed_where_there_are_credentials(cluster: EmbeddedCluster) -> None:
    counting = Counting()
    config = SessionConfig(credentials=Credentials("alice", "secret"))
    async with Session(cluster.name_server_addr, config=config, hooks=[counting]) as session:
        await session.cluster()
    (request,) = counting.requests
    assert request.ext_fields["AccessKey"] == "alice"
    assert is_signed(request, "secret")


@on_a_loop
async def test_calls_that_are_cancelled_leave_nothing_behind() -> None:
    """Goal: with more calls than go at once, those not begun are closed too (a warning here is a failure)."""
    begun = asyncio.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(outcomes({at: forever() for at in range(200)}))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@on_a_loop
async def test_a_fault_of_ours_is_not_taken_for_an_answer() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await outcomes({"a": broken()})


@on_a_loop
async def test_a_name_server_that_hangs_does_not_hold_up_sends(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], topic: str
) -> None:
    """Goal: routes that are remembered serve while the question for new ones gets no answer."""
    cluster, clock = make_rocketq_cluster(), ManualClock()
    with FaultProxy(cluster.name_server_addr) as proxy:
        async with Session(proxy.addr, clock=clock) as session:
            await AsyncAdmin(session=session).topics.create(topic, queues=1)
            sender = Sender(session, "p")
            await sender.send(Message(topic=topic, body=b"x"))
            proxy.freeze()
            clock.advance(60_000)
            async with asyncio.timeout(2):
                for _ in range(5):
                    await sender.send(Message(topic=topic, body=b"y"))
            proxy.restore()


@on_a_loop
async def test_a_closed_session_says_so(cluster: EmbeddedCluster) -> None:
    session = Session(cluster.name_server_addr)
    await session.cluster()
    await session.close()
    with pytest.raises(ClientClosedError):
        await session.cluster()
    with pytest.raises(ClientClosedError):
        await Sender(session, "p").send(Message(topic="T", body=b"x"))
    for wrong in ({"control_timeout_ms": 0}, {"route_life_ms": 0}, {"heartbeat_interval_ms": -1}):
        with pytest.raises(ConfigError):
            SessionConfig(**wrong)
