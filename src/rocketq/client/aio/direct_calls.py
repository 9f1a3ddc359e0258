"""One call of a listener because an operator asked for it."""

from __future__ import annotations

import asyncio
from typing import Final

from rocketq.client.aio.listener_calls import Call, Calling, Listener, make_calls
from rocketq.client.core.consume_results import ConsumeContext, ConsumeOutcome, ConsumeResult, Verdict
from rocketq.client.core.consumer_config import PushConfig
from rocketq.client.core.process_queue import ProcessQueue
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import ClientError
from rocketq.protocol.bodies.clients import ConsumeDirectlyResult
from rocketq.protocol.flags import ConsumeResult as DirectResult
from rocketq.runtime.clock import Clock

WAIT_MS: Final = 9_500
"""A broker waits ten seconds for what a listener says about one message."""

_RESULTS: Final = {
    ConsumeResult.SUCCESS: DirectResult.CR_SUCCESS,
    ConsumeResult.LATER: DirectResult.CR_LATER,
    ConsumeResult.COMMIT: DirectResult.CR_COMMIT,
    ConsumeResult.ROLLBACK: DirectResult.CR_ROLLBACK,
}


async def call_directly(
    listener: Listener, message: StoredMessage, group: str, config: PushConfig, clock: Clock
) -> ConsumeDirectlyResult:
    """What the listener says about the message; ClientError when it takes too long."""
    calling = Calling(listener, clock, (), config.consume_timeout_ms)
    done = asyncio.Event()
    calls = make_calls(calling, lambda _: done.set(), workers=1, on_loop=config.on_loop)
    context = ConsumeContext(group=group, queue=message.queue)
    call = Call(ProcessQueue(message.queue, clock.monotonic_ms()), [message], context)
    calls.submit([call])
    try:
        async with asyncio.timeout(WAIT_MS / 1000):
            await done.wait()
    except TimeoutError:
        raise ClientError(f"the listener did not finish within {WAIT_MS} ms") from None
    finally:
        await calls.stop(0)
    verdict = calling.verdict(call)
    return ConsumeDirectlyResult(
        order=config.orderly,
        auto_commit=context.auto_commit,
        result=_said(verdict),
        remark=repr(verdict.error) if verdict.error is not None else None,
        spent_ms=verdict.elapsed_ms,
    )


def _said(verdict: Verdict) -> DirectResult:
    match verdict.outcome:
        case ConsumeOutcome.EXCEPTION:
            return DirectResult.CR_THROW_EXCEPTION
        case ConsumeOutcome.NULL:
            return DirectResult.CR_RETURN_NULL
    return _RESULTS[verdict.result]
