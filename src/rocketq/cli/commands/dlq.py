"""`rocketq dlq`: dead letters: list, show, edit, replay, export."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from rocketq.cli.commands.calling import FAILED, NOT_FOUND, Caller, calls_cluster, example, plain
from rocketq.cli.commands.message_views import message_json, message_text
from rocketq.cli.commands.tables import NONE, table, time_text
from rocketq.cli.commands.times import moment
from rocketq.cli.commands.watching import watchable
from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.dead_letters import (
    TO_ORIGIN,
    LetterEdit,
    LetterRef,
    ReplayPlan,
    ReplayResult,
    ReplayStatus,
    letter_ref,
    origin_of,
    retries_of,
)
from rocketq.client.core.search import Direction, SearchProgress, SearchQuery
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.names import dlq_topic

_GOOD = (ReplayStatus.SENT, ReplayStatus.WOULD_SEND)


def parse_letter(text: str) -> LetterRef:
    """`BROKER:QUEUE@OFFSET` as an argument's value."""
    place, _, offset = text.rpartition("@")
    broker, _, queue = place.rpartition(":")
    if not (broker and queue.isdigit() and offset.isdigit()):
        raise click.BadParameter(f"{text!r} is not BROKER:QUEUE@OFFSET")
    return LetterRef(broker=broker, queue_id=int(queue), offset=int(offset))


def letter_name(letter: LetterRef) -> str:
    return f"{letter.broker}:{letter.queue_id}@{letter.offset}"


@click.group()
def dlq() -> None:
    """Inspect and replay dead letters."""


@dlq.command("list", epilog=example("rocketq dlq list", "rocketq dlq list billing --since 1d"))
@calls_cluster
@watchable
@click.argument("group", required=False)
@click.option("--since", type=moment, metavar="MOMENT", help="Dead letters stored from then on.")
@click.option(
    "--count", "count_max", type=click.IntRange(1), default=100, show_default=True, help="Most dead letters to list."
)
def list_letters(caller: Caller, group: str | None, since: int | None, count_max: int) -> None:
    """List dead letters. Without GROUP: the groups that have any; with GROUP: its newest ones."""
    if group is None:
        groups = caller.run(lambda admin: admin.dead_letters.groups())
        rows = [(one.group, one.count, time_text(one.newest_ms)) for one in groups]
        caller.show(groups, table(["GROUP", "DEAD LETTERS", "NEWEST"], rows))
        return
    name = group
    letters = caller.run(lambda admin: admin.dead_letters.list(name, count_max=count_max, since_ms=since))
    caller.show([_letter_json(one) for one in letters], _letters_text(letters))


def _letter_json(letter: StoredMessage) -> dict[str, Any]:
    return {
        "letter": letter_name(letter_ref(letter)),
        "origin_topic": origin_of(letter),
        "retries": retries_of(letter),
        **message_json(letter),
    }


def _letters_text(letters: tuple[StoredMessage, ...]) -> str:
    rows = [
        (
            letter_name(letter_ref(one)),
            time_text(one.store_ms),
            origin_of(one) or NONE,
            one.tag or NONE,
            " ".join(one.keys) or NONE,
            retries_of(one),
        )
        for one in letters
    ]
    return table(["LETTER", "DIED", "ORIGIN TOPIC", "TAG", "KEYS", "RETRIES"], rows) if rows else "none"


@dlq.command(epilog=example("rocketq dlq show billing broker-0:0@17"))
@calls_cluster
@click.argument("group")
@click.argument("letter", type=parse_letter, metavar="BROKER:QUEUE@OFFSET")
def show(caller: Caller, group: str, letter: LetterRef) -> None:
    """Show one dead letter of GROUP."""
    found = caller.run(lambda admin: admin.dead_letters.get(group, letter))
    caller.show(_letter_json(found), message_text(found))


@dlq.command(epilog=example("rocketq dlq edit billing broker-0:0@17 --body '{\"total\": 3}'"))
@calls_cluster
@click.argument("group")
@click.argument("letter", type=parse_letter, metavar="BROKER:QUEUE@OFFSET")
@click.option("--body", help="Another body.")
@click.option("--body-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A file with the body.")
@click.option("--tag", help="Another tag.")
@click.option("--key", "keys", multiple=True, help="Other keys; may be repeated.")
@click.option("--to", default=TO_ORIGIN, show_default=True, help="origin, retry (only GROUP gets it), or a topic.")
@click.option("--dry-run", is_flag=True, help="Only show what would be sent.")
def edit(
    caller: Caller,
    group: str,
    letter: LetterRef,
    body: str | None,
    body_file: Path | None,
    tag: str | None,
    keys: tuple[str, ...],
    to: str,
    dry_run: bool,
) -> None:
    """Send a changed copy of a dead letter. The dead letter itself stays as it is."""
    if body is not None and body_file is not None:
        raise click.UsageError("give --body or --body-file")
    data = body_file.read_bytes() if body_file is not None else body.encode() if body is not None else None
    change = LetterEdit(body=data, tag=tag, keys=keys or None)
    plan = ReplayPlan(group=group, letters=(letter,), to=to, edits={letter: change}, dry_run=dry_run)
    _report(caller, caller.run(lambda admin: _replayed(admin, plan)))


@dlq.command(
    epilog=example(
        "rocketq dlq replay billing --all --dry-run",
        "rocketq dlq replay billing --letter broker-0:0@17 --to retry",
        "rocketq dlq replay billing --all --since 1h --rate 50",
    )
)
@calls_cluster
@click.argument("group")
@click.option(
    "--letter",
    "letters",
    type=parse_letter,
    multiple=True,
    metavar="BROKER:QUEUE@OFFSET",
    help="One dead letter; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="All dead letters of the group, oldest first.")
@click.option("--since", type=moment, metavar="MOMENT", help="With --all: stored from then on.")
@click.option("--to", default=TO_ORIGIN, show_default=True, help="origin, retry (only GROUP gets it), or a topic.")
@click.option("--rate", type=click.FloatRange(0.001), help="Messages per second.  [default: no limit]")
@click.option("--dry-run", is_flag=True, help="Only show what would be sent.")
def replay(
    caller: Caller,
    group: str,
    letters: tuple[LetterRef, ...],
    everything: bool,
    since: int | None,
    to: str,
    rate: float | None,
    dry_run: bool,
) -> None:
    """Send dead letters of GROUP again. Prints a result for each. Exit code 1 unless all were sent."""
    if bool(letters) == everything:
        raise click.UsageError("give --letter or --all")

    async def run(admin: AsyncAdmin) -> list[ReplayResult]:
        chosen = letters or tuple([letter_ref(one) async for one in _oldest_first(admin, group, since)])
        plan = ReplayPlan(group=group, letters=chosen, to=to, per_second=rate, dry_run=dry_run)
        return await _replayed(admin, plan)

    _report(caller, caller.run(run))


async def _oldest_first(admin: AsyncAdmin, group: str, since_ms: int | None) -> AsyncIterator[StoredMessage]:
    query = SearchQuery(topic=dlq_topic(group), direction=Direction.OLDEST, since_ms=since_ms)
    async for step in admin.search.run(query):
        for one in step.messages:
            yield one


async def _replayed(admin: AsyncAdmin, plan: ReplayPlan) -> list[ReplayResult]:
    return [one async for one in admin.dead_letters.replay(plan)]


def _report(caller: Caller, results: list[ReplayResult]) -> None:
    rows = [
        (letter_name(one.letter), one.status.value, one.target or NONE, one.message_id or NONE, one.reason or "")
        for one in results
    ]
    counts: dict[str, int] = {}
    for one in results:
        counts[one.status.value] = counts.get(one.status.value, 0) + 1
    total = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no dead letters"
    text = table(["LETTER", "RESULT", "TO", "NEW ID", "WHY"], rows) + f"\n\n{total}" if rows else total
    value = [{**plain(one), "letter": letter_name(one.letter)} for one in results]
    caller.show(value, text)
    if any(one.status not in _GOOD for one in results):
        sys.exit(FAILED)


@dlq.command(epilog=example("rocketq dlq export billing --out billing.jsonl"))
@calls_cluster
@click.argument("group")
@click.option("--out", type=click.File("w"), default="-", help="A file.  [default: standard output]")
@click.option("--since", type=moment, metavar="MOMENT", help="Dead letters stored from then on.")
def export(caller: Caller, group: str, out: Any, since: int | None) -> None:
    """Write dead letters as JSON lines. The last line records whether they are complete."""

    async def run(admin: AsyncAdmin) -> tuple[int, SearchProgress | None]:
        query = SearchQuery(topic=dlq_topic(group), direction=Direction.OLDEST, since_ms=since)
        count, progress = 0, None
        async for step in admin.search.run(query):
            progress = step.progress
            for one in step.messages:
                out.write(json.dumps(_letter_json(one), ensure_ascii=False) + "\n")
                count += 1
        return count, progress

    count, progress = caller.run(run)
    failed = dict(progress.failed) if progress is not None else {}
    complete = progress is not None and progress.done and not failed
    record = {"complete": complete, "count": count, "failed_queues": failed}
    out.write(json.dumps(record) + "\n")
    if not complete:
        sys.exit(FAILED)
    if not count:
        sys.exit(NOT_FOUND)
