"""Apache brokers that ask who is there: a producer that may not send is told so, one that may sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.client import AccessDeniedError, AsyncAdmin, AsyncProducer, Credentials, Message, SendStatus, SessionConfig
from rocketq.protocol.failures import TopicNotFoundError

from .apache import ApacheBroker, ApacheNameServer, free_broker_port

pytestmark = pytest.mark.interop

ACCOUNTS = """accounts:
- accessKey: alice-key
  secretKey: secret123
  admin: true
- accessKey: bobby-key
  secretKey: secret123
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""
_AUTH = "org.apache.rocketmq.auth"
SETTINGS = {
    "4.9.7": {"aclEnable": "true"},
    "5.3.3": {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": "alice-key", "password": "secret123"}),
    },
}
DENIED = [None, Credentials("alice-key", "wrong-secret"), Credentials("bobby-key", "secret123")]


@pytest.mark.parametrize("version", SETTINGS)
def test_who_may_not_send_is_told_so(
    nameserver: Callable[[str], ApacheNameServer], tmp_path: Path, version: str
) -> None:
    """Goal: unknown, badly signed and not allowed are AccessDeniedError, at the first try; others may send."""
    conf = tmp_path / "broker" / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    with ApacheBroker(
        nameserver(version),
        port=free_broker_port(),
        store=tmp_path / "store",
        work=tmp_path / "broker",
        settings=SETTINGS[version] | {"authConfigPath": str(tmp_path / "auth")},
    ) as broker:
        asyncio.run(asyncio.wait_for(_tries(broker.nameserver.address), 90))


async def _tries(name_servers: str) -> None:
    message = Message(topic=f"Access-{id(name_servers)}", body=b"x")
    async with AsyncAdmin(name_servers) as admin:
        while True:
            try:
                await admin.topics.route("TBW102")
                break
            except TopicNotFoundError:
                await asyncio.sleep(0.1)
    for credentials in DENIED:
        config = SessionConfig(credentials=credentials)
        async with AsyncProducer("g", name_servers=name_servers, session_config=config) as producer:
            with pytest.raises(AccessDeniedError) as caught:
                await producer.send(message)
            assert not caught.value.retriable
    config = SessionConfig(credentials=Credentials("alice-key", "secret123"))
    async with AsyncProducer("g", name_servers=name_servers, session_config=config) as producer:
        assert (await producer.send(message)).status is SendStatus.SEND_OK
        assert len(await producer.send_batch([message] * 3)) == 3
