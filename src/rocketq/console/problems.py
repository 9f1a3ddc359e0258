"""Errors as RFC 9457 problem documents: a code and fields for programs and translations, a text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from rocketq.client.errors import NotFoundError, PartlyFailedError
from rocketq.console.accounts import SignInError, SignInPausedError
from rocketq.console.json_text import to_json
from rocketq.errors import ConfigError, RemotingError, RequestTimeoutError, RocketQError
from rocketq.protocol.failures import (
    AccessDeniedError,
    BrokerError,
    GroupNotFoundError,
    QueryNotFoundError,
    TopicNotFoundError,
)

PROBLEM_TYPE: Final = "application/problem+json"


class ProblemError(RocketQError):
    """An answer other than success; `code` is part of the API."""

    def __init__(self, status: int, code: str, detail: str, **fields: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.fields: Mapping[str, Any] = fields


def problem_of(error: RocketQError) -> ProblemError:
    """The problem that an error of the SDK stands for."""
    if isinstance(error, ProblemError):
        return error
    text, retriable = str(error), error.retriable
    if isinstance(error, SignInPausedError):
        return ProblemError(429, "sign-in-paused", text, wait_s=round(error.wait_s))
    if isinstance(error, SignInError):
        return ProblemError(401, "sign-in-failed", text)
    if isinstance(error, NotFoundError):
        return ProblemError(404, "not-found", text, what=error.what, name=error.name)
    if isinstance(error, (TopicNotFoundError, GroupNotFoundError, QueryNotFoundError)):
        return ProblemError(404, "not-found", text, what="topic" if isinstance(error, TopicNotFoundError) else "group")
    if isinstance(error, AccessDeniedError):
        return ProblemError(403, "forbidden-by-broker", text)
    if isinstance(error, ConfigError):
        return ProblemError(422, "invalid", text)
    if isinstance(error, RequestTimeoutError):
        return ProblemError(504, "timeout", text, addr=error.addr, retriable=True)
    if isinstance(error, RemotingError):
        return ProblemError(502, "unreachable", text, addr=error.addr, retriable=True)
    if isinstance(error, PartlyFailedError):
        failures = {peer: str(each) for peer, each in error.failures.items()}
        return ProblemError(502, "partly-failed", text, failures=failures, done=list(error.done), retriable=retriable)
    if isinstance(error, BrokerError):
        return ProblemError(502, "refused", text, retriable=retriable)
    return ProblemError(500, "failed", text, retriable=retriable)


def problem_response(problem: ProblemError) -> Response:
    value = {
        "type": f"urn:rocketq:problem:{problem.code}",
        "title": problem.code.replace("-", " "),
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        **problem.fields,
    }
    return Response(to_json(value), status_code=problem.status, media_type=PROBLEM_TYPE)
