"""Waits until a message is durable on this disk and replicated to a slave."""

from __future__ import annotations

import asyncio
import contextlib

from rocketq.store import AppendStatus, FlushType, StoreWriter
from rocketq.store.flush import FlushGate

SLAVE_REASONS = {
    AppendStatus.SLAVE_NOT_AVAILABLE: "the message is stored on the master, but every slave is too far behind",
    AppendStatus.FLUSH_SLAVE_TIMEOUT: "the message is stored on the master, but no slave acknowledged it in time",
}


def must_wait(store: StoreWriter) -> bool:
    """Whether answers may wait for a flush or a slave."""
    return store.config.flush_type is FlushType.SYNC_FLUSH or store.replica_gate is not None


async def is_durable(store: StoreWriter, log_end: int) -> bool:
    """Wait without blocking a thread; False when the log is not on disk up to here within syncFlushTimeout."""
    return await _is_reached(store.gate, log_end, store.config.sync_flush_timeout_ms)


async def wait_durable(store: StoreWriter, log_end: int) -> tuple[AppendStatus, str]:
    """Wait for disk and slave concurrently; the status and its reason. When both fail, the slave's status is returned,
    as in Apache."""
    slaves = store.replica_gate
    available = slaves is None or slaves.is_available(log_end)
    waits = [_on_disk(store, log_end)]
    if slaves is not None and available:
        waits.append(_is_reached(slaves, log_end, slaves.timeout_ms))
    on_disk, *on_slave = await asyncio.gather(*waits)
    if not available:
        status = AppendStatus.SLAVE_NOT_AVAILABLE
    elif not all(on_slave):
        status = AppendStatus.FLUSH_SLAVE_TIMEOUT
    elif not on_disk:
        return AppendStatus.FLUSH_DISK_TIMEOUT, store.refusal or "the message was not flushed in time"
    else:
        return AppendStatus.OK, ""
    return status, SLAVE_REASONS[status]


async def _on_disk(store: StoreWriter, log_end: int) -> bool:
    return store.config.flush_type is FlushType.ASYNC_FLUSH or await is_durable(store, log_end)


async def _is_reached(gate: FlushGate, log_end: int, timeout_ms: int) -> bool:
    if gate.position >= log_end:
        return True
    loop = asyncio.get_running_loop()
    reached: asyncio.Future[bool] = loop.create_future()

    def resolve(yes: bool) -> None:
        if not reached.done():
            reached.set_result(yes)

    def from_any_thread(yes: bool) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it all waiters
            loop.call_soon_threadsafe(resolve, yes)

    gate.hold(log_end, from_any_thread)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await reached
    except TimeoutError:
        return False
