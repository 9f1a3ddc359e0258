"""`rocketq namesrv`: run a NameServer."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import click

from rocketq.cli.examples import example
from rocketq.cli.logs import FORMATS, LEVELS, set_up_logs
from rocketq.cli.serving import serve
from rocketq.cli.settings_file import parse_changes, read_settings
from rocketq.errors import ConfigError, RocketQError
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.nameserver.config import describe_unknown, unknown_keys
from rocketq.remoting import TlsSettings

FAILED, USAGE = 1, 2

log = logging.getLogger(__name__)


class _Servant:
    def __init__(self, server: NameServer) -> None:
        self.start, self.stop = server.start, server.stop
        self._server = server

    def addresses(self) -> dict[str, str]:
        return {"namesrv": self._server.addr}

    def metrics_addresses(self) -> dict[str, str]:
        addr = self._server.observability.addr
        return {} if addr is None else {"namesrv": addr}


@click.command(epilog=example("rocketq namesrv", "rocketq namesrv --host 0.0.0.0 --set allowAnonymous=true"))
@click.option("--host", help="The address to listen at.  [default: 127.0.0.1, or bindAddress of the file]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 picks a free one.  [default: 9876, or listenPort]")
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path, dir_okay=False), help="A namesrv.conf.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting; may be repeated.")
@click.option("--ready-file", type=click.Path(path_type=Path, dir_okay=False), help="Written (JSON) when it serves.")
@click.option("--log-file", type=click.Path(path_type=Path, dir_okay=False), help="Log here, not to stderr.")
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help="Form of log lines.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="Least severe messages to log.",
)
def namesrv(
    host: str | None,
    port: int | None,
    config_file: Path | None,
    changes: tuple[str, ...],
    ready_file: Path | None,
    log_file: Path | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run a NameServer until Ctrl-C or SIGTERM."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    try:
        set_up_logs(log_level, log_file, log_format, lambda: ("namesrv", "namesrv"))
        serve(_Servant(_make_server(config_file, changes, given)), ready_file)
    except RocketQError as error:
        click.echo(f"rocketq namesrv: {error}", err=True)
        sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)


def _make_server(config_file: Path | None, changes: tuple[str, ...], given: dict[str, Any]) -> NameServer:
    settings = (read_settings(config_file) if config_file is not None else {}) | parse_changes(changes)
    if unknown := unknown_keys(settings):
        log.warning("unknown settings are ignored: %s", describe_unknown(unknown))
    if config_file is not None:
        given = {"config_path": config_file, **given}  # changes on request are kept where the settings came from
    return NameServer(NameServerConfig.from_java(settings, **given), tls=TlsSettings.read(settings).server)
