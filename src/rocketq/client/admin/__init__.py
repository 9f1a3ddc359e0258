"""Administration of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rocketq.client.admin.access import AsyncAccess
from rocketq.client.admin.brokers import AsyncBrokers
from rocketq.client.admin.dead_letters import AsyncDeadLetters
from rocketq.client.admin.groups import AsyncGroups
from rocketq.client.admin.messages import AsyncMessages
from rocketq.client.admin.offsets import AsyncOffsets
from rocketq.client.admin.overview import AsyncOverview
from rocketq.client.admin.pending import AsyncTimers, AsyncTransactions
from rocketq.client.admin.search import AsyncSearch
from rocketq.client.admin.topics import AsyncTopics
from rocketq.client.admin.traces import AsyncTraces
from rocketq.client.session import Session, SessionConfig


class AsyncAdmin:
    """What an operator can ask and change, by subject.

    async with AsyncAdmin("127.0.0.1:9876") as admin:
        await admin.topics.create("Orders", queues=4)
        print((await admin.groups.status("billing")).lag)
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        config: SessionConfig | None = None,
        session: Session | None = None,
    ) -> None:
        """Opens a session that it closes itself, unless the caller passes one."""
        self._owns_session = session is None
        self.session = session or Session(name_servers, config=config)
        self.topics = AsyncTopics(self.session)
        self.groups = AsyncGroups(self.session)
        self.offsets = AsyncOffsets(self.session)
        self.messages = AsyncMessages(self.session)
        self.brokers = AsyncBrokers(self.session)
        self.transactions = AsyncTransactions(self.session)
        self.timers = AsyncTimers(self.session)
        self.overview = AsyncOverview(self.session)
        self.search = AsyncSearch(self.session)
        self.dead_letters = AsyncDeadLetters(self.session)
        self.traces = AsyncTraces(self.session)
        self.access = AsyncAccess(self.session)

    async def close(self) -> None:
        if self._owns_session:
            await self.session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
