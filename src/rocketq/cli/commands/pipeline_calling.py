"""What all pipelines share: how Spark is started, how progress is shown, how Spark's errors become one line."""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from rocketq.cli.commands.calling import UNREACHABLE, USAGE, Caller, calls_cluster, exit_code
from rocketq.cli.commands.pipeline_progress import Tell, shown_progress
from rocketq.errors import RocketQError
from rocketq.spark import errors
from rocketq.spark.errors import AwayError, OptionError, SparkError
from rocketq.spark.options import NAME_SERVER_KEYS, Options, parse_connection, parse_source, read_options_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketq.spark.pipelines.reports import Report

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")
_NAME_SERVERS: Final = frozenset(key.lower() for key in NAME_SERVER_KEYS)
_OURS: Final = re.compile(r"^(?:\S+: )?rocketq\.spark\.errors\.(\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How one pipeline was called."""

    caller: Caller
    master: str | None
    conf: Mapping[str, str]
    options: Mapping[str, str]

    @property
    def source(self) -> dict[str, str]:
        """Options of a read or write for the connection to brokers."""
        return {"nameServer": self.caller.name_servers, **self.options}

    def read_options(self, wanted: Mapping[str, str], *, streaming: bool = False) -> dict[str, str]:
        """Options of a read, checked before Spark starts."""
        options = {**wanted, **self.source}
        try:
            parse_source(options, streaming=streaming)
        except OptionError as fault:
            self.fail(fault)
        return options

    def run(self, label: str, work: Callable[[SparkSession], _Result]) -> _Result:
        """The result of work on Spark; what keeps it from succeeding ends the command with one line."""
        return self.run_told(label, "tasks", lambda spark, _: work(spark))

    def run_told(self, label: str, unit: str, work: Callable[[SparkSession, Tell], _Result]) -> _Result:
        """The same for work that reports its progress and unit."""
        try:
            _require_spark()
            spark, ours = self._session(label)
            try:
                with shown_progress(spark, label, unit, shown=not self.caller.as_json) as tell:
                    return work(spark, tell)
            finally:
                if ours:
                    spark.stop()
        except RocketQError as error:
            self.fail(error)
        except click.ClickException:
            raise
        except Exception as error:  # of Spark: pages of it, and one line for people
            self.fail(told(error))

    def fail(self, error: RocketQError) -> NoReturn:
        self.caller.fail(error, _exit_code(error))

    def _session(self, label: str) -> tuple[SparkSession, bool]:
        """And whether it is ours to stop."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - costs a second

        from rocketq.spark.sessions import session  # noqa: PLC0415

        running = SparkSession.getActiveSession()
        remote = self.master if self.master and self.master.startswith("sc://") else None
        master = None if remote else self.master
        made = session(f"rocketq-{label}", master=master, remote=remote, conf=self.conf)
        logging.getLogger("pyspark").setLevel(logging.CRITICAL)
        return made, running is None


def runs_pipeline(command: _Command) -> _Command:
    """The options every pipeline on a cluster has; the command gets a `Pipeline` first."""

    @calls_cluster
    @_spark_options
    @click.option(
        "--option",
        "options",
        multiple=True,
        metavar="KEY=VALUE",
        help='An option of format("rocketmq"), such as rocketmq.tls.enable=true; may be repeated.',
    )
    @click.option(
        "--options-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The same from a file, a KEY=VALUE per line: keys and passwords are not for command lines.",
    )
    @functools.wraps(command)
    def wrapped(
        caller: Caller,
        master: str | None,
        conf: tuple[str, ...],
        options: tuple[str, ...],
        options_file: Path | None,
        **given: Any,
    ) -> Any:
        try:
            kept = read_options_file(options_file) if options_file is not None else {}
        except OptionError as fault:
            raise click.BadParameter(str(fault), param_hint="--options-file") from None
        made = kept | _pairs("--option", options)
        caller, rest = _let_in(caller, made)
        return command(Pipeline(caller, master, _pairs("--conf", conf), rest), **given)

    return wrapped  # type: ignore[return-value]


def _let_in(caller: Caller, options: Mapping[str, str]) -> tuple[Caller, dict[str, str]]:
    """The caller with what options say on how brokers are reached, and the options without NameServers: what is asked
    before Spark starts, and Spark, go to the same place with the same keys and certificates."""
    given = {key.lower() for key in options}
    names = {} if given & _NAME_SERVERS else {"nameServer": caller.name_servers}
    options = _own_options(caller, given) | dict(options)
    try:
        found = parse_connection(Options({**names, **options}))
    except OptionError as fault:
        caller.fail(fault, USAGE)
    rest = {key: value for key, value in options.items() if key.lower() not in _NAME_SERVERS}
    return replace(caller, name_servers=found.name_servers, tls=found.tls, credentials=found.credentials), rest


def _own_options(caller: Caller, given: set[str]) -> dict[str, str]:
    """Credentials and certificates of the caller as options of Spark, where options say nothing of either."""
    own: dict[str, str] = {}
    if caller.credentials is not None and not any(
        key.startswith(("rocketmq.accesskey", "rocketmq.secretkey")) for key in given
    ):
        own["rocketmq.accessKey"] = caller.credentials.access_key
        own["rocketmq.secretKey"] = caller.credentials.secret_key
    if caller.tls is not None and not any(key.startswith("rocketmq.tls.") for key in given):
        paths = {"trustPath": caller.tls.trust_path, "certPath": caller.tls.cert_path, "keyPath": caller.tls.key_path}
        own["rocketmq.tls.enable"] = "true"
        own |= {f"rocketmq.tls.{name}": str(path) for name, path in paths.items() if path is not None}
    return own


def runs_offline(command: _Command) -> _Command:
    """The options of a pipeline that talks to no broker."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @_spark_options
    @functools.wraps(command)
    def wrapped(as_json: bool, master: str | None, conf: tuple[str, ...], **given: Any) -> Any:
        return command(Pipeline(Caller("", 0, as_json), master, _pairs("--conf", conf), {}), **given)

    return wrapped  # type: ignore[return-value]


def _spark_options(command: _Command) -> _Command:
    master = click.option(
        "--master",
        metavar="URL",
        help="Where it runs: local[2], spark://HOST:PORT, yarn, sc://HOST:PORT.  [default: here, on all cores]",
    )
    conf = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    return master(conf(command))


def out_option(what: str) -> Callable[[_Command], _Command]:
    """The folder for rows; Spark writes only to a folder that it creates."""
    return click.option(
        "--out",
        metavar="DIR",
        callback=_new_folder,
        help=f"Keep all {what} as Parquet files there (a folder that is not there).",
    )


def report_option(command: _Command) -> _Command:
    return click.option(
        "--report",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_report_path,
        help="Write tables and plots to FILE.html, or the plot to FILE.png.",
        metavar="FILE",
    )(command)


def write_report(report: Report, path: Path | None, *, quiet: bool) -> None:
    from rocketq.spark.pipelines.reports import save  # noqa: PLC0415

    if path is not None:
        save(report, path)
        click.echo(f"report: {path}", err=quiet)


def told(error: Exception) -> RocketQError:
    """One line of a Spark error: ours where Python raised it, otherwise the first line of Spark's."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        name, line = ours[-1]
        kind = getattr(errors, name, SparkError)
        return kind(line)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return SparkError(lines[0] if lines else type(error).__name__)


def _exit_code(error: RocketQError) -> int:
    if isinstance(error, AwayError):
        return UNREACHABLE
    return USAGE if isinstance(error, OptionError) else exit_code(error)


def _require_spark() -> None:
    if missing := [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]:
        raise SparkError(f"{' and '.join(missing)} is not installed: pip install 'rocketq[spark]'")


def _new_folder(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and "://" not in value and Path(value).exists():
        raise click.BadParameter(f"{value} is there already: name a folder that is not")
    return value


def _report_path(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refused before the work, not after it."""
    if value is None:
        return None
    if value.suffix.lower() not in (".html", ".png"):
        raise click.BadParameter(f"{value.name!r} ends neither with .html nor with .png")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("matplotlib is not installed: pip install 'rocketq[spark]'")
    return value


def _pairs(name: str, texts: tuple[str, ...]) -> dict[str, str]:
    if bad := [text for text in texts if "=" not in text]:
        raise click.BadParameter(f"{bad[0].split('=')[0]!r} is not KEY=VALUE", param_hint=name)
    return {key.strip(): value.strip() for key, value in (text.split("=", 1) for text in texts)}
