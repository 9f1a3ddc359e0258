"""Unit name and unit mode of sessions, and pulls that carry their subscription, as brokers see them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketq.client import AsyncAdmin, AsyncProducer, AsyncPushConsumer, Message, Session, SessionConfig
from rocketq.client.consumer import default_offset_dir
from rocketq.errors import ConfigError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import PullFlag, TopicSysFlag
from rocketq.protocol.names import retry_topic
from rocketq.remoting import Connection
from rocketq.testing import EmbeddedCluster

from .consuming import QUICK, Remembers, fill
from .kit import on_a_loop


class Pulls:
    """A hook that keeps the pull requests."""

    def __init__(self) -> None:
        self.requests: list[Command] = []

    def before(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            self.requests.append(request)

    def after(self, connection: Connection, request: Command, response: Command | None) -> None:
        pass


@on_a_loop
async def test_brokers_learn_the_unit_of_a_client(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    addr = cluster.name_server_addr
    config = SessionConfig(instance_name="i1", unit_name="east", unit_mode=True)
    async with Session(addr, config=config) as session, AsyncAdmin(addr) as admin:
        assert session.client_id.endswith("@i1@east")
        assert default_offset_dir(session).name.endswith("@i1@east")
        async with AsyncProducer("P", session=session) as producer:
            await producer.send(Message(topic=topic, body=b"1"))
        listener = Remembers()
        async with AsyncPushConsumer(group, listener, session=session, config=QUICK, topics=topic):
            await listener.until(1)
            members = await admin.groups.connections(group)
            assert [member.client_id for member in members.connections] == [session.client_id]
        flags = {config.topic_sys_flag for config in (await admin.topics.configs(topic)).values()}
        assert flags == {TopicSysFlag.UNIT}
        flags = {config.topic_sys_flag for config in (await admin.topics.configs(retry_topic(group))).values()}
        assert flags == {TopicSysFlag.UNIT_SUB}


@pytest.mark.parametrize("name", ["", "a@b", "a b", "a/b"])
def test_a_unit_name_that_would_break_client_ids_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="unit_name"):
        SessionConfig(unit_name=name)


@on_a_loop
@pytest.mark.parametrize("post_subscription", [True, False])
async def test_pulls_carry_the_subscription_if_that_is_set(
    cluster: EmbeddedCluster, topic: str, group: str, post_subscription: bool
) -> None:
    await fill(cluster.name_server_addr, topic, 4, tag="a")
    pulls, listener = Pulls(), Remembers()
    config = replace(QUICK, post_subscription=post_subscription)
    async with (
        Session(cluster.name_server_addr, hooks=[pulls]) as session,
        AsyncPushConsumer(group, listener, session=session, config=config, topics={topic: "a || b"}),
    ):
        await listener.until(4)
    requests = [request for request in pulls.requests if request.ext_fields["topic"] == topic]
    flags = {bool(int(request.ext_fields["sysFlag"]) & PullFlag.SUBSCRIPTION) for request in requests}
    assert flags == {post_subscription}
    expressions = {request.ext_fields.get("subscription") for request in requests}
    assert expressions == {"a || b" if post_subscription else None}
