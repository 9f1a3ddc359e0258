"""interop.md, section B, and what of section A concerns a NameServer: each line by its number, over loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.bodies.queues import DataVersion, KeyValues
from rocketq.protocol.bodies.registration import Registration
from rocketq.protocol.bodies.routes import ClusterTable, MemberGroupAnswer, TopicRoute
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable, TopicList
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.messages import body_crc
from rocketq.protocol.versions import V4_7_1, V4_9_4, V5_0_0
from rocketq.remoting import ConnectionPool, TlsConfig
from rocketq.runtime.clock import ManualClock

ADDR = "10.0.0.1:10911"


class Client:
    """Asks one NameServer; every client is a connection of its own."""

    def __init__(self, addr: str) -> None:
        self._addr = addr
        self._pool = ConnectionPool()

    async def ask(
        self, code: int, ext_fields: dict[str, Any] | None = None, body: bytes = b"", **members: Any
    ) -> Command:
        texts = {name: str(value) for name, value in (ext_fields or {}).items()}
        return await self._pool.invoke(self._addr, Command(code=code, ext_fields=texts, body=body, **members))

    async def register(
        self,
        *topics: str,
        name: str = "broker-a",
        broker_id: int = 0,
        addr: str = ADDR,
        version: int = 1,
        cluster: str = "DefaultCluster",
        filter_servers: tuple[str, ...] = (),
        client_version: int = V4_7_1,
        compressed: bool = False,
        says_compressed: bool | None = None,
        crc: int | None = None,
        **config: Any,
    ) -> Command:
        table = TopicConfigTable(
            data_version=DataVersion(counter=version, timestamp_ms=version),
            topics={topic: TopicConfig(topic=topic, **config) for topic in topics},
        )
        registration = Registration(topics=table, filter_servers=filter_servers)
        body = registration.encode_compressed(client_version) if compressed else registration.encode()
        ext_fields = {
            "brokerName": name,
            "brokerAddr": addr,
            "clusterName": cluster,
            "haServerAddr": addr.replace("10911", "10912"),
            "brokerId": broker_id,
            "compressed": str(compressed if says_compressed is None else says_compressed).lower(),
            "bodyCrc32": body_crc(body) if crc is None else crc,
        }
        return await self.ask(RequestCode.REGISTER_BROKER, ext_fields, body, version=client_version)

    async def unregister(self, name: str = "broker-a", broker_id: int = 0, addr: str = ADDR) -> Command:
        ext_fields = {"brokerName": name, "brokerAddr": addr, "clusterName": "DefaultCluster", "brokerId": broker_id}
        return await self.ask(RequestCode.UNREGISTER_BROKER, ext_fields)

    async def route(self, topic: str, **members: Any) -> TopicRoute | None:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, **members)
        assert answer.code in (0, 17)
        return TopicRoute.decode(answer.body) if answer.code == 0 else None

    async def data_version(self, version: int, addr: str = ADDR) -> Command:
        ext_fields = {"brokerName": "broker-a", "brokerAddr": addr, "clusterName": "DefaultCluster", "brokerId": 0}
        body = DataVersion(counter=version, timestamp_ms=version).encode()
        return await self.ask(RequestCode.QUERY_DATA_VERSION, ext_fields, body)

    async def close(self) -> None:
        await self._pool.close()


class House:
    """One NameServer with a clock that is moved by hand, and its clients."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self.clock = clock
        self.config = NameServerConfig(
            port=0, kv_path=folder / "kvConfig.json", config_path=folder / "namesrv.properties"
        )
        self.server = NameServer(self.config, clock=clock)
        self._clients: list[Client] = []

    def client(self) -> Client:
        self._clients.append(Client(self.server.addr))
        return self._clients[-1]

    async def restart(self) -> None:
        await self.server.stop()
        self.server = NameServer(replace(self.config, port=self.server.port), clock=self.clock)
        await self.server.start()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.server.stop()


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    house = House(folder, ManualClock())
    await house.server.start()
    try:
        yield house
    finally:
        await house.close()


Scenario = Callable[[House, Client], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    def play(scenario: Scenario) -> None:
        async def main() -> None:
            async with house(tmp_path) as made:
                await asyncio.wait_for(scenario(made, made.client()), 30)

        asyncio.run(main())

    return play


Play = Callable[[Scenario], None]


async def eventually(holds: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    for _ in range(500):
        if await holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came about")


def test_interop_3_oneway_registrations_work_and_are_not_answered(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        answer = await client.register("T")
        assert answer.code == 0
        body = Registration(topics=TopicConfigTable(topics={"U": TopicConfig(topic="U")})).encode()
        ext_fields = {"brokerName": "b", "brokerAddr": "b:1", "clusterName": "C", "brokerId": "0"}
        command = Command(code=RequestCode.REGISTER_BROKER, ext_fields=ext_fields, body=body)
        await client._pool.invoke_oneway(house.server.addr, command)
        assert await client.route("U") is not None

    play(scenario)


def test_registrations_of_many_topics_do_not_mix(play: Play) -> None:
    """Goal: long ones are taken in slices; the newer version of a broker's topics wins as a whole."""

    def many(version: int) -> Registration:
        topics = {f"T{n}": TopicConfig(topic=f"T{n}", write_queue_count=version) for n in range(500)}
        data_version = DataVersion(counter=version, timestamp_ms=version)
        return Registration(topics=TopicConfigTable(topics=topics, data_version=data_version))

    async def scenario(house: House, client: Client) -> None:
        ext_fields = {"brokerName": "b", "brokerAddr": "b:1", "clusterName": "C", "brokerId": "0"}
        commands = [
            Command(code=RequestCode.REGISTER_BROKER, ext_fields=ext_fields, body=many(version).encode())
            for version in (1, 2, 3)
        ]
        answers = await asyncio.gather(*(client._pool.invoke(house.server.addr, each, 10_000) for each in commands))
        assert [answer.code for answer in answers] == [0, 0, 0]
        for name in ("T0", "T250", "T499"):
            route = await client.route(name)
            assert route is not None
            assert route.queues[0].write_queue_count == 3

    play(scenario)


@pytest.mark.parametrize("form", list(HeaderForm))
def test_interop_12_an_unknown_code_is_answered_with_3(play: Play, form: HeaderForm) -> None:
    async def scenario(house: House, client: Client) -> None:
        for code in (10, 39, 326, 9999):
            answer = await client.ask(code, form=form)
            assert (answer.code, answer.form) == (3, form)
            assert str(code) in (answer.remark or "")

    play(scenario)


def test_interop_13_missing_and_bad_fields(play: Play) -> None:
    """Goal: code 1 and a remark that names the field; a route without a topic is 17."""

    async def scenario(house: House, client: Client) -> None:
        for code in (100, 101, 102, 103, 104, 205, 216, 219, 224, 322, 327, 901):
            answer = await client.ask(code)
            assert answer.code == 1, code
            assert "is missing" in (answer.remark or "")
        answer = await client.ask(
            103, {"brokerName": "a", "brokerAddr": "a:1", "clusterName": "C", "brokerId": "first", "haServerAddr": ""}
        )
        assert (answer.code, "brokerId" in (answer.remark or "")) == (1, True)
        assert (await client.ask(105)).code == 17
        assert (await client.register("T")).code == 0

    play(scenario)


def test_interop_14_every_answer_has_a_version(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        for code in (105, 106, 206, 9999):
            assert (await client.ask(code)).version >= 232

    play(scenario)


def test_interop_18_an_unknown_topic_is_17_with_a_remark(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        answer = await client.ask(105, {"topic": "Missing"})
        assert answer.code == 17
        assert "Missing" in (answer.remark or "")
        assert not answer.body

    play(scenario)


def test_interop_19_a_topic_without_brokers_is_17(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T")
        await client.unregister()
        assert await client.route("T") is None
        await client.register("T")
        house.clock.advance(120_001)
        house.server.scan()
        assert await house.client().route("T") is None

    play(scenario)


def test_interop_20_21_22_24_the_text_of_a_route(play: Play) -> None:
    """Goal: no whitespace, both names of the flag, an empty filter table, addresses as registered."""

    async def scenario(house: House, client: Client) -> None:
        await client.register("T", topic_sys_flag=1, read_queue_count=4, write_queue_count=4)
        await client.register("T", broker_id=1, addr="Host-With-Name:10911")
        body = (await client.ask(105, {"topic": "T"}, version=V4_7_1)).body
        assert body == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"Host-With-Name:10911"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
            b'"readQueueNums":4,"topicSynFlag":1,"topicSysFlag":1,"writeQueueNums":4}]}'
        )

    play(scenario)


@pytest.mark.parametrize(
    ("version", "ext_fields"), [(V4_9_4, {}), (V5_0_0, {}), (V4_7_1, {"acceptStandardJsonOnly": "true"}), (121, {})]
)
def test_interop_23_routes_are_strict_json(play: Play, version: int, ext_fields: dict[str, str]) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T")
        answer = await client.ask(105, {"topic": "T", **ext_fields}, version=version)
        assert json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"] == {"0": ADDR}

    play(scenario)


def test_interop_25_slaves_alone_are_still_routed(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T")
        await client.register(broker_id=1, addr="10.0.0.2:10911")
        await client.unregister()
        route = await client.route("T")
        assert route is not None
        assert route.brokers[0].addrs == {1: "10.0.0.2:10911"}

    play(scenario)


def test_interop_26_only_masters_bring_topics(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T", read_queue_count=4)
        assert await client.route("T") is not None
        await client.register("T", "X", broker_id=1, addr="10.0.0.2:10911", version=7, read_queue_count=9)
        route = await client.route("T")
        assert route is not None
        assert route.queues[0].read_queue_count == 4
        assert route.brokers[0].addrs == {0: ADDR, 1: "10.0.0.2:10911"}
        assert await client.route("X") is None

    play(scenario)


def test_interop_27_a_wrong_crc_is_refused(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        answer = await client.register("T", crc=12345)
        assert answer.code == 1
        assert answer.remark
        assert await client.route("T") is None
        assert (await client.register("T", crc=0)).code == 0

    play(scenario)


@pytest.mark.parametrize("client_version", [V4_7_1, V5_0_0])
def test_interop_28_a_compressed_registration_gives_the_same_routes(play: Play, client_version: int) -> None:
    async def scenario(house: House, client: Client) -> None:
        members: dict[str, Any] = {"read_queue_count": 3, "perm": 4, "client_version": client_version}
        assert (await client.register("T", "U", compressed=True, **members)).code == 0
        compressed = await client.route("T")
        await client.unregister()
        await client.register("T", "U", **members)
        assert await client.route("T") == compressed

    play(scenario)


def test_a_compressed_registration_that_says_it_is_none(play: Play) -> None:
    """Goal: Apache 5.3.3 brokers with compressedRegister=true send such."""

    async def scenario(house: House, client: Client) -> None:
        answer = await client.register("T", compressed=True, says_compressed=False, client_version=V5_0_0)
        assert answer.code == 0
        assert await client.route("T") is not None

    play(scenario)


def test_a_registration_of_the_oldest_brokers_is_a_bare_table(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        body = TopicConfigTable(topics={"T": TopicConfig(topic="T")}).encode()
        ext_fields = {"brokerName": "a", "brokerAddr": ADDR, "clusterName": "C", "brokerId": "0"}
        assert (await client.ask(103, ext_fields, body, version=36)).code == 0
        assert await client.route("T") is not None
        assert (await client.ask(103, ext_fields)).code == 0  # no body at all

    play(scenario)


@pytest.mark.parametrize("compressed", ["true", "false"])
def test_a_registration_that_cannot_be_read_is_code_1(play: Play, compressed: str) -> None:
    async def scenario(house: House, client: Client) -> None:
        ext_fields = {
            "brokerName": "a",
            "brokerAddr": ADDR,
            "clusterName": "C",
            "brokerId": 0,
            "compressed": compressed,
        }
        assert (await client.ask(103, ext_fields, b"garbage")).code == 1
        assert (await client.ask(206)).body == b'{"topicList":[]}'

    play(scenario)


def test_interop_29_a_slave_is_told_its_master(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        assert (await client.register("T")).ext_fields == {}
        answer = await client.register(broker_id=1, addr="10.0.0.2:10911")
        assert answer.ext_fields == {"masterAddr": ADDR, "haServerAddr": "10.0.0.1:10912"}

    play(scenario)


def test_interop_30_a_registration_is_told_the_order_topics(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        assert (await client.register("T")).body == b""
        await client.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"})
        assert KeyValues.decode((await client.register("T")).body).table == {"T": "broker-a:4"}

    play(scenario)


def test_interop_31_a_new_id_replaces_the_old_one_of_an_address(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T", broker_id=1)
        await client.register("T", broker_id=0)
        route = await client.route("T")
        assert route is not None
        assert route.brokers[0].addrs == {0: ADDR}

    play(scenario)


def test_interop_32_a_smaller_list_deletes_nothing_but_216_does(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T", "U")
        await client.register("T", version=2)
        assert await client.route("U") is not None
        assert (await client.ask(216, {"topic": "U"})).code == 0
        assert await client.route("U") is None
        await client.ask(216, {"topic": "T", "clusterName": "Other"})
        assert await client.route("T") is not None
        await client.ask(216, {"topic": "T", "clusterName": "DefaultCluster"})
        assert await client.route("T") is None

    play(scenario)


def test_interop_33_a_closed_connection_removes_at_once_and_silence_after_120_s(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        broker = house.client()
        await broker.register("T")
        await broker.close()
        await eventually(lambda: _is_gone(client, "T"))
        silent = house.client()
        await silent.register("T")
        house.clock.advance(120_000)
        house.server.scan()
        assert await client.route("T") is not None
        house.clock.advance(1)
        house.server.scan()
        assert await client.route("T") is None

    play(scenario)


async def _is_gone(client: Client, topic: str) -> bool:
    return await client.route(topic) is None


def test_interop_34_the_last_goodbye_leaves_nothing(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T")
        await client.unregister()
        assert (await client.ask(206)).body == b'{"topicList":[]}'
        assert (await client.ask(106)).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'

    play(scenario)


def test_interop_35_data_versions_are_compared_and_asking_keeps_alive(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        answer = await client.data_version(1)
        assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
        await client.register("T")
        house.clock.advance(100_000)
        answer = await client.data_version(1)
        assert answer.ext_fields == {"changed": "false"}
        assert DataVersion.decode(answer.body).counter == 1
        house.clock.advance(100_000)
        house.server.scan()
        assert await client.route("T") is not None
        assert (await client.data_version(2)).ext_fields == {"changed": "true"}
        house.clock.advance(20_001)
        house.server.scan()
        assert await house.client().route("T") is None

    play(scenario)


def test_interop_36_key_value_config(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        entry = {"namespace": "N", "key": "k"}
        assert (await client.ask(101, entry)).code == 22
        assert (await client.ask(219, {"namespace": "N"})).code == 22
        assert (await client.ask(100, {**entry, "value": "v"})).code == 0
        await house.restart()
        assert (await client.ask(101, entry)).ext_fields == {"value": "v"}
        assert (await client.ask(219, {"namespace": "N"})).body == b'{"table":{"k":"v"}}'
        assert (await client.ask(102, entry)).code == 0
        assert (await client.ask(102, entry)).code == 0
        await house.restart()
        assert (await client.ask(101, entry)).code == 22
        answer = await client.ask(219, {"namespace": "N"})
        assert (answer.code, answer.body) == (0, b'{"table":{}}')

    play(scenario)


def test_interop_37_cluster_info(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T")
        await client.register("T", name="broker-b", addr="b:1", cluster="Other")
        table = ClusterTable.decode((await client.ask(106)).body)
        assert table.clusters == {"DefaultCluster": ("broker-a",), "Other": ("broker-b",)}
        route = await client.route("T")
        assert route is not None
        assert {data.broker_name: data.addrs for data in route.brokers} == {
            name: data.addrs for name, data in table.brokers.items()
        }

    play(scenario)


def test_interop_38_write_permission_is_wiped_and_given_back(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        async def perm() -> int:
            route = await client.route("T")
            assert route is not None
            return route.queues[0].perm

        await client.register("T", "U")
        answer = await client.ask(205, {"brokerName": "broker-a"})
        assert (answer.ext_fields, await perm()) == ({"wipeTopicCount": "2"}, 4)
        await client.register("T", "U")
        assert await perm() == 4
        answer = await client.ask(327, {"brokerName": "broker-a"})
        assert (answer.ext_fields, await perm()) == ({"addTopicCount": "2"}, 6)
        await client.ask(205, {"brokerName": "broker-a"})
        await client.register("T", "U", version=2)
        assert await perm() == 6
        assert (await client.ask(205, {"brokerName": "unknown"})).ext_fields == {"wipeTopicCount": "0"}

    play(scenario)


def test_interop_39_topic_lists_and_the_servers_own_config(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T", "%RETRY%G", "TBW102", topic_sys_flag=2)
        assert TopicList.decode((await client.ask(206)).body).topics == ("%RETRY%G", "T", "TBW102")
        assert len(TopicList.decode((await client.ask(224, {"cluster": "DefaultCluster"})).body).topics) == 3
        listed = TopicList.decode((await client.ask(304)).body)
        assert (set(listed.topics), listed.broker_addr) == ({"DefaultCluster", "broker-a"}, ADDR)
        counts = [len(TopicList.decode((await client.ask(code)).body).topics) for code in (311, 312, 313)]
        assert counts == [0, 3, 3]
        text = (await client.ask(319)).body
        assert b"orderMessageEnable=false\n" in text
        assert (await client.ask(318, body=b"orderMessageEnable=true\n")).code == 0
        assert b"orderMessageEnable=true\n" in (await client.ask(319)).body
        writable = b"".join(line for line in text.splitlines(keepends=True) if b"Path=" not in line)
        assert (await client.ask(318, body=writable)).code == 0
        assert (await client.ask(318, body=b"kvConfigPath=/tmp/x")).code == 16
        for bad in (b"\xff=1", b"listenPort=x", b"a=\\u1"):
            assert (await client.ask(318, body=bad)).code == 1

    play(scenario)


def test_order_topics_are_in_routes_when_switched_on(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T")
        await client.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"})
        route = await client.route("T")
        assert route is not None
        assert route.order_config is None
        await client.ask(318, body=b"orderMessageEnable=true\n")
        route = await client.route("T")
        assert route is not None
        assert route.order_config == "broker-a:4"

    play(scenario)


def test_interop_40_routes_are_back_after_a_restart_with_the_next_registration(play: Play) -> None:
    async def scenario(house: House, client: Client) -> None:
        await client.register("T", "U")
        await house.restart()
        assert await client.route("T") is None
        await client.register("U")  # one topic alone comes first
        await client.register("T", "U")
        assert await client.route("T") is not None
        assert await client.route("U") is not None

    play(scenario)


def test_requests_of_5x_brokers(play: Play) -> None:
    """Goal: one topic registered for a broker, its members, and heartbeats without a registration."""

    async def scenario(house: House, client: Client) -> None:
        await client.register("T", filter_servers=("f:1",))
        route = await client.route("T")
        assert route is not None
        assert route.filter_servers == {ADDR: ("f:1",)}
        assert (await client.ask(217, {"topic": "New"}, route.encode())).code == 0
        assert await client.route("New") is not None
        answer = await client.ask(901, {"clusterName": "DefaultCluster", "brokerName": "broker-a"})
        group = MemberGroupAnswer.decode(answer.body).group
        assert group is not None
        assert group.addrs == {0: ADDR}
        house.clock.advance(100_000)
        ext_fields = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerAddr": ADDR}
        assert (await client.ask(904, ext_fields)).code == 0
        house.clock.advance(100_000)
        house.server.scan()
        assert await client.route("T") is not None

    play(scenario)


def test_two_nameservers_know_nothing_of_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "1").mkdir()
        (tmp_path / "2").mkdir()
        async with house(tmp_path / "1") as first, house(tmp_path / "2") as second:
            await first.client().register("T")
            assert await second.client().route("T") is None

    asyncio.run(main())


def test_the_scan_runs_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        config = NameServerConfig(port=0, kv_path=tmp_path / "kv", config_path=tmp_path / "conf", scan_interval_ms=50)
        server = NameServer(config, clock=clock, tls=TlsConfig())
        await server.start()
        broker, client = Client(server.addr), Client(server.addr)
        await broker.register("T")
        clock.advance(120_001)
        await eventually(lambda: _is_gone(client, "T"))
        await broker.close()
        await client.close()
        await server.stop()

    asyncio.run(main())
