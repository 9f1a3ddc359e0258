"""`rocketq console`: the web console, its users, tokens and audit log."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from rocketq.cli.connection import NAME_SERVER, Profile, resolve
from rocketq.cli.examples import example
from rocketq.cli.logs import LEVELS, set_up_logs
from rocketq.cli.serving import serve
from rocketq.client.name_servers import parse_name_servers
from rocketq.client.session import SessionConfig
from rocketq.errors import ConfigError, RocketQError

FAILED, USAGE = 1, 2
DATA_DIR = Path.home() / ".rocketq" / "console"
PORT = 9880
ROLES = ("viewer", "operator", "admin")


@click.group(
    invoke_without_command=True,
    epilog=example(
        "rocketq console -n 127.0.0.1:9876",
        "rocketq console -n prod=10.0.0.1:9876 -n test=10.0.1.1:9876 --read-only",
        "rocketq console -n 10.0.0.1:9876 --host 0.0.0.0 --users users.json --cert c.pem --key k.pem",
    ),
)
@click.option(
    "-n",
    "--namesrv",
    "targets",
    multiple=True,
    envvar="NAMESRV_ADDR",
    metavar="[NAME=]HOST:PORT",
    help=f"NameServers of a cluster; repeat it for more clusters.  [default: {NAME_SERVER}]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 is any free port.")
@click.option("--base-path", default="/", show_default=True, help="The path behind a proxy, such as /mq/.")
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), default=DATA_DIR, help="History and audit log."
)
@click.option("--read-only", is_flag=True, help="Serve no route that changes anything.")
@click.option("--login", type=click.Choice(["none", "users", "cluster"]), help="How people sign in.  [default: none]")
@click.option("--users", type=click.Path(path_type=Path, dir_okay=False), help="File of users; implies --login users.")
@click.option("--cert", type=click.Path(path_type=Path, exists=True), help="TLS certificate (PEM).")
@click.option("--key", type=click.Path(path_type=Path, exists=True), help="TLS key (PEM).")
@click.option("--insecure", is_flag=True, help="Serve other addresses without login or TLS.")
@click.option("--host-name", "host_names", multiple=True, help="Another name in the Host header; may be repeated.")
@click.option("--proxy-user-header", help="Header in which a proxy names the user, such as X-Forwarded-User.")
@click.option("--proxy-addr", "proxy_addrs", multiple=True, help="Address of that proxy; may be repeated.")
@click.option("--proxy-role", type=click.Choice(ROLES), default="viewer", show_default=True, help="Role of its users.")
@click.option("--private-webhooks", is_flag=True, help="Allow webhooks to loopback and link-local addresses.")
@click.option("--map", "maps", multiple=True, metavar="ADDR=ADDR", help="Connect to another address; may be repeated.")
@click.option(
    "--mask", "masks", multiple=True, metavar="TOPIC=FIELDS", help="JSON fields viewers do not see: a,b or *."
)
@click.option("--access-key", help="User of the sampler, where access is controlled.  [env: ROCKETQ_ACCESS_KEY]")
@click.option("--secret-key", help="Its secret; better in the environment.  [env: ROCKETQ_SECRET_KEY]")
@click.option("--profile", help="Saved connection to the clusters.  [env: ROCKETQ_PROFILE]")
@click.option("--cluster-tls/--no-cluster-tls", default=None, help="TLS to the clusters.  [env: ROCKETQ_TLS]")
@click.option("--cluster-ca", metavar="FILE", help="Trusted certificates of the clusters (PEM).  [env: ROCKETQ_CA]")
@click.option("--sample", "sample_s", type=click.FloatRange(1, 300), default=5.0, show_default=True, help="Seconds.")
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written when it serves: JSON with the address.")
@click.option("--with-parent", is_flag=True, hidden=True)
@click.option("--log-file", type=click.Path(path_type=Path), help="Default: stderr.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Least level to log.")
@click.pass_context
def console(
    context: click.Context,
    /,
    ready_file: Path | None,
    with_parent: bool,
    log_file: Path | None,
    log_level: str,
    **given: Any,
) -> None:
    """Serve the web console of clusters."""
    if context.invoked_subcommand is not None:
        return
    try:
        set_up_logs(log_level, log_file)
        serve(make_server(**given), ready_file, with_parent=with_parent)
    except RocketQError as error:
        click.echo(f"rocketq console: {error}", err=True)
        sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)


def make_server(
    *,
    targets: tuple[str, ...],
    host: str,
    port: int,
    base_path: str,
    data: Path,
    read_only: bool,
    login: str | None,
    users: Path | None,
    cert: Path | None,
    key: Path | None,
    insecure: bool,
    host_names: tuple[str, ...],
    proxy_user_header: str | None,
    proxy_addrs: tuple[str, ...],
    proxy_role: str,
    private_webhooks: bool,
    maps: tuple[str, ...],
    masks: tuple[str, ...],
    access_key: str | None,
    secret_key: str | None,
    profile: str | None,
    cluster_tls: bool | None,
    cluster_ca: str | None,
    sample_s: float,
) -> Any:
    """A ConsoleServer of these options; ConfigError for options that contradict each other."""
    try:
        from rocketq.console.config import ClusterTarget, ConsoleConfig, Login, role_of  # noqa: PLC0415
        from rocketq.console.server import ConsoleServer  # noqa: PLC0415 - FastAPI is an extra
    except ImportError as error:
        raise ConfigError(f"the console needs pip install 'rocketq[console]': {error.name} is missing") from None
    given = Profile(access_key=access_key, secret_key=secret_key, tls=cluster_tls, ca=cluster_ca)
    reached = resolve(given, profile, os.environ)
    maps_of = dict(_pair(text, "--map") for text in maps)
    session = SessionConfig(credentials=reached.credentials, tls=reached.client_tls, addr_map=maps_of)
    clusters = []
    for number, text in enumerate(targets or (reached.name_servers or NAME_SERVER,)):
        name, equals, addrs = text.rpartition("=")
        names = name if equals else "default" if not number else f"cluster-{number + 1}"
        clusters.append(ClusterTarget(name=names, name_servers=tuple(parse_name_servers(addrs)), session=session))
    if len({one.name for one in clusters}) < len(clusters):
        raise ConfigError("two clusters have the same name")
    wanted = Login(login) if login is not None else Login.USERS if users is not None else Login.NONE
    pairs = dict(_pair(text, "--mask") for text in masks)
    config = ConsoleConfig(
        clusters=tuple(clusters),
        data_dir=data,
        host=host,
        port=port,
        base_path=base_path,
        read_only=read_only,
        login=wanted,
        users_file=users,
        insecure=insecure,
        cert=cert,
        key=key,
        host_names=host_names,
        proxy_user_header=proxy_user_header,
        proxy_addrs=proxy_addrs,
        proxy_role=role_of(proxy_role),
        private_webhooks=private_webhooks,
        masks={topic: () if fields == "*" else tuple(fields.split(",")) for topic, fields in pairs.items()},
        sample_s=sample_s,
    )
    return ConsoleServer(config)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ConfigError(f"{option} {text!r} is not NAME=VALUE")
    return name, value


@console.command("token", epilog=example("rocketq console token ci --role operator --days 30"))
@click.argument("name")
@click.option("--users", type=click.Path(path_type=Path), help="File of users.  [default: users.json of the console]")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="What it may do.")
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="How long it is valid.")
def token(name: str, users: Path | None, role: str, days: int) -> None:
    """Make a token for the REST API. It is printed once; the file keeps a hash."""
    from rocketq.console.accounts import UsersFile  # noqa: PLC0415 - only the console's own verbs need it
    from rocketq.console.config import role_of  # noqa: PLC0415

    file = UsersFile(users or DATA_DIR / "users.json")
    click.echo(file.add_token(name, role_of(role), time.time() + days * 86_400))


@console.command("user", epilog=example("rocketq console user ann --role operator --users users.json"))
@click.argument("name")
@click.option("--users", type=click.Path(path_type=Path), required=True, help="File of users; made if it is missing.")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="What the user may do.")
@click.password_option(help="Asked for when it is not given.")
def user(name: str, users: Path, role: str, password: str) -> None:
    """Add or change a user in a file."""
    from rocketq.console.accounts import UsersFile  # noqa: PLC0415 - only the console's own verbs need it
    from rocketq.console.config import role_of  # noqa: PLC0415

    UsersFile(users).set_user(name, password, role_of(role))
    click.echo(f"{name} is {role} in {users}")


@console.group("audit")
def audit() -> None:
    """The log of changes: verify."""


@audit.command("verify", epilog=example("rocketq console audit verify"))
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA_DIR, help="Of the console.")
def verify_audit(data: Path) -> None:
    """Check the chain of hashes. Exit code 1 when a line was changed, removed or added."""
    from rocketq.console.audit import FILE_NAME, AuditError, verify  # noqa: PLC0415

    try:
        count = verify(data / FILE_NAME)
    except AuditError as error:
        click.echo(f"rocketq console audit verify: {error}", err=True)
        sys.exit(FAILED)
    click.echo(f"{count} entries, the chain is intact")
