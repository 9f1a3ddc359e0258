"""Requests about timers: progress of the wheel, counts of waiting messages, and recalls by producers."""

from __future__ import annotations

from dataclasses import dataclass

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.timer_service import TimerService
from rocketq.errors import RemoteProtocolError
from rocketq.model import NewMessage
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.handles import RecallHandle
from rocketq.protocol.headers.send import RecallRequest, RecallResponse
from rocketq.protocol.names import TIMER_TOPIC, Property
from rocketq.protocol.properties import encode_properties
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReader


@dataclass(frozen=True, slots=True)
class TimerPorts:
    settings: Settings
    timer: TimerService
    store: StoreReader
    clock: Clock


handlers: Handlers[TimerPorts] = Handlers()


@handlers.on(RequestCode.GET_TIMER_CHECK_POINT)
def check_point(request: Request[None], ports: TimerPorts) -> Reply:
    _require_wheel(ports)
    return Reply(body=ports.timer.check_point())


@handlers.on(RequestCode.GET_TIMER_METRICS)
def metrics(request: Request[None], ports: TimerPorts) -> Reply:
    _require_wheel(ports)
    return Reply(body=ports.timer.waiting_counts())


def _require_wheel(ports: TimerPorts) -> None:
    if not ports.settings.config.timer_enabled:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "this broker has no timer wheel (timerWheelEnable)")
    if ports.timer.is_closed:
        raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is stopping")


@handlers.on(RequestCode.RECALL_MESSAGE)
def recall(request: Request[RecallRequest], ports: TimerPorts) -> Reply:
    """Cancel a timer message. As in 5.3.3 the answer is the same whether the message exists or not."""
    config = ports.settings.config
    if not config.recall_enabled or not config.timer_enabled:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "this broker takes no message back (recallMessageEnable)")
    if ports.timer.is_closed:
        raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is stopping")
    try:
        handle = RecallHandle.decode(request.header.handle)
    except RemoteProtocolError as error:
        raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
    _check(handle, request.header.topic, ports)
    failure = ports.timer.recall(_order(handle, ports))
    if failure is not None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, failure)
    return Reply(header=RecallResponse(message_id=handle.unique_key))


def _check(handle: RecallHandle, topic: str, ports: TimerPorts) -> None:
    name = ports.settings.config.name
    if handle.topic != topic:
        raise RequestRejected(ResponseCode.ILLEGAL_OPERATION, f"the handle is of topic {handle.topic}, not {topic}")
    if handle.broker_name != name:
        raise RequestRejected(
            ResponseCode.ILLEGAL_OPERATION, f"the message is at broker {handle.broker_name}, not {name}"
        )
    if not ports.timer.can_recall(handle.slot_ms, key_of(handle)):
        raise RequestRejected(
            ResponseCode.ILLEGAL_OPERATION, f"message {handle.unique_key} of {topic} is delivered already"
        )


def key_of(handle: RecallHandle) -> str:
    return f"{handle.topic}+{handle.unique_key}"


def _order(handle: RecallHandle, ports: TimerPorts) -> NewMessage:
    """The message that cancels another one; it has the same slot of the wheel."""
    properties = {
        Property.TIMER_DELETES: key_of(handle),
        Property.TIMER_OUT_MS: str(handle.slot_ms),
        Property.REAL_TOPIC: handle.topic,
        Property.REAL_QUEUE_ID: "0",
    }
    return NewMessage(
        topic=TIMER_TOPIC,
        queue_id=0,
        body=b"0",
        properties=encode_properties(properties),
        born_ms=ports.clock.now_ms(),
        born_host=ports.store.config.store_host,
    )
