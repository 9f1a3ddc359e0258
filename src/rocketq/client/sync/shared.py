"""What synchronous clients of a process share: one event loop on a background thread, and sessions."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from rocketq.client.blocking.direct_send import SendConnections
from rocketq.client.errors import ClientClosedError, ClientError
from rocketq.client.name_servers import address_list, parse_name_servers
from rocketq.client.session import Session, SessionConfig, SessionHealth
from rocketq.remoting.loops import loop_factory

CANCEL_S: Final = 5
CLOSE_TIMEOUT_S: Final = 120
"""Longer than any timeout inside of close(); beyond it something hangs."""


class SharedLoop:
    """One event loop per process, on a daemon thread while any client uses it. A forked child starts its own."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked child: the parent's thread does not exist here."""
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = (loop_factory() or asyncio.new_event_loop)()
                self._thread = threading.Thread(target=self._loop.run_forever, name="rocketq-client", daemon=True)
                self._thread.start()
            self._users += 1
            return self._loop

    def release(self) -> None:
        """The loop ends with its last user."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        assert loop is not None
        assert thread is not None
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread, where it must not wait."""
        return threading.current_thread() is self._thread


async def _cancel_others() -> None:
    """Cancel all other tasks before the loop ends."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_S)
    await asyncio.get_running_loop().shutdown_default_executor()


LOOP: Final = SharedLoop()


class MemberKey(NamedTuple):
    """A producer or consumer that joins a session."""

    kind: str
    group: str
    is_exclusive: bool
    """Whether the session must have no other member of this kind and group."""


class SharedSession:
    """A session of several synchronous clients: they share connections, routes and the client id.

    with SharedSession("127.0.0.1:9876") as session, Producer("orders", session=session) as producer:
        ...

    Clients that are made without a session share one too, if their NameServers and settings are equal. A session has
    several producers of a group, but one consumer of it. Close it after its clients.
    """

    def __init__(self, name_servers: str | Sequence[str] | None = None, *, config: SessionConfig | None = None) -> None:
        self.addrs = _addrs_of(name_servers, config)
        self.config = config
        self._lock = threading.Lock()
        self._process_id = -1
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        tls = config.tls if config is not None else None
        self.send_connections = SendConnections(tls.context() if tls is not None else None)
        """Sockets of threads that send; one per broker for each send at a time."""
        self._members: list[MemberKey] = []
        self._closed = False

    @property
    def client_id(self) -> str:
        """The client id for brokers; differs in each forked process."""
        return self._current().client_id

    def health(self) -> SessionHealth:
        session = self._current()
        assert self._loop is not None

        async def report() -> SessionHealth:
            return session.health()

        return asyncio.run_coroutine_threadsafe(report(), self._loop).result()

    def can_join(self, key: MemberKey) -> bool:
        same = [other for other in self._members if other[:2] == key[:2]] if self._is_here else []
        return not same or not (key.is_exclusive or any(other.is_exclusive for other in same))

    def join(self, key: MemberKey) -> Session:
        """The session, for one more member; call leave() when it is closed."""
        session = self._current()
        with self._lock:
            self._members.append(key)
        return session

    def leave(self, key: MemberKey) -> bool:
        """True if it was the last member."""
        with self._lock:
            if self._is_here:
                self._members.remove(key)
            return not self._members

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            session, loop = self._session, self._loop
        self.send_connections.close()
        if session is None or loop is None or not self._is_here:
            return
        try:
            asyncio.run_coroutine_threadsafe(session.close(), loop).result(CLOSE_TIMEOUT_S)
        finally:
            LOOP.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _is_here(self) -> bool:
        return self._process_id == os.getpid()

    def _current(self) -> Session:
        if not self._is_here and self._process_id != -1:
            self._lock = threading.Lock()  # a thread of the parent may have held it at the fork
        with self._lock:
            if self._closed:
                raise ClientClosedError("the session")
            if self._session is None or not self._is_here:
                self._loop = LOOP.acquire()
                self._session = Session(self.addrs, config=self.config, several_producers=True)
                self._members = []
                self._process_id = os.getpid()
            return self._session


class SessionPool:
    """Sessions of clients that were made without one, by NameServers and settings."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._sessions: list[SharedSession] = []

    def join(
        self, addrs: tuple[str, ...] | None, config: SessionConfig | None, member: MemberKey
    ) -> tuple[SharedSession, Session, Callable[[], None]]:
        """A session that this member can join, and the function that leaves it."""
        with self._lock:
            equal = (one for one in self._sessions if one.addrs == addrs and one.config == config)
            shared = next((one for one in equal if one.can_join(member)), None)
            if shared is None:
                shared = SharedSession(addrs, config=config)
                self._sessions.append(shared)
            session = shared.join(member)

        def leave() -> None:
            with self._lock:
                is_last = shared.leave(member)
                if is_last:
                    self._sessions.remove(shared)
            if is_last:
                shared.close()

        return shared, session, leave


POOL: Final = SessionPool()


def join_session(
    given: SharedSession | None,
    name_servers: tuple[str, ...] | None,
    config: SessionConfig | None,
    member: MemberKey,
) -> tuple[Session, Callable[[], None]]:
    """The session of a synchronous client, and the function to call after it was closed."""
    _, session, leave = _join(given, name_servers, config, member)
    return session, leave


def join_producer(
    given: SharedSession | None,
    name_servers: tuple[str, ...] | None,
    config: SessionConfig | None,
    member: MemberKey,
) -> tuple[Session, SendConnections, Callable[[], None]]:
    """As join_session, with the sockets for sends of the calling threads."""
    shared, session, leave = _join(given, name_servers, config, member)
    return session, shared.send_connections, leave


def _join(
    given: SharedSession | None,
    name_servers: tuple[str, ...] | None,
    config: SessionConfig | None,
    member: MemberKey,
) -> tuple[SharedSession, Session, Callable[[], None]]:
    if given is None:
        return POOL.join(name_servers, config, member)
    session = given.join(member)
    return given, session, lambda: _left(given, member)


def _left(session: SharedSession, member: MemberKey) -> None:
    session.leave(member)


def _addrs_of(name_servers: str | Sequence[str] | None, config: SessionConfig | None) -> tuple[str, ...] | None:
    if address_list(name_servers, config.address_server if config is not None else None) is not None:
        return None
    return parse_name_servers(name_servers)


def check_session(
    what: str,
    session: SharedSession | None,
    name_servers: str | Sequence[str] | None,
    config: SessionConfig | None,
) -> tuple[str, ...] | None:
    """The NameServers of a client without a session, None if an address server has them; raises for bad arguments."""
    if session is None:
        return _addrs_of(name_servers, config)
    if not isinstance(session, SharedSession):
        raise ClientError(f"{what}: session must be a SharedSession, got {type(session).__name__}")
    if name_servers is not None or config is not None:
        raise ClientError(f"{what}: pass either session, or name_servers and session_config, not both")
    return ()


def _forget_all() -> None:
    LOOP.forget()
    POOL.forget()


os.register_at_fork(after_in_child=_forget_all)
