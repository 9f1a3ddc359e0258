"""`rocketq broker`: run a broker, or ask and change one that runs."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from rocketq.access.service import AccessService
from rocketq.broker import Broker, BrokerConfig
from rocketq.broker.app import kept_settings_path
from rocketq.broker.config import describe_unknown, ineffective_settings, unknown_keys
from rocketq.cli.examples import example
from rocketq.cli.logs import FORMATS, LEVELS, set_up_logs
from rocketq.cli.serving import serve
from rocketq.cli.settings_file import parse_changes, read_settings
from rocketq.errors import ConfigError, RocketQError
from rocketq.remoting import TlsSettings
from rocketq.store import StoreConfig

FAILED, USAGE = 1, 2
SECRETS_VARIABLE = "ROCKETQ_SECRET_SETTINGS"
"""Settings as JSON that `rocketq up` gives its brokers: arguments of a process are seen by everybody."""
DATA_DIR = Path.home() / "store"

log = logging.getLogger(__name__)


class _Servant:
    def __init__(self, broker: Broker) -> None:
        self.start, self.stop = broker.start, broker.stop
        self._broker = broker

    def addresses(self) -> dict[str, str]:
        return {self._broker.config.name: self._broker.addr}

    def metrics_addresses(self) -> dict[str, str]:
        addr = self._broker.observability.addr
        return {} if addr is None else {self._broker.config.name: addr}


class _Verbs(click.Group):
    """Those for a running broker are imported when asked for: a server does without them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["clean", "config", "log-level", "maintenance", "status"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = getattr(importlib.import_module("rocketq.cli.commands.broker_admin"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    epilog=example("rocketq broker -n 127.0.0.1:9876 -c broker.conf", "rocketq broker status broker-0"),
)
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path, dir_okay=False), help="A broker.conf.")
@click.option("-n", "--namesrv", help="NameServers, HOST:PORT;HOST:PORT.  [default: NAMESRV_ADDR, or namesrvAddr]")
@click.option("--host", help="The address to listen at.  [default: 127.0.0.1, or bindAddress of the file]")
@click.option("--port", type=click.IntRange(0, 65534), help="0 picks a free one.  [default: 10911, or listenPort]")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Where messages are kept.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting of broker.conf; may be repeated.")
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
@click.option("--with-parent", is_flag=True, hidden=True, help="Started by `rocketq up`: end with standard input.")
@click.pass_context
def broker(
    ctx: click.Context,
    config_file: Path | None,
    namesrv: str | None,
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    changes: tuple[str, ...],
    ready_file: Path | None,
    log_file: Path | None,
    log_level: str,
    log_format: str,
    with_parent: bool,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM. It listens at its port, at its port - 2, and (a master, for its
    slaves) at its port + 1.

    With a command, ask or change a broker that runs; options of that go behind it.
    """
    if ctx.invoked_subcommand is not None:
        if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
            raise click.UsageError(f"options go behind {ctx.invoked_subcommand}")
        return
    try:
        running: list[Broker] = []
        set_up_logs(log_level, log_file, log_format, lambda: running[0].log_identity if running else ("-", "-"))
        flags = parse_changes(changes) | only_given(namesrvAddr=namesrv, bindAddress=host, listenPort=port)
        settings = gather_settings(config_file, data_dir, flags)
        if not with_parent:  # the parent process has reported it already
            warn_of_unknown(settings)
        running.append(make_broker(settings, config_file))
        serve(_Servant(running[0]), ready_file, with_parent=with_parent)
    except RocketQError as error:
        click.echo(f"rocketq broker: {error}", err=True)
        sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)


def only_given(**flags: str | int | None) -> dict[str, str]:
    """Settings of the flags that were given."""
    return {key: str(value) for key, value in flags.items() if value is not None}


def gather_settings(
    config_file: Path | None, data_dir: Path | None, flags: dict[str, str], **defaults: str
) -> dict[str, str]:
    """Weakest first: defaults, environment, file, changes made while running, flags."""
    settings = dict(defaults)
    settings |= json.loads(os.environ.pop(SECRETS_VARIABLE, "{}"))
    if "NAMESRV_ADDR" in os.environ:
        settings["namesrvAddr"] = os.environ["NAMESRV_ADDR"]
    if config_file is not None:
        settings |= read_settings(config_file)
    if data_dir is not None:
        flags = flags | {"storePathRootDir": str(data_dir)}
    root = Path((settings | flags).get("storePathRootDir") or DATA_DIR)
    kept = kept_settings_path(root)
    if kept.exists() and not keeps_changes(config_file):
        settings |= read_settings(kept)
    return settings | flags | {"storePathRootDir": str(root)}


def warn_of_unknown(settings: dict[str, str]) -> None:
    if unknown := unknown_keys(settings):
        log.warning("unknown settings are ignored: %s", describe_unknown(unknown))
    if ineffective := ineffective_settings(settings):
        log.warning("settings without effect on this broker: %s", ", ".join(ineffective))


def keeps_changes(config_file: Path | None) -> bool:
    """Whether changes on request go into the config file itself; they are `key=value` lines."""
    return config_file is not None and config_file.suffix != ".toml"


def make_broker(settings: dict[str, str], config_file: Path | None, access: AccessService | None = None) -> Broker:
    """ConfigError when a setting is none."""
    tls = TlsSettings.read(settings)
    return Broker(
        BrokerConfig.from_java(settings),
        StoreConfig.from_java(settings, root=Path(settings["storePathRootDir"])),
        settings_path=config_file if keeps_changes(config_file) else None,
        tls=tls.server,
        client_tls=tls.client,
        access=access,
    )
