"""Request handlers of the NameServer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any

from rocketq.errors import ConfigError
from rocketq.nameserver import route_views
from rocketq.nameserver.kv_config import KvConfig
from rocketq.nameserver.route_table import Master, Registration, RouteTable, same_version
from rocketq.nameserver.settings import Settings
from rocketq.protocol.bodies.queues import DataVersion, KeyValues
from rocketq.protocol.bodies.registration import Registration as RegistrationBody
from rocketq.protocol.bodies.registration import registration_steps
from rocketq.protocol.bodies.routes import MemberGroupAnswer, TopicRoute
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.config_text import decode_config
from rocketq.protocol.fastjson import run_steps
from rocketq.protocol.headers import nameserver as headers
from rocketq.protocol.messages import body_crc
from rocketq.protocol.names import ORDER_NAMESPACE
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import finish

_SHORT_BODY_BYTES = 2048
_VERSION_BYTES_MAX = 4 * 1024
_ROUTE_BYTES_MAX = 4 * 1024
_ZLIB_START = b"\x78"


@dataclass(frozen=True, slots=True)
class Ports:
    routes: RouteTable
    kv: KvConfig
    settings: Settings
    clock: Clock
    registering: asyncio.Lock = field(default_factory=asyncio.Lock)


handlers: Handlers[Ports] = Handlers()


# brokers


@handlers.on(RequestCode.REGISTER_BROKER)
def register_broker(
    request: Request[headers.RegisterBrokerRequest], ports: Ports
) -> Reply | Coroutine[Any, Any, Reply]:
    """A short body is registered immediately, a long one in slices, one broker at a time."""
    if request.header.body_crc not in (0, body_crc(request.body)):
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the CRC32 of the body differs from bodyCrc32 in the header")
    if len(request.body) > _SHORT_BODY_BYTES or ports.registering.locked():
        return _register_in_slices(request, ports)
    body = run_steps(_read(request))
    return _registered(
        ports.routes.register(_registration(request, body), request.connection, ports.clock.monotonic_ms()), ports
    )


async def _register_in_slices(request: Request[headers.RegisterBrokerRequest], ports: Ports) -> Reply:
    async with ports.registering:
        registration = _registration(request, await finish(_read(request)))
        if request.connection.is_closed:
            return Reply()  # the broker disconnected in the meantime
        now_ms = ports.clock.monotonic_ms()
        return _registered(await finish(ports.routes.register_steps(registration, request.connection, now_ms)), ports)


def _read(request: Request[headers.RegisterBrokerRequest]) -> Generator[None, None, RegistrationBody]:
    return registration_steps(request.body, compressed=_is_compressed(request), version=request.version)


def _registration(request: Request[headers.RegisterBrokerRequest], body: RegistrationBody) -> Registration:
    header = request.header
    return Registration(
        cluster=header.cluster,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        addr=header.broker_addr,
        ha_addr=header.ha_addr,
        life_ms=header.heartbeat_timeout_ms,
        acting_master=header.acting_master,
        topics=body.topics,
        filter_servers=body.filter_servers,
    )


def _registered(master: Master | None, ports: Ports) -> Reply:
    answer = headers.RegisterBrokerResponse(master_addr=master.addr, ha_addr=master.ha_addr) if master else None
    orders = ports.kv.list(ORDER_NAMESPACE)
    return Reply(header=answer, body=b"" if orders is None else KeyValues(table=orders))


def _is_compressed(request: Request[headers.RegisterBrokerRequest]) -> bool:
    """Brokers of 5.3.3 compress the body and send compressed=false; JSON never starts with the first byte of zlib."""
    return request.header.compressed or request.body.startswith(_ZLIB_START)


@handlers.on(RequestCode.UNREGISTER_BROKER)
def unregister_broker(request: Request[headers.UnregisterBrokerRequest], ports: Ports) -> Reply:
    header = request.header
    ports.routes.unregister(header.broker_name, header.broker_id, header.broker_addr)
    return Reply()


@handlers.on(RequestCode.QUERY_DATA_VERSION)
def query_data_version(request: Request[headers.QueryDataVersionRequest], ports: Ports) -> Reply:
    """Whether a broker must register again. If not, the request counts as its heartbeat."""
    name, addr = request.header.broker_name, request.header.broker_addr
    known = ports.routes.data_version(name, addr)
    _check_length(request, _VERSION_BYTES_MAX)
    version = DataVersion.decode(request.body) if request.body else DataVersion()
    changed = known is None or not same_version(known, version)
    if not changed:
        ports.routes.heartbeat(name, addr, ports.clock.monotonic_ms())
    return Reply(header=headers.QueryDataVersionResponse(changed=changed), body=known or b"")


@handlers.on(RequestCode.BROKER_HEARTBEAT)
def broker_heartbeat(request: Request[headers.BrokerHeartbeatRequest], ports: Ports) -> Reply:
    ports.routes.heartbeat(request.header.broker_name, request.header.broker_addr, ports.clock.monotonic_ms())
    return Reply()


@handlers.on(RequestCode.GET_BROKER_CLUSTER_INFO)
def cluster_info(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=route_views.cluster_table(ports.routes))


@handlers.on(RequestCode.GET_BROKER_MEMBER_GROUP)
def broker_member_group(request: Request[headers.MemberGroupRequest], ports: Ports) -> Reply:
    group = route_views.member_group(ports.routes, request.header.cluster, request.header.broker_name)
    return Reply(body=MemberGroupAnswer(group=group))


@handlers.on(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
def wipe_write_perm(request: Request[headers.WipeWritePermRequest], ports: Ports) -> Reply:
    count = ports.routes.wipe_write_perm(request.header.broker_name)
    return Reply(header=headers.WipeWritePermResponse(count=count))


@handlers.on(RequestCode.ADD_WRITE_PERM_OF_BROKER)
def add_write_perm(request: Request[headers.AddWritePermRequest], ports: Ports) -> Reply:
    count = ports.routes.add_write_perm(request.header.broker_name)
    return Reply(header=headers.AddWritePermResponse(count=count))


# topics


@handlers.on(RequestCode.GET_ROUTEINFO_BY_TOPIC)
def route(request: Request[headers.RouteRequest], ports: Ports) -> Reply:
    """All clients get quoted broker ids: strict JSON, which older clients read too."""
    topic = request.header.topic
    order = ports.kv.get(ORDER_NAMESPACE, topic) if ports.settings.config.order_enabled else None
    found = route_views.topic_route(ports.routes, topic, order)
    if found is None:
        return Reply(ResponseCode.TOPIC_NOT_EXIST, f"no broker has registered topic {topic!r}")
    return Reply(body=found)


@handlers.on(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
def topic_list(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=route_views.all_topics(ports.routes))


@handlers.on(RequestCode.GET_TOPICS_BY_CLUSTER)
def cluster_topic_list(request: Request[headers.ClusterTopicsRequest], ports: Ports) -> Reply:
    return Reply(body=route_views.cluster_topics(ports.routes, request.header.cluster))


@handlers.on(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
def system_topic_list(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=route_views.system_topics(ports.routes))


@handlers.on(RequestCode.GET_UNIT_TOPIC_LIST)
def unit_topic_list(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=route_views.unit_topics(ports.routes))


@handlers.on(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
def unit_sub_topic_list(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=route_views.unit_sub_topics(ports.routes))


@handlers.on(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
def unit_sub_only_topic_list(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=route_views.unit_sub_only_topics(ports.routes))


@handlers.on(RequestCode.DELETE_TOPIC_IN_NAMESRV)
def forget_topic(request: Request[headers.ForgetTopicRequest], ports: Ports) -> Reply:
    ports.routes.forget_topic(request.header.topic, request.header.cluster)
    return Reply()


@handlers.on(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
def register_topic(request: Request[headers.RegisterTopicRequest], ports: Ports) -> Reply:
    _check_length(request, _ROUTE_BYTES_MAX)
    if request.body:
        ports.routes.add_topic(request.header.topic, TopicRoute.decode(request.body).queues)
    return Reply()


def _check_length(request: Request[Any], bytes_max: int) -> None:
    """Bodies that are parsed in one step must be short."""
    if len(request.body) > bytes_max:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"the body has {len(request.body)} bytes, {bytes_max} are allowed"
        )


# config


@handlers.on(RequestCode.PUT_KV_CONFIG)
async def put_kv(request: Request[headers.PutConfigRequest], ports: Ports) -> Reply:
    header = request.header
    try:
        await ports.kv.put(header.namespace, header.key, header.value)
    except ConfigError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return Reply()


@handlers.on(RequestCode.GET_KV_CONFIG)
def get_kv(request: Request[headers.GetConfigRequest], ports: Ports) -> Reply:
    namespace, key = request.header.namespace, request.header.key
    value = ports.kv.get(namespace, key)
    if value is None:
        return Reply(ResponseCode.QUERY_NOT_FOUND, f"key {key!r} does not exist in namespace {namespace!r}")
    return Reply(header=headers.GetConfigResponse(value=value))


@handlers.on(RequestCode.DELETE_KV_CONFIG)
async def delete_kv(request: Request[headers.DeleteConfigRequest], ports: Ports) -> Reply:
    await ports.kv.delete(request.header.namespace, request.header.key)
    return Reply()


@handlers.on(RequestCode.GET_KVLIST_BY_NAMESPACE)
def list_kv(request: Request[headers.ListConfigRequest], ports: Ports) -> Reply:
    table = ports.kv.list(request.header.namespace)
    if table is None:
        return Reply(ResponseCode.QUERY_NOT_FOUND, f"namespace {request.header.namespace!r} does not exist")
    return Reply(body=KeyValues(table=table))


@handlers.on(RequestCode.GET_NAMESRV_CONFIG)
def get_config(request: Request[None], ports: Ports) -> Reply:
    return Reply(body=ports.settings.text().encode())


@handlers.on(RequestCode.UPDATE_NAMESRV_CONFIG)
async def update_config(request: Request[None], ports: Ports) -> Reply:
    try:
        await asyncio.to_thread(ports.settings.update, decode_config(request.body))
    except ConfigError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return Reply()
