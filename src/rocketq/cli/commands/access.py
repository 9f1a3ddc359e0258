"""`rocketq access`: check files of accounts, and explain decisions."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rocketq.access import plain
from rocketq.access.addresses import AddressPattern
from rocketq.access.config import MASK
from rocketq.access.plain import PlainRules, Verdict, make_account
from rocketq.access.policies import Policies, PolicyType, User, make_entry
from rocketq.access.rights import RIGHTS, Action, Need, Resource, ResourceKind, group_need, topic_need
from rocketq.access.roles import Step, consumer_steps
from rocketq.cli.commands.calling import FAILED, USAGE, Caller, calls_cluster, example
from rocketq.cli.commands.tables import table
from rocketq.client.admin import AsyncAdmin
from rocketq.client.errors import NotFoundError
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.accounts import AccessConfig, SubjectPolicies
from rocketq.protocol.codes import code_name
from rocketq.protocol.failures import AccessDeniedError, BrokerError

_ACTIONS = [action.value.lower() for action in Action]
_Decide = Callable[[int, tuple[Need, ...]], Verdict]


@click.group(short_help="Check accounts, explain decisions")
def access() -> None:
    """Access control: check, explain, rights."""


@access.command(short_help="Check a file of accounts", epilog=example("rocketq access check conf/plain_acl.yml"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def check(file: Path) -> None:
    """Check FILE, a plain_acl.yml, without a broker: errors with their lines, then warnings and a summary."""
    from rocketq.access.plain_files import parse_plain_file  # noqa: PLC0415 - with it YAML

    try:
        found = parse_plain_file(file.read_text(encoding="utf-8"), str(file), lambda sealed: MASK * 2)
    except OSError as error:
        click.echo(f"{file}: {error.strerror}", err=True)
        sys.exit(USAGE)
    except (ConfigError, UnicodeDecodeError) as error:
        click.echo(str(error), err=True)
        sys.exit(FAILED)
    if file.stat().st_mode & 0o077:
        click.echo(f"warning: {file} is readable by other users of this machine: chmod 600", err=True)
    for pattern in found.white_addresses:
        if pattern.everything:
            click.echo(f"warning: globalWhiteRemoteAddresses {pattern.text} lets everybody do everything", err=True)
    for account in found.accounts:
        for text in (*account.topic_perms, *account.group_perms, account.default_topic, account.default_group):
            word = (text or "DENY").rpartition("=")[2]
            if word not in plain.PERMISSIONS:
                click.echo(f"warning: {account.access_key}: {word!r} of {text!r} counts as DENY", err=True)
    admins = sum(account.admin for account in found.accounts)
    click.echo(f"{file}: {len(found.accounts)} accounts, {admins} of them admins")


@access.command(short_help="Show what each request needs", epilog=example("rocketq access rights"))
def rights() -> None:
    """Show the table of request codes and the rights they need."""
    rows = [(code, code_name(code), row.describe()) for code, row in sorted(RIGHTS.items())]
    click.echo(table(["CODE", "REQUEST", "NEEDS"], rows))


@access.command(
    short_help="Explain a decision",
    epilog=example(
        "rocketq access explain --user app --action pub --topic Orders",
        "rocketq access explain --user app --topic Orders --consumer billing --from 10.0.0.9",
    ),
)
@calls_cluster
@click.option("--user", required=True, help="User of ACL 2.0, or access key of ACL 1.0.")
@click.option("--action", type=click.Choice(_ACTIONS, case_sensitive=False), help="What it does.")
@click.option("--topic", help="With which topic.")
@click.option("--group", help="With which consumer group.")
@click.option("--cluster", help="With which cluster.")
@click.option("--consumer", help="Every step that a consumer of this group needs with --topic.")
@click.option("--from", "source", default="127.0.0.1", show_default=True, help="The source address.")
@click.option("-b", "--broker", help="A broker by name or address.  [default: the first master]")
def explain(
    caller: Caller,
    user: str,
    action: str | None,
    topic: str | None,
    group: str | None,
    cluster: str | None,
    consumer: str | None,
    source: str,
    broker: str | None,
) -> None:
    """Show whether a user may do something, the rule that decides, and the rules it beats. Exit code 1: denied."""
    try:
        ipaddress.ip_address(source)
    except ValueError:
        raise click.BadParameter(f"{source} is not an address", param_hint="--from") from None
    steps = _steps(action, topic, group, cluster, consumer)
    decide = caller.run(lambda admin: _decider(admin, user, source, broker))
    verdicts = [(step, decide(step.code, step.needs)) for step in steps]
    allowed = all(verdict.allowed for _, verdict in verdicts)
    value = {"user": user, "from": source, "allowed": allowed, "steps": [_shown(*each) for each in verdicts]}
    caller.show(value, _text(user, source, verdicts, with_beaten=consumer is None))
    if not allowed:
        sys.exit(FAILED)


def _steps(
    action: str | None, topic: str | None, group: str | None, cluster: str | None, consumer: str | None
) -> tuple[Step, ...]:
    if consumer is not None:
        if topic is None or action or group or cluster:
            raise click.UsageError("--consumer goes with --topic alone")
        return consumer_steps(topic, consumer)
    if action is None or (topic, group, cluster).count(None) == 3:
        raise click.UsageError("give --action and --topic, --group or --cluster; or --consumer and --topic")
    actions = frozenset({next(each for each in Action if each.value.lower() == action.lower())})
    needs = [] if topic is None else [topic_need(topic, actions)]
    needs += [] if group is None else [group_need(group, actions)]
    needs += [] if cluster is None else [Need(Resource(ResourceKind.CLUSTER, cluster), actions)]
    return tuple(Step(f"{action} {need.resource}", 0, (need,)) for need in needs)


async def _decider(admin: AsyncAdmin, user: str, source: str, broker: str | None) -> _Decide:
    """By users and policies, or by the accounts of a broker with ACL 1.0."""
    try:
        found = await admin.access.user(user, broker=broker)
    except AccessDeniedError:
        raise
    except BrokerError:
        return _plain_decider(await admin.access.accounts(broker=broker), user, source)
    rules = _policies(await admin.access.policies_of(user, broker=broker))
    who = User(user, (), found.kind == "Super", found.status != "disable")

    def decide(code: int, needs: tuple[Need, ...]) -> Verdict:
        if not who.enabled:
            return Verdict(False, "user is disabled", f"User:{user} is disabled.")
        if who.is_super:
            return Verdict(True, "super user")
        verdicts = [rules.decide(need, source) for need in needs]
        return next((verdict for verdict in verdicts if not verdict.allowed), verdicts[-1])

    return decide


def _policies(body: SubjectPolicies) -> Policies:
    found = Policies()
    for each in body.policies:
        entries = [make_entry(one.resource, one.actions, one.source_ips, one.decision) for one in each.entries]
        found = found.with_entries(PolicyType(each.kind or "Custom"), entries)
    return found


def _plain_decider(config: AccessConfig, user: str, source: str) -> _Decide:
    account = next((each for each in config.accounts if each.access_key == user), None)
    if account is None:
        raise NotFoundError("account", user)
    made = make_account(
        user,
        MASK * 2,
        white_address=account.white_addr or "",
        admin=account.admin,
        default_topic=account.default_topic_perm,
        default_group=account.default_group_perm,
        topic_perms=account.topic_perms or (),
        group_perms=account.group_perms or (),
    )
    white = tuple(AddressPattern.parse(text) for text in config.white_addrs)
    rules = PlainRules(white, {user: made})
    return lambda code, needs: plain.decide(rules, made, source, code, needs)


def _shown(step: Step, verdict: Verdict) -> dict[str, Any]:
    return {
        "step": step.name,
        "needs": [f"{'/'.join(sorted(need.actions))} {need.resource}" for need in step.needs],
        "allowed": verdict.allowed,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "beats": list(verdict.beaten),
    }


def _text(user: str, source: str, verdicts: list[tuple[Step, Verdict]], *, with_beaten: bool) -> str:
    rows = [
        (step.name, "allow" if verdict.allowed else "DENY", verdict.rule, verdict.reason or "-")
        for step, verdict in verdicts
    ]
    text = f"{user} from {source}\n" + table(["STEP", "DECISION", "RULE", "REASON"], rows)
    beaten = [rule for _, verdict in verdicts for rule in verdict.beaten] if with_beaten else []
    return text + "".join(f"\n  beats  {rule}" for rule in beaten)
