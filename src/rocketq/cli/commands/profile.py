"""`rocketq profile`: named connections, so that commands need no addresses, keys and certificates."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from rocketq.cli.commands.tables import table
from rocketq.cli.connection import Profile, is_readable_by_others, load_profiles, profiles_path, save_profiles
from rocketq.cli.examples import example
from rocketq.client.name_servers import parse_name_servers
from rocketq.errors import ConfigError, RocketQError

USAGE, NOT_FOUND = 2, 3


@click.group(short_help="Saved connections to clusters")
def profile() -> None:
    """Saved connections to clusters: add, list, show, remove."""


@profile.command(
    short_help="Save a connection",
    epilog=example(
        "rocketq profile add prod -n mq1:9876,mq2:9876 --access-key ops --ca ca.pem",
        "rocketq topic list --profile prod",
    ),
)
@click.argument("name")
@click.option("-n", "--namesrv", "name_servers", required=True, help="NameServers, HOST:PORT;HOST:PORT.")
@click.option("--access-key", help="User that signs requests; its secret is asked for.")
@click.option("--secret-key", help="Its secret. Arguments are seen by others: leave it out to be asked.")
@click.option("--secret-stdin", is_flag=True, help="Read the secret from standard input.")
@click.option("--tls/--no-tls", "tls", default=None, help="Encrypt connections.  [default: with --ca or --cert]")
@click.option("--ca", metavar="FILE", help="Trusted certificates (PEM).")
@click.option("--cert", metavar="FILE", help="Client certificate (PEM).")
@click.option("--key", metavar="FILE", help="Key of --cert.")
def add(
    name: str,
    name_servers: str,
    access_key: str | None,
    secret_key: str | None,
    secret_stdin: bool,
    tls: bool | None,
    ca: str | None,
    cert: str | None,
    key: str | None,
) -> None:
    """Save the connection NAME, or replace it. The file is readable by its owner alone."""
    if access_key and secret_stdin:
        secret_key = sys.stdin.readline().rstrip("\r\n")
    elif access_key and not secret_key:
        secret_key = click.prompt("Secret key", hide_input=True, err=True)
    made = Profile(
        name_servers=name_servers, access_key=access_key, secret_key=secret_key, tls=tls, ca=ca, cert=cert, key=key
    )
    try:
        parse_name_servers(name_servers)
        _ = made.credentials, made.client_tls
        save_profiles(load_profiles() | {name: made})
    except RocketQError as error:
        _fail("add", error)
    click.echo(f"{name} is saved in {profiles_path()}")


@profile.command("list", short_help="List saved connections", epilog=example("rocketq profile list"))
def list_profiles() -> None:
    """List saved connections, without secrets."""
    try:
        found = load_profiles()
    except ConfigError as error:
        _fail("list", error)
    if is_readable_by_others():
        click.echo(f"warning: {profiles_path()} is readable by other users of this machine: chmod 600", err=True)
    rows = [
        (name, each.name_servers or "-", each.access_key or "-", "yes" if each.tls or each.ca or each.cert else "no")
        for name, each in found.items()
    ]
    click.echo(table(["PROFILE", "NAMESERVERS", "ACCESS KEY", "TLS"], rows))


@profile.command(short_help="Show a saved connection", epilog=example("rocketq profile show prod"))
@click.argument("name")
def show(name: str) -> None:
    """Show the connection NAME, without its secret."""
    try:
        found = load_profiles().get(name)
    except ConfigError as error:
        _fail("show", error)
    if found is None:
        _missing("show", name)
    members = found.to_json() | ({"secretKey": "******"} if found.secret_key else {})
    for key, value in members.items():
        click.echo(f"{key}={str(value).lower() if isinstance(value, bool) else value}")


@profile.command(short_help="Remove a saved connection", epilog=example("rocketq profile remove prod"))
@click.argument("name")
def remove(name: str) -> None:
    """Remove the connection NAME."""
    try:
        found = load_profiles()
        if name not in found:
            _missing("remove", name)
        save_profiles({key: each for key, each in found.items() if key != name})
    except ConfigError as error:
        _fail("remove", error)
    click.echo(f"{name} is removed")


def _fail(verb: str, error: RocketQError) -> NoReturn:
    click.echo(f"rocketq profile {verb}: {error}", err=True)
    sys.exit(USAGE)


def _missing(verb: str, name: str) -> NoReturn:
    click.echo(f"rocketq profile {verb}: there is no profile {name} in {profiles_path()}", err=True)
    sys.exit(NOT_FOUND)
