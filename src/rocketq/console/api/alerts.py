"""Alerts: rules, their state, webhooks."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from starlette.requests import Request
from starlette.responses import Response

from rocketq.console.alerts import DEFAULT_RULES, METRICS, Alert, AlertStates, Rule, rule_of, values_of
from rocketq.console.config import Role
from rocketq.console.context import Call, Console
from rocketq.console.problems import ProblemError
from rocketq.console.sampler import Sampler
from rocketq.console.webhooks import KINDS, Webhook, Webhooks

log = logging.getLogger(__name__)
reading = APIRouter(tags=["alerts"])
changing = APIRouter(tags=["alerts"])
Asked = Annotated[Call, Depends(Call)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookView:
    """A webhook without its secret."""

    id: str
    name: str
    url: str
    kind: str
    severities: tuple[str, ...]
    enabled: bool
    has_secret: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    webhook: str
    summary: str
    state: str
    attempts: int
    reason: str | None
    created_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPage:
    active: tuple[Alert, ...]
    resolved: tuple[Alert, ...]
    rules: tuple[Rule, ...]
    webhooks: tuple[WebhookView, ...]
    deliveries: tuple[DeliveryView, ...]
    metrics: tuple[str, ...] = METRICS
    kinds: tuple[str, ...] = KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookGiven:
    name: str
    url: str
    kind: str = "rocketq"
    secret: str | None = None
    severities: tuple[str, ...] = ("warning", "critical")
    enabled: bool = True
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    key: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    done: bool = True


class AlertService:
    """Evaluates the rules of all clusters after each sample."""

    def __init__(self, console: Console, webhooks: Webhooks) -> None:
        self._console = console
        self.webhooks = webhooks
        self.rules: dict[str, Rule] = {}
        self.states: dict[str, AlertStates] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        text = await self._console.history.note("alert-rules")
        found = [rule_of(one) for one in json.loads(text)] if text else list(DEFAULT_RULES)
        self.rules = {rule.id: rule for rule in found}
        for cluster in self._console.clusters.values():
            self.states[cluster.name] = AlertStates()
            cluster.sampler.add_listener(self._sampled)
        self._watch()

    async def set_rule(self, rule: Rule) -> None:
        self.rules[rule.id] = rule
        await self._save()

    async def remove_rule(self, rule_id: str) -> None:
        self.rules.pop(rule_id, None)
        await self._save()

    async def _save(self) -> None:
        await self._console.history.keep("alert-rules", json.dumps([asdict(one) for one in self.rules.values()]))
        self._watch()

    def _watch(self) -> None:
        """Webhooks need every sample; without them the idle period is enough."""
        for cluster in self._console.clusters.values():
            cluster.sampler.always_fast = any(hook.enabled for hook in self.webhooks.hooks.values())

    def watch(self) -> None:
        self._watch()

    def _sampled(self, sampler: Sampler) -> None:
        states = self.states[sampler.cluster]
        metrics = {rule.metric for rule in self.rules.values() if rule.enabled}
        failing = sampler.error is not None
        values = {
            metric: dict(values_of(metric, sampler.overview, sampler.figures, failing=failing)) for metric in metrics
        }
        for event in states.update(self.rules, values, time.time_ns() // 1_000_000):
            log.info("cluster=%s alert=%s subject=%s state=%s", sampler.cluster, event.rule, event.subject, event.state)
            task = asyncio.create_task(self.webhooks.add(sampler.cluster, event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def service_of(request: Request) -> AlertService:
    found: AlertService = request.app.state.alerts
    return found


@reading.get("/clusters/{cluster}/alerts", response_model=AlertPage)
async def alerts(call: Asked) -> Response:
    """What fires, what did, the rules, and where alerts are sent."""
    service = service_of(call.request)
    states = service.states[call.cluster.name]
    order = {"critical": 0, "warning": 1, "info": 2}
    active = sorted(states.active.values(), key=lambda one: (one.state != "firing", order[one.severity], one.since_ms))
    deliveries = sorted(service.webhooks.deliveries.values(), key=lambda one: -one.created_s)[:50]
    return call.answer(
        AlertPage(
            active=tuple(active),
            resolved=tuple(states.resolved[:50]),
            rules=tuple(service.rules.values()),
            webhooks=tuple(_view(one) for one in service.webhooks.hooks.values()),
            deliveries=tuple(
                DeliveryView(
                    webhook=one.webhook,
                    summary=one.summary,
                    state=one.state,
                    attempts=one.attempts,
                    reason=one.reason,
                    created_s=one.created_s,
                )
                for one in deliveries
            ),
        )
    )


def _view(hook: Webhook) -> WebhookView:
    return WebhookView(
        id=hook.id,
        name=hook.name,
        url=hook.url,
        kind=hook.kind,
        severities=hook.severities,
        enabled=hook.enabled,
        has_secret=bool(hook.secret),
    )


@changing.post("/clusters/{cluster}/alerts/rules", response_model=Rule)
async def set_rule(call: Asked, given: Annotated[dict[str, Any], Body()]) -> Response:
    """Make or change a rule."""
    call.require(Role.OPERATOR)
    try:
        rule = rule_of({"id": uuid.uuid4().hex[:8], **{name: each for name, each in given.items() if each is not None}})
    except (TypeError, ValueError) as error:
        raise ProblemError(422, "invalid", str(error)) from None
    await service_of(call.request).set_rule(rule)
    return call.answer(rule)


@changing.delete("/clusters/{cluster}/alerts/rules/{rule_id}", response_model=Done)
async def remove_rule(call: Asked, rule_id: str) -> Response:
    call.require(Role.OPERATOR)
    await service_of(call.request).remove_rule(rule_id)
    return call.answer(Done())


@changing.post("/clusters/{cluster}/alerts/webhooks", response_model=WebhookView)
async def set_webhook(call: Asked, given: Annotated[WebhookGiven, Body()]) -> Response:
    """Make or change a webhook. Without a secret the one it has stays."""
    call.require(Role.ADMIN)
    hook = _hook(call, given)
    service = service_of(call.request)
    await service.webhooks.set(hook)
    service.watch()
    return call.answer(_view(hook))


def _hook(call: Call, given: WebhookGiven) -> Webhook:
    if given.kind not in KINDS:
        raise ProblemError(422, "invalid", f"kind {given.kind!r} is not one of {', '.join(KINDS)}")
    known = service_of(call.request).webhooks.hooks.get(given.id or "")
    secret = given.secret if given.secret is not None else known.secret if known is not None else ""
    return Webhook(
        id=given.id or uuid.uuid4().hex[:8],
        name=given.name,
        url=given.url,
        kind=given.kind,
        secret=secret,
        severities=given.severities,
        enabled=given.enabled,
    )


@changing.post("/clusters/{cluster}/alerts/webhooks:test", response_model=Done)
async def test_webhook(call: Asked, given: Annotated[WebhookGiven, Body()]) -> Response:
    """Send a test alert now."""
    call.require(Role.ADMIN)
    await service_of(call.request).webhooks.test(_hook(call, given), call.cluster.name)
    return call.answer(Done())


@changing.delete("/clusters/{cluster}/alerts/webhooks/{hook_id}", response_model=Done)
async def remove_webhook(call: Asked, hook_id: str) -> Response:
    call.require(Role.ADMIN)
    service = service_of(call.request)
    await service.webhooks.remove(hook_id)
    service.watch()
    return call.answer(Done())


@changing.post("/clusters/{cluster}/alerts:acknowledge", response_model=Done)
async def acknowledge(call: Asked, given: Annotated[Acknowledge, Body()]) -> Response:
    """Acknowledge a firing alert."""
    call.require(Role.OPERATOR)
    states: Mapping[str, AlertStates] = service_of(call.request).states
    active = states[call.cluster.name].active
    if given.key not in active:
        raise ProblemError(404, "not-found", f"alert {given.key} is not active", what="alert", name=given.key)
    active[given.key] = replace(active[given.key], note=given.note, acknowledged_by=call.user.name)
    return call.answer(Done())
