"""Shared by push and pull consumers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rocketq.client.core.config import PullConfig, PushConfig
from rocketq.client.core.routes import masters_of
from rocketq.client.offsets import FileOffsets, OffsetStore, RemoteOffsets
from rocketq.client.session import Session
from rocketq.errors import ConfigError, RocketQError
from rocketq.protocol.bodies.clients import CheckClient, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.flags import MessageModel
from rocketq.protocol.names import DLQ_PREFIX, group_fault, is_system_group

HALF_AN_HOUR_MS: Final = 30 * 60_000


def check_consumer_group(group: str) -> None:
    """ConfigError for a name no broker would take."""
    if not isinstance(group, str):
        raise ConfigError(f"group must be a string, got {type(group).__name__}")
    if (fault := group_fault(group)) is not None:
        raise ConfigError(fault)
    if is_system_group(group) or group.startswith(DLQ_PREFIX):
        raise ConfigError(f"group {group} is reserved: choose another name")


def default_store(session: Session, config: PushConfig | PullConfig, group: str) -> OffsetStore:
    if config.model is MessageModel.CLUSTERING:
        return RemoteOffsets(session)
    return FileOffsets(config.offset_dir or default_offset_dir(session))


def default_offset_dir(session: Session) -> Path:
    """`~/.rocketq/offsets/<ip>@<instance>[@<unit>]`: the same after a restart, other than the client id."""
    ip = session.client_id.partition("@")[0]
    unit = f"@{session.config.unit_name}" if session.config.unit_name is not None else ""
    return Path.home() / ".rocketq" / "offsets" / f"{ip}@{session.config.instance_name or 'DEFAULT'}{unit}"


async def check_sql(session: Session, group: str, subscription: Subscription) -> None:
    """Raises the broker's error; a topic that does not exist yet is not checked."""
    try:
        addrs = masters_of(await session.routes.get(subscription.topic))
    except TopicNotFoundError:
        return
    body = CheckClient(client_id=session.client_id, group=group, subscription=subscription).encode()
    failure: RocketQError | None = None
    for addr in addrs.values():
        try:
            await session.call(addr, None, code=RequestCode.CHECK_CLIENT_CONFIG, body=body)
        except RocketQError as error:
            if not error.retriable:
                raise
            failure = error
            continue
        return
    if failure is not None:
        raise failure
