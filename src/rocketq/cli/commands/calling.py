"""What all verbs that talk to a cluster share: how they reach it, how they fail, how they speak to programs."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, NoReturn, TypeVar

import click

from rocketq.cli.connection import NAME_SERVER, Profile, resolve
from rocketq.cli.examples import example as example  # noqa: PLC0414 - every verb takes it from here
from rocketq.cli.numbers import FiniteRange
from rocketq.client.admin import AsyncAdmin
from rocketq.client.errors import NotFoundError, PartlyFailedError, SendFailedError
from rocketq.client.name_servers import parse_name_servers
from rocketq.client.session import SessionConfig
from rocketq.errors import ConfigError, RemotingError, RocketQError, UnreachableError
from rocketq.protocol.acl import Credentials
from rocketq.protocol.failures import GroupNotFoundError, QueryNotFoundError, TopicNotFoundError
from rocketq.remoting import ClientTls, run

FAILED, USAGE, NOT_FOUND, UNREACHABLE = 1, 2, 3, 4

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

    def attempt(self, work: Callable[[AsyncAdmin], Awaitable[_Result]]) -> _Result:
        """The result of the work; RocketQError when it fails."""
        return run(self._with_admin(work))

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
    if isinstance(error, (NotFoundError, TopicNotFoundError, GroupNotFoundError, QueryNotFoundError)):
        return NOT_FOUND
    if isinstance(error, RemotingError):
        return UNREACHABLE
    return USAGE if isinstance(error, ConfigError) else FAILED


def calls_cluster(command: _Command) -> _Command:
    """The options every verb has; the command gets a `Caller` first."""

    @_connection_options(command)
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
    def wrapped(timeout_s: float, as_json: bool, **given: Any) -> Any:
        options = Profile(**{name: given.pop(f"connection_{name}") for name in Profile.__slots__})
        profile = given.pop("connection_profile")
        caller = Caller(options.name_servers or NAME_SERVER, round(timeout_s * 1000), as_json)
        try:
            found = resolve(options, profile, os.environ)
            caller = dataclasses.replace(
                caller,
                name_servers=found.name_servers or NAME_SERVER,
                tls=found.client_tls,
                credentials=found.credentials,
            )
        except ConfigError as error:
            caller.fail(error)
        return command(caller, **given)

    return wrapped  # type: ignore[return-value]


def _connection_options(command: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """How the cluster is reached; what is not given comes from the environment, a profile or tools.yml. `--key` is the
    key of a client certificate where a command has no other option of that name."""
    taken = {name for param in getattr(command, "__click_params__", ()) for name in param.opts}
    key_names = ["--tls-key", *(["--key"] if "--key" not in taken else [])]
    options = [
        click.option(
            "-n",
            "--namesrv",
            "connection_name_servers",
            metavar="ADDRS",
            help=f"NameServers, HOST:PORT;HOST:PORT.  [env: NAMESRV_ADDR; default: {NAME_SERVER}]",
        ),
        click.option("--profile", "connection_profile", help="Saved connection.  [env: ROCKETQ_PROFILE]"),
        click.option("--access-key", "connection_access_key", help="User that signs.  [env: ROCKETQ_ACCESS_KEY]"),
        click.option(
            "--secret-key",
            "connection_secret_key",
            help="Its secret; others see arguments, so prefer ROCKETQ_SECRET_KEY or a profile.",
        ),
        click.option("--tls/--no-tls", "connection_tls", default=None, help="Encrypt connections.  [env: ROCKETQ_TLS]"),
        click.option("--ca", "connection_ca", metavar="FILE", help="Trusted certificates (PEM).  [env: ROCKETQ_CA]"),
        click.option("--cert", "connection_cert", metavar="FILE", help="Client certificate.  [env: ROCKETQ_CERT]"),
        click.option(*key_names, "connection_key", metavar="FILE", help="Key of --cert.  [env: ROCKETQ_KEY]"),
    ]

    def add(wrapped: _Command) -> _Command:
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return add


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
