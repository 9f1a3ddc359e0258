"""Asking a broker whether it takes an SQL92 subscription."""

from __future__ import annotations

from rocketq.client.aio.session import Session
from rocketq.client.core.routes import masters_of
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.clients import CheckClient, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import TopicNotFound


async def check_sql(session: Session, group: str, subscription: Subscription) -> None:
    """Raises what the broker says; a topic that is not there yet cannot be asked about."""
    try:
        addrs = masters_of(await session.routes.get(subscription.topic))
    except TopicNotFound:
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
