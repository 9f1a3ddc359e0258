"""`rocketq up`: a NameServer and a broker with one command, or several brokers as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketq.access.config import SECRET_KEYS, AccessConfig
from rocketq.access.service import AccessService, open_access, random_credentials
from rocketq.broker import Broker, BrokerConfig
from rocketq.broker.free_port import pick_port
from rocketq.cli.commands.broker import (
    FAILED,
    SECRETS_VARIABLE,
    USAGE,
    gather_settings,
    make_broker,
    only_given,
    warn_of_unknown,
)
from rocketq.cli.console_process import PORT as CONSOLE_PORT
from rocketq.cli.console_process import WithConsole
from rocketq.cli.examples import example
from rocketq.cli.logs import FORMATS, LEVELS, set_up_logs
from rocketq.cli.serving import serve
from rocketq.cli.settings_file import parse_changes
from rocketq.cli.small_files import with_small_files
from rocketq.errors import ConfigError, RocketQError
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.remoting import TlsSettings
from rocketq.runtime.clock import SystemClock

if TYPE_CHECKING:
    from rocketq.testing.etcd import LocalEtcd

DATA_DIR = Path.home() / ".rocketq"
BROKER_NAME = "broker-0"
LOOPBACK = "127.0.0.1"
PORT_STEP = 10
PORT_MIN, PORT_MAX = 3, 65_534  # a broker listens beside its port, too
_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 10
_LOOK_SECONDS = 0.02
_AGAIN_SECONDS = 3
_REPLICAS_MAX = 9

log = logging.getLogger(__name__)


class ChildFailedError(RocketQError):
    """A broker's process ended or did not start."""


class Together:
    """NameServer and broker in this process, with one access control."""

    def __init__(self, data_dir: Path, port: int, settings: dict[str, str], config_file: Path | None) -> None:
        self._data_dir = data_dir
        self._port = port
        self._settings = with_inner_credentials(settings)
        self._config_file = config_file
        self._name_server: NameServer | None = None
        self._broker: Broker | None = None

    async def start(self) -> None:
        config = BrokerConfig.from_java(self._settings)
        root = Path(self._settings["storePathRootDir"])
        access = await asyncio.to_thread(open_access, config.access, root, config.cluster, SystemClock())
        names = _name_server(self._data_dir, config.host, self._port, self._settings, access)
        await names.start()
        self._name_server = names
        try:
            self._broker = make_broker(self._settings | {"namesrvAddr": names.addr}, self._config_file, access)
            await self._broker.start()
        except BaseException:
            await names.stop()
            raise

    async def stop(self) -> None:
        if self._broker is not None:
            await self._broker.stop()
        if self._name_server is not None:
            await self._name_server.stop()

    def addresses(self) -> dict[str, str]:
        assert self._broker is not None
        assert self._name_server is not None
        return {"namesrv": self._name_server.addr, self._broker.config.name: self._broker.addr}

    @property
    def log_identity(self) -> tuple[str, str]:
        return ("-", "-") if self._broker is None else self._broker.log_identity

    def metrics_addresses(self) -> dict[str, str]:
        assert self._broker is not None
        assert self._name_server is not None
        found = {"namesrv": self._name_server.observability.addr}
        found[self._broker.config.name] = self._broker.observability.addr
        return {name: addr for name, addr in found.items() if addr is not None}


class BrokerProcess:
    """One `rocketq broker`, started and stopped by us."""

    def __init__(self, arguments: list[str], ready_file: Path, secret_settings: dict[str, str]) -> None:
        self._arguments = arguments
        self._secret_settings = secret_settings
        self._ready_file = ready_file
        self._process: asyncio.subprocess.Process | None = None
        self.addresses: dict[str, str] = {}
        self.metrics: dict[str, str] = {}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        self._ready_file.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "rocketq", "broker", *self._arguments, "--ready-file", str(self._ready_file)]
        # its own session: Ctrl-C reaches us alone, and we stop them in order; its standard input ends when we do, even
        # when we are killed, and then it stops by itself
        self._process = await asyncio.create_subprocess_exec(
            *command,
            "--with-parent",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {SECRETS_VARIABLE: json.dumps(self._secret_settings)},
        )

    async def wait_ready(self) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS_MAX):
                while not self._ready_file.exists():
                    self.require_running()
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise ChildFailedError(f"a broker did not start within {_START_SECONDS_MAX} s") from None
        found = json.loads(self._ready_file.read_text())
        self.addresses, self.metrics = found["addresses"], found["metrics"]

    def require_running(self) -> None:
        assert self._process is not None
        if self._process.returncode is not None:
            raise ChildFailedError(f"a broker's process ended with {self._process.returncode}")

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS_MAX):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Fleet:
    """A NameServer in this process, each broker in a child process. If one of them ends, all are stopped."""

    def __init__(self, name_server: NameServer, brokers: list[BrokerProcess]) -> None:
        self._name_server = name_server
        self._brokers = brokers
        self._watch: asyncio.Task[None] | None = None
        self.failed = False

    async def start(self) -> None:
        await self._name_server.start()
        try:
            for broker in self._brokers:
                await broker.start()
            for broker in self._brokers:
                await broker.wait_ready()
        except BaseException:
            await self.stop()
            raise
        self._watch = asyncio.get_running_loop().create_task(self._stop_when_one_dies())

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*(broker.stop() for broker in self._brokers))
        await self._name_server.stop()

    def addresses(self) -> dict[str, str]:
        found = {"namesrv": self._name_server.addr}
        for broker in self._brokers:
            found |= broker.addresses
        return found

    def metrics_addresses(self) -> dict[str, str]:
        addr = self._name_server.observability.addr
        found = {} if addr is None else {"namesrv": addr}
        for broker in self._brokers:
            found |= broker.metrics
        return found

    def pids(self) -> dict[str, int]:
        found = {"namesrv": os.getpid()}
        for broker in self._brokers:
            found |= dict.fromkeys(broker.addresses, broker.pid)
        return found

    async def _stop_when_one_dies(self) -> None:
        waits = [asyncio.ensure_future(broker.wait()) for broker in self._brokers]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        log.error("a broker's process ended: everything is stopped")
        self.failed = True
        os.kill(os.getpid(), signal.SIGTERM)


class ReplicaFleet(Fleet):
    """The brokers are replicas of one. If one ends, the others continue and it is restarted."""

    def __init__(self, name_server: NameServer, brokers: list[BrokerProcess], etcd: LocalEtcd) -> None:
        super().__init__(name_server, brokers)
        self._etcd = etcd

    async def start(self) -> None:
        try:
            await asyncio.to_thread(self._etcd.start)
            await super().start()
        except BaseException:
            await asyncio.to_thread(self._etcd.stop)
            raise

    async def stop(self) -> None:
        await super().stop()
        await asyncio.to_thread(self._etcd.stop)

    def addresses(self) -> dict[str, str]:
        found = {"namesrv": self._name_server.addr, "etcd": self._etcd.endpoints[0]}
        for number, broker in enumerate(self._brokers):
            found |= {f"{name}/{number}": addr for name, addr in broker.addresses.items()}
        return found

    def pids(self) -> dict[str, int]:
        found = {"namesrv": os.getpid()}
        for number, broker in enumerate(self._brokers):
            found |= {f"{name}/{number}": broker.pid for name in broker.addresses}
        return found

    def metrics_addresses(self) -> dict[str, str]:
        addr = self._name_server.observability.addr
        found = {} if addr is None else {"namesrv": addr}
        for number, broker in enumerate(self._brokers):
            found |= {f"{name}/{number}": metrics for name, metrics in broker.metrics.items()}
        return found

    async def _stop_when_one_dies(self) -> None:
        await asyncio.gather(*(self._start_again(broker) for broker in self._brokers))

    async def _start_again(self, broker: BrokerProcess) -> None:
        while True:
            code = await broker.wait()
            log.warning("a replica's process ended with %d; it is started again in %d s", code, _AGAIN_SECONDS)
            await asyncio.sleep(_AGAIN_SECONDS)
            await broker.start()


@click.command(
    epilog=example(
        "rocketq up",
        "rocketq up --replicas 3",
        "rocketq up --brokers 2 --data-dir /var/lib/rocketq --log-file /var/log/rocketq.log",
        "rocketq up --set enablePropertyFilter=true --set mappedFileSizeCommitLog=67108864",
    )
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA_DIR,
    show_default=True,
    help="The folder for messages and state.",
)
@click.option("--host", help="The address to listen at.  [default: 127.0.0.1, or bindAddress of the file]")
@click.option("--namesrv-port", type=click.IntRange(0, 65535), default=9876, show_default=True, help="0: a free one.")
@click.option("--broker-port", type=click.IntRange(0, 65534), help="0: a free one.  [default: 10911, or listenPort]")
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path, dir_okay=False), help="A broker.conf.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting of broker.conf; may be repeated.")
@click.option("--brokers", metavar="N|auto", help="Number of brokers, each a process; auto: one per core.")
@click.option(
    "--replicas", type=click.IntRange(2, _REPLICAS_MAX), help="Number of replicas of one broker, with an etcd."
)
@click.option(
    "--console/--no-console",
    "with_console",
    default=True,
    envvar="ROCKETQ_CONSOLE",
    show_default=True,
    help="Start the web console beside it.",
)
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    default=CONSOLE_PORT,
    show_default=True,
    help="Port of the console on 127.0.0.1; a free one if it is taken.",
)
@click.option("--ready-file", type=click.Path(path_type=Path, dir_okay=False), help="Written (JSON) when all serve.")
@click.option("--log-file", type=click.Path(path_type=Path, dir_okay=False), help="Log here, not to stderr.")
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help="Form of log lines.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="Least severe messages to log.",
)
def up(
    data_dir: Path,
    host: str | None,
    namesrv_port: int,
    broker_port: int | None,
    config_file: Path | None,
    changes: tuple[str, ...],
    brokers: str | None,
    replicas: int | None,
    with_console: bool,
    console_port: int,
    ready_file: Path | None,
    log_file: Path | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run a NameServer and a broker. They stop on Ctrl-C or SIGTERM; messages are kept in the data directory."""
    try:
        running: list[Together] = []
        set_up_logs(log_level, log_file, log_format, lambda: running[0].log_identity if running else ("-", "-"))
        if brokers is not None and replicas is not None:
            raise ConfigError("--brokers are several brokers, --replicas several copies of one: say one of them")
        if brokers is None and replicas is None:
            flags = parse_changes(changes) | only_given(bindAddress=host, listenPort=broker_port)
            settings = gather_settings(config_file, data_dir / BROKER_NAME, flags, brokerName=BROKER_NAME)
            settings = with_small_files(settings, [data_dir / BROKER_NAME])
            warn_of_unknown(settings)
            settings = _metrics_options(settings) | settings
            together = Together(data_dir, namesrv_port, settings, config_file)
            running.append(together)
            serve(WithConsole(together, data_dir, port=console_port) if with_console else together, ready_file)
            return
        host, port = host or LOOPBACK, 10911 if broker_port is None else broker_port
        namesrv_port = namesrv_port or pick_port(host)
        options = ["--host", host, "-n", f"{host}:{namesrv_port}", "--log-level", log_level, "--log-format", log_format]
        options += [part for change in changes if not _is_secret(change) for part in ("--set", change)]
        options += ["-c", str(config_file)] if config_file is not None else []
        given = with_inner_credentials(_check_settings(config_file, data_dir, changes))
        metrics = _metrics_options(given)
        options = [part for key, value in metrics.items() for part in ("--set", f"{key}={value}")] + options
        names = _name_server(data_dir, host, namesrv_port, metrics | given)
        count = replicas if brokers is None else _count(brokers)
        assert count is not None
        _require_ports(port, count)
        if replicas is not None:
            if given.get("haProtocol", "fenced") != "fenced":
                raise ConfigError(
                    f"--replicas elect their master: haProtocol={given['haProtocol']} does not go with it"
                )
            from rocketq.testing.etcd import LocalEtcd  # noqa: PLC0415 - with it all of HTTP, which only this needs

            etcd = LocalEtcd(data_dir / "etcd")
            options = _replica_options(replicas, etcd) + options
            processes = _processes(replicas, data_dir, host, port, log_file, options, given)
            fleet: Fleet = ReplicaFleet(names, processes, etcd)
        else:
            processes = _processes(count, data_dir, host, port, log_file, options, given)
            fleet = Fleet(names, processes)
        serve(WithConsole(fleet, data_dir, port=console_port) if with_console else fleet, ready_file)
        sys.exit(FAILED if fleet.failed else 0)
    except RocketQError as error:
        click.echo(f"rocketq up: {error}", err=True)
        sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)


def _check_settings(config_file: Path | None, data_dir: Path, changes: Iterable[str]) -> dict[str, str]:
    """Settings of all brokers are checked once, before any of them starts."""
    settings = gather_settings(config_file, data_dir / BROKER_NAME, parse_changes(changes))
    warn_of_unknown(settings)
    make_broker(settings, config_file)
    return settings


def _name_server(
    data_dir: Path, host: str, port: int, settings: dict[str, str], access: AccessService | None = None
) -> NameServer:
    """With access control and metrics as the brokers' settings say, metrics at a free port."""
    folder = data_dir / "namesrv"
    config = NameServerConfig(
        host=host,
        port=port,
        kv_path=folder / "kvConfig.json",
        config_path=folder / "namesrv.properties",
        access=AccessConfig.from_java(settings),
        metrics_exporter=settings.get("metricsExporterType", "DISABLE"),
        metrics_host=settings.get("metricsPromExporterHost", ""),
        metrics_port=0,
    )
    return NameServer(config, access=access, tls=TlsSettings.read(settings).server)


def with_inner_credentials(settings: dict[str, str]) -> dict[str, str]:
    """With access control, NameServer and brokers need a common secret; one is made for this run where none is set."""
    access = AccessConfig.from_java(settings)
    if not access.is_on or access.inner_credentials is not None:
        return settings
    return settings | {"innerClientAuthenticationCredentials": random_credentials()}


def _is_secret(change: str) -> bool:
    return change.partition("=")[0].strip() in SECRET_KEYS


def _metrics_options(given: Mapping[str, str]) -> dict[str, str]:
    """Metrics and health pages on loopback, each server at a free port, unless the settings choose an exporter."""
    if "metricsExporterType" in given:
        return {}
    return {"metricsExporterType": "PROM", "metricsPromExporterHost": LOOPBACK, "metricsPromExporterPort": "0"}


def _replica_options(count: int, etcd: LocalEtcd) -> list[str]:
    """The settings of replicas; --set overrides them."""
    settings = {
        "haProtocol": "fenced",
        "haControlStore": etcd.url,
        "minInSyncReplicas": "2" if count > 2 else "1",
    }
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def _count(brokers: str) -> int:
    if brokers == "auto":
        return os.cpu_count() or 1
    if not brokers.isdigit() or not 1 <= int(brokers) <= 100:
        raise ConfigError(f"--brokers {brokers!r} is neither auto nor a number from 1 to 100")
    return int(brokers)


def _require_ports(first: int, count: int) -> None:
    """Reported before other requirements are checked."""
    last = first + PORT_STEP * (count - 1)
    if first and not PORT_MIN <= first <= last <= PORT_MAX:
        raise ConfigError(
            f"--broker-port {first}: {count} brokers listen at {first} to {last}, outside {PORT_MIN}..{PORT_MAX}"
        )


def _processes(
    count: int,
    data_dir: Path,
    host: str,
    first_port: int,
    log_file: Path | None,
    options: list[str],
    given: dict[str, str],
) -> list[BrokerProcess]:
    """Ports are ten apart, names and directories numbered; replicas have one name."""
    processes = []
    are_replicas = "haProtocol=fenced" in options
    names = [f"{BROKER_NAME}-replica-{number}" if are_replicas else f"broker-{number}" for number in range(count)]
    for number, name in enumerate(names):
        port = first_port + PORT_STEP * number if first_port else pick_port(host)
        alike = names if are_replicas else [name]
        settings = {"brokerName": BROKER_NAME if are_replicas else name}
        sized = with_small_files(given, [data_dir / each for each in alike])
        settings |= {key: value for key, value in sized.items() if key not in given}
        own = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        own += ["--port", str(port), "--data-dir", str(data_dir / name)]
        if log_file is not None:
            own += ["--log-file", str(log_file.with_name(f"{log_file.stem}-{name}{log_file.suffix}"))]
        secret = {key: given[key] for key in SECRET_KEYS if key in given}
        processes.append(BrokerProcess([*options, *own], data_dir / f"{name}.ready.json", secret))
    return processes
