"""The dispatcher without a network: checks, middleware and handlers in their order."""

from __future__ import annotations

from typing import Any

import pytest

from rocketq.protocol.command import Command
from rocketq.remoting import Check, Connection, Dispatcher, Handler
from rocketq.remoting.dispatch import Answer, Middleware


class Peer:
    """A connection as far as the dispatcher needs one."""

    def __init__(self) -> None:
        self.answers: list[Command] = []
        self.language: Any = None
        self.version = 0

    def answer(self, request: Command, response: Command) -> None:
        self.answers.append(response)


class Trail:
    """Checks, middleware and handlers that leave their names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def check(self, name: str, code: int | None = None) -> Check:
        def run(request: Command, connection: Connection) -> Command | None:
            self.names.append(name)
            return None if code is None else request.answer(code, remark=name)

        return run

    def middleware(self, name: str) -> Middleware:
        def wrap(code: int, handler: Handler) -> Handler:
            def run(request: Command, connection: Connection) -> Answer:
                self.names.append(f"{name}>{code}")
                answer = handler(request, connection)
                self.names.append(f"<{name}")
                return answer

            return run

        return wrap

    def handler(self, name: str = "handler") -> Handler:
        def run(request: Command, connection: Connection) -> Answer:
            self.names.append(name)
            return request.answer(0)

        return run


def dispatch(dispatcher: Dispatcher, code: int = 1) -> Command:
    peer: Any = Peer()
    dispatcher.dispatch(Command(code=code, opaque=3), peer)
    (answer,) = peer.answers
    assert answer.opaque == 3
    return answer  # type: ignore[no-any-return]


def test_checks_come_first_and_middleware_wraps_from_the_outside() -> None:
    trail = Trail()
    dispatcher = Dispatcher(
        checks=(trail.check("a"), trail.check("b")), middleware=(trail.middleware("outer"), trail.middleware("inner"))
    )
    dispatcher.register(1, trail.handler())
    dispatcher.checks.append(trail.check("late"))
    assert dispatch(dispatcher).code == 0
    assert trail.names == ["a", "b", "late", "outer>1", "inner>1", "handler", "<inner", "<outer"]


@pytest.mark.parametrize("code", [1, 999], ids=["known", "unknown"])
def test_the_first_check_that_rejects_ends_it_for_every_code(code: int) -> None:
    trail = Trail()
    dispatcher = Dispatcher(
        checks=(trail.check("a"), trail.check("b", 16), trail.check("c", 17)), middleware=(trail.middleware("m"),)
    )
    dispatcher.register(1, trail.handler())
    answer = dispatch(dispatcher, code)
    assert (answer.code, answer.remark) == (16, "b")
    assert trail.names == ["a", "b"]


def test_an_unknown_code_passes_the_checks_before_it_is_reported() -> None:
    trail = Trail()
    assert dispatch(Dispatcher(checks=(trail.check("a"),)), 999).code == 3
    assert trail.names == ["a"]


def test_a_check_that_fails_is_an_answer_and_nothing_is_handled() -> None:
    """Goal: a fault in a check must not let its request pass."""
    trail = Trail()

    def broken(request: Command, connection: Connection) -> Command | None:
        raise ZeroDivisionError("not foreseen")

    dispatcher = Dispatcher(checks=(broken,))
    dispatcher.register(1, trail.handler())
    assert dispatch(dispatcher).code == 1
    assert not trail.names


def test_changes_of_checks_and_hooks_are_reported() -> None:
    changes: list[str] = []
    trail = Trail()
    dispatcher = Dispatcher(checks=(trail.check("a"),), changed=lambda: changes.append("changed"))
    assert not changes
    dispatcher.checks.append(trail.check("b"))
    dispatcher.hooks.append(None)  # type: ignore[arg-type]
    dispatcher.hooks.clear()
    del dispatcher.checks[0]
    assert len(changes) == 4


def test_two_handlers_for_one_code_are_a_mistake() -> None:
    dispatcher = Dispatcher()
    dispatcher.register(1, Trail().handler())
    with pytest.raises(ValueError, match="two handlers claim request code 1"):
        dispatcher.register(1, Trail().handler())
