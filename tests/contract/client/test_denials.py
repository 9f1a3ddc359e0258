"""Clients of a cluster with access control: what is denied is raised as one error that says who, what and where."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketq.client import (
    AccessDeniedError,
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Credentials,
    Message,
    SessionConfig,
)
from rocketq.protocol.bodies.accounts import PolicyEntry
from rocketq.testing import EmbeddedCluster

ROOT, APP = Credentials("root", "root-secret"), Credentials("app", "app-secret")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
}


@pytest.fixture(scope="module")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("secured")
    with EmbeddedCluster(settings=SETTINGS, data_dir=folder) as cluster:
        asyncio.run(_prepare(cluster.name_server_addr))
        yield cluster.name_server_addr


async def _prepare(name_servers: str) -> None:
    async with AsyncAdmin(name_servers, config=SessionConfig(credentials=ROOT)) as admin:
        for topic in ("Mine", "Other"):
            await admin.topics.create(topic, queues=2)
        await admin.access.create_user("app", APP.secret_key)
        entries = [
            PolicyEntry(resource=resource, actions=actions, decision="Allow")
            for resource, actions in (("Topic:Mine", ("Pub", "Sub")), ("Group:g*", ("Sub",)))
        ]
        await admin.access.put_policies("app", entries)
        assert [each.username for each in await admin.access.users()] == ["app", "root"]


def test_a_denied_send_says_who_what_and_where(name_servers: str) -> None:
    async def run() -> None:
        config = SessionConfig(credentials=APP)
        async with AsyncProducer("p", name_servers=name_servers, session_config=config) as producer:
            await producer.send(Message(topic="Mine", body=b"1"))
            with pytest.raises(AccessDeniedError) as caught:
                await producer.send(Message(topic="Other", body=b"1"))
        error = caught.value
        assert (error.user, error.resource, error.action, error.source) == ("app", "Topic:Other", "Pub", "127.0.0.1")
        assert error.broker == error.peer
        assert not error.retriable
        wrong = SessionConfig(credentials=Credentials("app", "wrong"))
        async with AsyncProducer("p", name_servers=name_servers, session_config=wrong) as producer:
            with pytest.raises(AccessDeniedError, match="check signature failed") as caught:
                await producer.send(Message(topic="Mine", body=b"1"))
            assert caught.value.user == "app"

    asyncio.run(asyncio.wait_for(run(), 20))


def test_denied_consumers_report_it(name_servers: str) -> None:
    """Goal: a consumer whose heartbeat is denied does not start; one that loses its rights raises from poll."""

    async def run() -> None:
        config = SessionConfig(credentials=APP)
        push = AsyncPushConsumer(
            "other", lambda messages, context: None, name_servers=name_servers, session_config=config
        )
        pull = AsyncPullConsumer("other", name_servers=name_servers, session_config=config)
        for consumer in (push, pull):
            consumer.subscribe("Mine")
            with pytest.raises(AccessDeniedError) as caught:
                await consumer.start()
            await consumer.close()
            assert (caught.value.resource, caught.value.action) == ("Group:other", "Sub")
        async with AsyncPullConsumer("g1", name_servers=name_servers, session_config=config) as allowed:
            allowed.subscribe("Mine")
            while not await allowed.poll(200):
                pass
            async with AsyncAdmin(name_servers, config=SessionConfig(credentials=ROOT)) as admin:
                await admin.access.delete_policies("app", "Group:g*")
            with pytest.raises(AccessDeniedError):
                await _poll_until_it_fails(allowed)

    asyncio.run(asyncio.wait_for(run(), 30))


async def _poll_until_it_fails(consumer: AsyncPullConsumer) -> None:
    while True:
        await consumer.poll(200)
