"""From a user's message to what a request carries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from rocketq.client.aio.session import Session
from rocketq.client.core.messages import Message, Outgoing, Packing, check_and_encode, check_properties
from rocketq.protocol.compression import compress
from rocketq.protocol.names import Property

ASIDE_BYTES: Final = 256 << 10
"""Larger bodies are compressed on a thread, so that the loop goes on."""


class Packer:
    """Checks, gives ids, compresses. Adds what a namespace needs."""

    def __init__(self, session: Session, packing: Packing) -> None:
        self._session = session
        self._packing = packing

    def is_compressed(self, body: bytes) -> bool:
        return len(body) >= self._packing.compress_from_bytes

    def encode(self, message: Message, extra: Mapping[str, str] | None = None) -> Outgoing:
        """With the body as it is; MessageInvalidError says what is wrong."""
        if isinstance(message, Message) and message.properties:
            check_properties(message.properties)
        session = self._session
        if session.namespace.name is not None:
            extra = {**(extra or {}), Property.INSTANCE_ID: session.namespace.name}
        return check_and_encode(message, session.unique_ids.next(session.clock.now_ms()), self._packing, extra=extra)

    async def compress(self, outgoing: Outgoing) -> None:
        """The body of a message that is large."""
        kind, level = self._packing.compression, self._packing.compress_level
        if len(outgoing.body) >= ASIDE_BYTES:
            outgoing.body = await asyncio.to_thread(compress, outgoing.body, kind, level=level)
        else:
            outgoing.body = compress(outgoing.body, kind, level=level)
        outgoing.sys_flag |= kind.sys_flag
