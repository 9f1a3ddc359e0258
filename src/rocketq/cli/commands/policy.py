"""`rocketq policy`: what users may do (ACL 2.0)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import click

from rocketq.access.roles import ROLES, role_grants
from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import table
from rocketq.client.admin import AsyncAdmin
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.accounts import PolicyEntry, SubjectPolicies

_BROKER = click.option("-b", "--broker", help="One broker by name or address.  [default: all masters]")
_TYPE = click.option(
    "--type",
    "policy_type",
    type=click.Choice(["Custom", "Default"], case_sensitive=False),
    default="Custom",
    show_default=True,
    help="Default entries count where no Custom entry matches.",
)


@click.group(short_help="Rights of users")
def policy() -> None:
    """Policies of users: list, show, create, update, delete."""


@policy.command("list", short_help="List policies", epilog=example("rocketq policy list --resource Topic:Orders"))
@calls_cluster
@click.option("--user", "part", help="Only users whose name contains this.")
@click.option("--resource", help="Only resources that contain this.")
@_BROKER
def list_policies(caller: Caller, part: str | None, resource: str | None, broker: str | None) -> None:
    """List policies of all users."""
    found = caller.run(lambda admin: admin.access.policies(part, resource, broker=broker))
    caller.show([each.to_json() for each in found], _table(found))


@policy.command(short_help="Show a user's policies", epilog=example("rocketq policy show app"))
@calls_cluster
@click.argument("user")
@_BROKER
def show(caller: Caller, user: str, broker: str | None) -> None:
    """Show the policies of USER."""
    found = caller.run(lambda admin: admin.access.policies_of(user, broker=broker))
    caller.show(found.to_json(), _table([found]))


_ENTRY_OPTIONS: Final = (
    click.argument("user"),
    click.option(
        "--resource", "resources", multiple=True, help="Topic:NAME, Group:pre*, Cluster:*, *; may be repeated."
    ),
    click.option("--actions", help="Pub, Sub, Create, Update, Delete, Get, List or All, with commas."),
    click.option("--from", "sources", multiple=True, help="Address or network; may be repeated.  [default: any]"),
    click.option("--deny", is_flag=True, help="Deny instead of allow."),
    click.option("--role", type=click.Choice(ROLES), help="All that a producer or a consumer needs."),
    click.option("--topic", help="The topic of --role."),
    click.option("--group", help="The consumer group of --role consume."),
    _TYPE,
    _BROKER,
)


def _takes_entries(command: Any) -> Any:
    for option in reversed(_ENTRY_OPTIONS):
        command = option(command)
    return command


def _entry_examples(verb: str) -> str:
    return example(
        f"rocketq policy {verb} app --resource Topic:Orders --actions Pub,Sub",
        f"rocketq policy {verb} app --role consume --topic Orders --group billing",
    )


@policy.command(short_help="Give a user rights", epilog=_entry_examples("create"))
@calls_cluster
@_takes_entries
def create(caller: Caller, **given: Any) -> None:
    """Add entries to the policies of USER. An entry for a resource replaces the one there was."""
    _put(caller, **given)


@policy.command(short_help="Change a user's rights", epilog=_entry_examples("update"))
@calls_cluster
@_takes_entries
def update(caller: Caller, **given: Any) -> None:
    """Replace entries in the policies of USER; entries for other resources stay."""
    _put(caller, **given)


def _put(
    caller: Caller,
    *,
    user: str,
    resources: tuple[str, ...],
    actions: str | None,
    sources: tuple[str, ...],
    deny: bool,
    role: str | None,
    topic: str | None,
    group: str | None,
    policy_type: str,
    broker: str | None,
) -> None:
    ips, decision = tuple(sources) or None, "Deny" if deny else "Allow"
    if role is not None:
        if resources or actions or topic is None:
            raise click.UsageError("--role goes with --topic, and for consume with --group")
        try:
            wanted = [
                (str(grant.resource), tuple(action.value for action in grant.actions))
                for grant in role_grants(role, topic, group)
            ]
        except ConfigError as error:
            caller.fail(error)
    elif not resources or not actions:
        raise click.UsageError("give --resource and --actions, or --role")
    else:
        words = tuple(word.strip() for word in actions.split(",") if word.strip())
        wanted = [(each, words) for each in resources]
    entries = [PolicyEntry(resource=each, actions=words, source_ips=ips, decision=decision) for each, words in wanted]

    async def put(admin: AsyncAdmin) -> list[str]:
        nonlocal entries
        if role is not None:
            entries = _united(entries, await admin.access.policies_of(user, broker=broker), policy_type)
        return await admin.access.put_policies(user, entries, policy_type=policy_type, broker=broker)

    done = caller.run(put)
    lines = "\n".join(_entry_text(entry) for entry in entries)
    caller.show({"user": user, "brokers": done}, f"{user} on {', '.join(done)}:\n{lines}")


def _united(entries: list[PolicyEntry], there: SubjectPolicies, policy_type: str) -> list[PolicyEntry]:
    """A role adds actions to those a user has on a resource already, where both allow or deny from everywhere."""
    found = {
        entry.resource: entry
        for each in there.policies
        if (each.kind or "Custom").lower() == policy_type.lower()
        for entry in each.entries
    }

    def united(entry: PolicyEntry) -> PolicyEntry:
        before = found.get(entry.resource)
        if before is None or (before.decision, before.source_ips) != (entry.decision, entry.source_ips):
            return entry
        return replace(entry, actions=tuple(dict.fromkeys((*before.actions, *entry.actions))))

    return [united(entry) for entry in entries]


@policy.command(
    short_help="Take rights from a user", epilog=example("rocketq policy delete app --resource Topic:Orders")
)
@calls_cluster
@click.argument("user")
@click.option("--resource", help="Only the entry for this resource.  [default: all of the user's]")
@_TYPE
@_BROKER
def delete(caller: Caller, user: str, resource: str | None, policy_type: str, broker: str | None) -> None:
    """Delete policies of USER."""
    done = caller.run(
        lambda admin: admin.access.delete_policies(user, resource, policy_type=policy_type, broker=broker)
    )
    what = resource or "all policies"
    caller.show({"user": user, "brokers": done}, f"{what} of {user} deleted on {', '.join(done)}")


def _entry_text(entry: PolicyEntry) -> str:
    where = f" from {','.join(entry.source_ips)}" if entry.source_ips else ""
    return f"  {entry.decision} {','.join(entry.actions)} on {entry.resource}{where}"


def _table(found: Iterable[SubjectPolicies]) -> str:
    rows = [
        (
            (subject.subject or "").removeprefix("User:"),
            each.kind or "Custom",
            entry.decision or "-",
            ",".join(entry.actions),
            entry.resource or "-",
            ",".join(entry.source_ips or ()) or "any",
        )
        for subject in found
        for each in subject.policies
        for entry in each.entries
    ]
    return table(["USER", "TYPE", "DECISION", "ACTIONS", "RESOURCE", "FROM"], rows)
