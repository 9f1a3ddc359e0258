"""What must hold between what was sent and what a reader saw; a failure lists the first differences, not all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields

from .messages import Acknowledged, Place, Queue, Stored, View

SHOWN_MAX = 5


def none_of(differences: list[str], what: str) -> None:
    assert not differences, f"{len(differences)} {what}:\n" + "\n".join(differences[:SHOWN_MAX])


def no_problems(view: View) -> None:
    """The reader got an answer, whatever it was, to every question."""
    none_of(list(view.problems), "questions failed")


def pulls_match(view: View, expected: Iterable[Acknowledged]) -> None:
    """Every acknowledged message is where its producer was told, with the same content."""
    visible = [message for message in expected if not message.is_half]
    none_of([text for message in visible for text in _differences(message, view.pulled.get(message.place))], "misread")


def _differences(sent: Acknowledged, found: Stored | None) -> list[str]:
    if found is None:
        return [f"{sent.kind} {sent.place}: missing"]
    pairs = {
        "id": (sent.message_id, found.message_id),
        "body": (sent.body_sha256, found.body_sha256),
        "length": (sent.body_bytes, found.body_bytes),
        "keys": (sent.keys, found.properties.get("KEYS")),
        "tags": (sent.tags, found.properties.get("TAGS")),
    }
    return [f"{sent.kind} {sent.place}: {name} {a!r} != {b!r}" for name, (a, b) in pairs.items() if a != b]


def ids_match(view: View, expected: Iterable[Acknowledged]) -> None:
    """A look-up by id finds the very message that was sent, and that a pull finds."""
    expected = list(expected)
    none_of(
        [text for message in expected for text in _differences(message, view.by_id.get(message.message_id))], "misread"
    )
    found = {message.place: view.by_id[message.message_id] for message in expected}
    contains(found, {place: view.pulled[place] for place in found if place in view.pulled})


def missing_keys(view: View, expected: Iterable[Acknowledged]) -> list[str]:
    """Keys that do not find all the messages sent with them."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for message in expected:
        for key in message.index_keys if not message.is_half else ():
            wanted.setdefault((message.topic, key), set()).add(message.message_id)
    return [
        f"{place}: {sorted(ids - view.by_key.get(place, frozenset()))}"
        for place, ids in wanted.items()
        if not ids <= view.by_key.get(place, frozenset())
    ]


def keys_match(view: View, expected: Iterable[Acknowledged]) -> None:
    none_of(missing_keys(view, expected), "keys that do not find their messages")


def everything_matches(view: View, expected: Iterable[Acknowledged]) -> None:
    expected = list(expected)
    no_problems(view)
    pulls_match(view, expected)
    ids_match(view, expected)
    keys_match(view, expected)
    queues_are_dense(view)


def queues_are_dense(view: View) -> None:
    """Between its min and max offset a queue has exactly one message at each offset."""
    found: dict[Queue, list[int]] = {}
    for topic, queue_id, queue_offset in view.pulled:
        found.setdefault((topic, queue_id), []).append(queue_offset)
    wrong = [
        f"{queue}: {len(found.get(queue, []))} messages in [{low}, {high})"
        for queue, (low, high) in view.bounds.items()
        if sorted(found.get(queue, [])) != list(range(low, high))
    ]
    none_of(wrong, "queues with holes")


def contains(later: Mapping[Place, Stored], earlier: Mapping[Place, Stored]) -> None:
    """What was once seen is seen again, field by field."""
    changes = {place: _changes(earlier[place], later.get(place)) for place in earlier}
    none_of([f"{place}: {change}" for place, change in changes.items() if change], "messages changed or gone")


def _changes(earlier: Stored, later: Stored | None) -> str:
    if later is None:
        return "gone"
    pairs = {field.name: (getattr(earlier, field.name), getattr(later, field.name)) for field in fields(Stored)}
    return ", ".join(f"{name} {a!r} became {b!r}" for name, (a, b) in pairs.items() if a != b)


def appends_continue(before: View, appended: Iterable[Acknowledged]) -> None:
    """The first new message of a queue has the offset that was the queue's max. (What the broker itself delivers
    comes when it is due, so queues of such messages are left out.)"""
    firsts: dict[Queue, int] = {}
    delivered: set[str] = set()
    for message in appended:
        queue = (message.topic, message.queue_id)
        firsts[queue] = min(message.queue_offset, firsts.get(queue, message.queue_offset))
        if message.kind.endswith("-delivered"):
            delivered.add(message.topic)
    wrong = [
        f"{queue}: goes on at {first}, its end was {before.bounds[queue][1]}"
        for queue, first in firsts.items()
        if queue in before.bounds and queue[0] not in delivered and first != before.bounds[queue][1]
    ]
    none_of(wrong, "queues that do not go on where they ended")


def delivered_once(view: View, topic: str) -> None:
    """No delayed message reached its topic twice: whoever had the directory kept how far delivery was."""
    keys = [stored.properties.get("UNIQ_KEY") for place, stored in view.pulled.items() if place[0] == topic]
    twice = [str(key) for key, count in Counter(keys).items() if count > 1]
    none_of(twice, f"messages delivered to {topic} more than once")
