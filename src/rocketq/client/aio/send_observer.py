"""Hooks around sends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketq.client.core.hooks import SendContext, SendHook, SendMode, outcome_of
from rocketq.client.core.messages import Message
from rocketq.client.core.send_results import SendResult
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)

_Given = TypeVar("_Given")
Results = Callable[[_Given], tuple[SendResult, ...]]


class SendObserver:
    """Tells hooks of every send of a producer; they change nothing and spoil nothing."""

    def __init__(self, hooks: list[SendHook], group: str, clock: Clock) -> None:
        self._hooks = hooks
        self._group = group
        self._clock = clock

    def add(self, hook: SendHook) -> None:
        self._hooks.append(hook)

    def __bool__(self) -> bool:
        """Whether anybody looks on."""
        return bool(self._hooks)

    async def around(
        self,
        mode: SendMode,
        messages: tuple[Message, ...],
        queue: MessageQueue | None,
        work: Coroutine[Any, Any, _Given],
        results_of: Results[_Given],
    ) -> _Given:
        """What the work gives, or raises; `results_of` finds the results in it."""
        if not self._hooks:
            return await work
        context = SendContext(group=self._group, messages=messages, mode=mode, queue=queue)
        self._tell("before_send", context)
        began_ms = self._clock.monotonic_ms()
        results: tuple[SendResult, ...] = ()
        try:
            given = await work
            results = results_of(given)
            return given
        except BaseException as error:
            context.error = error
            results = tuple(one for one in getattr(error, "results", ()) if one is not None)  # of a part of a batch
            raise
        finally:
            context.results = results
            context.outcome = outcome_of(results, context.error)
            context.elapsed_ms = self._clock.monotonic_ms() - began_ms
            if results:
                context.queue = results[0].queue
            self._tell("after_send", context)

    def _tell(self, what: str, context: SendContext) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, what)(context)
            except Exception:  # an observer may not spoil what it observes
                log.exception("a hook failed at %s", what)


def one(result: SendResult) -> tuple[SendResult, ...]:
    return (result,)


def none(nothing: None) -> tuple[SendResult, ...]:
    return ()
