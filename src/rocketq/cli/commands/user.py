"""`rocketq user`: who may sign requests (ACL 2.0)."""

from __future__ import annotations

import sys

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example, plain
from rocketq.cli.commands.tables import table, time_text
from rocketq.protocol.bodies.accounts import User

_BROKER = click.option("-b", "--broker", help="One broker by name or address.  [default: all masters]")


@click.group(short_help="Users of a secured cluster")
def user() -> None:
    """Users of a secured cluster: list, show, create, update, delete."""


@user.command("list", short_help="List users", epilog=example("rocketq user list", "rocketq user list --name app"))
@calls_cluster
@click.option("--name", "part", help="Only users whose name contains this.")
@_BROKER
def list_users(caller: Caller, part: str | None, broker: str | None) -> None:
    """List users. Passwords are never shown."""
    found = caller.run(lambda admin: admin.access.users(part, broker=broker))
    caller.show([_shown(each) for each in found], _table(found))


@user.command(short_help="Show a user", epilog=example("rocketq user show app"))
@calls_cluster
@click.argument("name")
@_BROKER
def show(caller: Caller, name: str, broker: str | None) -> None:
    """Show the user NAME."""
    found = caller.run(lambda admin: admin.access.user(name, broker=broker))
    caller.show(_shown(found), _table([found]))


@user.command(
    short_help="Create a user",
    epilog=example("rocketq user create app", "echo $PASSWORD | rocketq user create app --password-stdin"),
)
@calls_cluster
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input instead of the terminal.")
@click.option("--super", "super_user", is_flag=True, help="A super user may do everything.")
@_BROKER
def create(caller: Caller, name: str, password_stdin: bool, super_user: bool, broker: str | None) -> None:
    """Create the user NAME. The password is asked for: arguments of commands are seen by others."""
    password = _password(password_stdin)
    done = caller.run(lambda admin: admin.access.create_user(name, password, super_user=super_user, broker=broker))
    caller.show({"user": name, "brokers": done}, f"{name} is created on {', '.join(done)}")


@user.command(
    short_help="Change a user",
    epilog=example(
        "rocketq user update app --disable",
        "rocketq user update app --password --keep-old",
        "rocketq user update app --drop-old",
    ),
)
@calls_cluster
@click.argument("name")
@click.option("--password", "asks", is_flag=True, help="Ask for a new password.")
@click.option("--password-stdin", is_flag=True, help="Read a new password from standard input.")
@click.option("--keep-old", is_flag=True, help="The old password stays valid beside the new one, for rotation.")
@click.option("--drop-old", is_flag=True, help="Only the newer of two passwords stays valid.")
@click.option("--super/--normal", "super_user", default=None, help="Make it a super user, or a normal one.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it may do anything at all.")
@_BROKER
def update(
    caller: Caller,
    name: str,
    asks: bool,
    password_stdin: bool,
    keep_old: bool,
    drop_old: bool,
    super_user: bool | None,
    enabled: bool | None,
    broker: str | None,
) -> None:
    """Change the user NAME; what is not given stays. Works at once, on open connections too."""
    if keep_old and not (asks or password_stdin):
        raise click.UsageError("--keep-old goes with --password or --password-stdin")
    if drop_old and (asks or password_stdin):
        raise click.UsageError("a new password drops the old one by itself; --keep-old keeps it")
    if not (asks or password_stdin or drop_old) and super_user is None and enabled is None:
        raise click.UsageError("nothing is changed: give --password, --super, --disable or another option")
    password = _password(password_stdin) if asks or password_stdin else None
    keep = True if keep_old else False if drop_old else None
    done = caller.run(
        lambda admin: admin.access.update_user(
            name, password=password, keep_secret=keep, super_user=super_user, enabled=enabled, broker=broker
        )
    )
    caller.show({"user": name, "brokers": done}, f"{name} is changed on {', '.join(done)}")


@user.command(short_help="Delete a user", epilog=example("rocketq user delete app"))
@calls_cluster
@click.argument("name")
@_BROKER
def delete(caller: Caller, name: str, broker: str | None) -> None:
    """Delete the user NAME with its policies."""
    done = caller.run(lambda admin: admin.access.delete_user(name, broker=broker))
    caller.show({"user": name, "brokers": done}, f"{name} is deleted on {', '.join(done)}")


def _password(from_stdin: bool) -> str:
    if from_stdin:
        found = sys.stdin.readline().rstrip("\r\n")
    else:
        found = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not found.strip():
        raise click.UsageError("the password is blank")
    return str(found)


def _shown(found: User) -> dict[str, object]:
    members = plain(found)
    return {name: value for name, value in members.items() if name not in ("password", "keep_secret")}


def _table(found: list[User]) -> str:
    rows = [
        (each.username, each.kind or "-", each.status or "-", each.secret_count or 1, time_text(each.last_used_ms))
        for each in found
    ]
    return table(["USER", "TYPE", "STATUS", "SECRETS", "LAST USED"], rows)
