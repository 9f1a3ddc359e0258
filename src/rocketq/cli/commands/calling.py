"""What all verbs that talk to a cluster share: how they reach it, how they fail, how they speak to programs."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar

import click

from rocketq.cli.examples import example as example  # noqa: PLC0414 - every verb takes it from here
from rocketq.cli.numbers import FiniteRange
from rocketq.client.admin import AsyncAdmin
from rocketq.client.errors import NotFoundError, PartlyFailedError, SendFailedError
from rocketq.client.name_servers import parse_name_servers
from rocketq.client.session import SessionConfig
from rocketq.errors import ConfigError, RemotingError, RocketQError, UnreachableError
from rocketq.protocol.acl import Credentials
from rocketq.protocol.failures import GroupNotFound, NotFound, TopicNotFound
from rocketq.remoting import ClientTls, run

FAILED, USAGE, NOT_FOUND, UNREACHABLE = 1, 2, 3, 4
NAME_SERVER: Final = "127.0.0.1:9876"

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """How one verb was called."""

    name_servers: str
    timeout_ms: int
    as_json: bool
    tls: ClientTls | None = None
    credentials: Credentials | None = dataclasses.field(default=None, repr=False)

    def run(self, work: Callable[[AsyncAdmin], Awaitable[_Result]]) -> _Result:
        """The result of the work; what keeps it from succeeding ends the command with the exit code it stands for."""
        try:
            return run(self._with_admin(work))
        except RocketQError as error:
            self.fail(error)

    def show(self, value: Any, text: str) -> None:
        """The value for programs, or the text for people."""
        click.echo(to_json(value, indent=2) if self.as_json else text)

    def fail(self, error: RocketQError, code: int | None = None) -> NoReturn:
        """Print the error and exit with its exit code, or with the given one."""
        if self.as_json:
            fields = {"error": type(error).__name__, "message": str(error), "retriable": error.retriable}
            click.echo(json.dumps(fields), err=True)
        else:
            click.echo(f"{click.get_current_context().command_path}: {error}{self._advice(error)}", err=True)
        sys.exit(exit_code(error) if code is None else code)

    def _advice(self, error: RocketQError) -> str:
        """A hint for a NameServer that cannot be reached, the most common first error."""
        if not isinstance(error, UnreachableError) or "SSL" in str(error):  # a server answered
            return ""
        asked = parse_name_servers(self.name_servers)
        if error.addr not in (*asked, ";".join(asked)):  # a broker, then
            return ""
        return " (is a NameServer running at this address? `rocketq up` starts one, -n selects another)"

    async def _with_admin(self, work: Callable[[AsyncAdmin], Awaitable[_Result]]) -> _Result:
        config = SessionConfig(control_timeout_ms=self.timeout_ms, tls=self.tls, credentials=self.credentials)
        async with AsyncAdmin(self.name_servers, config=config) as admin:
            return await work(admin)


def exit_code(error: RocketQError) -> int:
    if isinstance(error, PartlyFailedError):
        codes = {exit_code(each) for each in error.failures.values()}
        return codes.pop() if len(codes) == 1 and not error.done else FAILED
    if isinstance(error, SendFailedError) and error.attempts:
        return exit_code(error.attempts[-1][1])
    if isinstance(error, (NotFoundError, TopicNotFound, GroupNotFound, NotFound)):
        return NOT_FOUND
    if isinstance(error, RemotingError):
        return UNREACHABLE
    return USAGE if isinstance(error, ConfigError) else FAILED


def calls_cluster(command: _Command) -> _Command:
    """The options every verb has; the command gets a `Caller` first."""

    @click.option(
        "-n",
        "--namesrv",
        default=NAME_SERVER,
        envvar="NAMESRV_ADDR",
        show_default=True,
        help="NameServers, HOST:PORT;HOST:PORT.  [env: NAMESRV_ADDR]",
    )
    @click.option(
        "--timeout",
        "timeout_s",
        type=FiniteRange(0.1),
        default=3.0,
        show_default=True,
        help="Seconds for each request.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(command)
    def wrapped(namesrv: str, timeout_s: float, as_json: bool, **given: Any) -> Any:
        return command(Caller(namesrv, round(timeout_s * 1000), as_json), **given)

    return wrapped  # type: ignore[return-value]


def to_json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(plain(value), indent=indent, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Frozen values as JSON's own; bytes as text, or as hex where they are none."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value
