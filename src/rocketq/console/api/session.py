"""Who I am, signing in and out, tokens; history of changes."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query
from starlette.requests import Request
from starlette.responses import Response

from rocketq import __version__
from rocketq.client.admin import AsyncAdmin
from rocketq.console.accounts import Session, SignInError, User
from rocketq.console.audit import verify
from rocketq.console.config import Login, Role
from rocketq.console.context import Cluster, Console, answer
from rocketq.console.guard import COOKIE, client_of
from rocketq.console.problems import ProblemError
from rocketq.errors import RocketQError
from rocketq.protocol.acl import Credentials
from rocketq.protocol.failures import AccessDeniedError

router = APIRouter(tags=["session"])
AUDIT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """`token` goes into the header of every changing request."""

    user: str | None
    role: str | None
    login: str
    read_only: bool
    token: str | None
    clusters: tuple[str, ...]
    version: str
    sample_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    name: str
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    items: tuple[dict[str, Any], ...]
    intact: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    status: str
    clusters: dict[str, str]


@router.get("/me", response_model=Me)
async def me(request: Request) -> Response:
    """Who asks, with which role; makes a session where no sign-in is needed."""
    console: Console = request.app.state.console
    user: User | None = request.state.user
    session: Session | None = request.state.session
    made = None
    if user is not None and session is None and not request.headers.get("authorization"):
        session = made = console.sessions.open(user, time.time())
    response = answer(request, _me(console, user, session))
    if made is not None:
        _set_cookie(response, console, made)
    return response


def _me(console: Console, user: User | None, session: Session | None) -> Me:
    read_only = console.config.read_only
    return Me(
        user=user.name if user is not None else None,
        role=(Role.VIEWER if read_only else user.role).word if user is not None else None,
        login=console.config.login.value,
        read_only=read_only,
        token=session.csrf if session is not None else None,
        clusters=tuple(name for name in console.clusters if user is not None and user.may_see(name)),
        version=__version__,
        sample_s=console.config.sample_s,
    )


def _set_cookie(response: Response, console: Console, session: Session) -> None:
    response.set_cookie(
        COOKIE,
        session.id,
        max_age=console.config.session_s,
        path=console.config.base_path,
        httponly=True,
        samesite="strict",
        secure=console.config.cert is not None,
    )


@router.post("/login", response_model=Me)
async def login(request: Request, given: Annotated[SignIn, Body()]) -> Response:
    """Sign in; five failures are followed by a pause of half a minute."""
    console: Console = request.app.state.console
    source, now_s = client_of(request.scope), time.time()
    console.sessions.require_calm(source, now_s)
    try:
        user = await _user_of(console, given)
    except SignInError:
        console.sessions.failed(source, now_s)
        raise
    console.sessions.succeeded(source)
    session = console.sessions.open(user, now_s)
    response = answer(request, _me(console, user, session))
    _set_cookie(response, console, session)
    return response


async def _user_of(console: Console, given: SignIn) -> User:
    if console.config.login is Login.USERS and console.users is not None:
        return await asyncio.to_thread(console.users.check, given.name, given.password)
    if console.config.login is Login.CLUSTER:
        return await _cluster_user(console, given)
    raise ProblemError(404, "no-login", "this console has no sign-in")


async def _cluster_user(console: Console, given: SignIn) -> User:
    """One of the cluster's own users: a broker checks the signature of a request that every user may make."""
    user = User(name=given.name, role=Role.ADMIN, credentials=Credentials(given.name, given.password))
    cluster = next(iter(console.clusters.values()))
    admin: AsyncAdmin = cluster.admin(user)
    await _require_access_control(cluster)
    try:
        names = list((await admin.brokers.cluster()).brokers)
        if not names:
            raise ProblemError(502, "unreachable", "no broker is registered that could check the password")
        await admin.brokers.status(names[0])
    except AccessDeniedError as error:
        if error.resource is not None:
            return user  # known, but not allowed to ask for this
        raise SignInError("the name or the password is wrong") from None
    return user


async def _require_access_control(cluster: Cluster) -> None:
    """Without access control brokers accept every signature, so a wrong password would sign in."""
    nobody = User(name="nobody", role=Role.VIEWER, credentials=Credentials(f"rocketq-{uuid.uuid4().hex}", "wrong"))
    admin = AsyncAdmin(
        cluster.target.name_servers, config=replace(cluster.target.session, credentials=nobody.credentials)
    )
    try:
        name = next(iter((await admin.brokers.cluster()).brokers), None)
        if name is not None:
            await admin.brokers.status(name)
            raise ProblemError(409, "no-access-control", "the cluster has no access control: its users cannot sign in")
    except AccessDeniedError:
        return
    finally:
        await admin.close()


@router.post("/logout", response_model=Health)
async def logout(request: Request) -> Response:
    console: Console = request.app.state.console
    console.sessions.close(request.cookies.get(COOKIE))
    response = answer(request, Health(status="signed out", clusters={}))
    response.delete_cookie(COOKIE, path=console.config.base_path)
    return response


@router.get("/health", response_model=Health)
async def health(request: Request) -> Response:
    """For a supervisor: 503 when no cluster can be sampled."""
    console: Console = request.app.state.console
    states = {name: "failing" if one.sampler.error else "ok" for name, one in console.clusters.items()}
    ok = any(state == "ok" for state in states.values())
    return answer(request, Health(status="ok" if ok else "failing", clusters=states), 200 if ok else 503)


@router.get("/audit", response_model=AuditPage)
async def audit(request: Request, q: str = "", n: Annotated[int, Query(ge=1, le=AUDIT_MAX)] = 200) -> Response:
    """Changes, newest first; `intact` is False when the chain of hashes is broken."""
    console: Console = request.app.state.console
    entries = await asyncio.to_thread(console.audit.newest, n, text=q)
    reason = None
    try:
        await asyncio.to_thread(verify, console.audit.path)
    except RocketQError as error:
        reason = str(error)
    visible = tuple(one for one in entries if request.state.user.may_see(str(one.get("cluster", ""))))
    return answer(request, AuditPage(items=visible, intact=reason is None, reason=reason))
