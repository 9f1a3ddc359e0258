"""How far the timer wheel is and what waits in it: what slaves of 5.x and operators ask."""

from __future__ import annotations

from dataclasses import dataclass

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.timer_service import TimerService
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.remoting import Handlers, Refusal, Reply, Request


@dataclass(frozen=True, slots=True)
class TimerPorts:
    settings: Settings
    timer: TimerService


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
        raise Refusal(ResponseCode.SYSTEM_ERROR, "this broker has no timer wheel (timerWheelEnable)")
    if ports.timer.is_closed:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is stopping")
