"""What must hold between what was sent and what a reader saw; a failure lists the first differences, not all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .messages import Acknowledged, Place, Queue, Stored, View

SHOWN_MAX = 5


def none_of(differences: list[str], what: str) -> None:
    assert not differences, f"{len(differences)} {what}:\n" + "\n".join(differences[:SHOWN_MAX])


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
    wrong = [
        f"{message.kind} {message.place}: {view.by_id[message.message_id]} != {view.pulled[message.place]}"
        for message in expected
        if message.place in view.pulled and view.by_id[message.message_id] != view.pulled[message.place]
    ]
    none_of(wrong, "different answers by id and by pull")


def keys_match(view: View, expected: Iterable[Acknowledged]) -> None:
    """Each key finds all messages sent with it. (A unique key need not: 5.x gives a whole batch one.)"""
    wanted: dict[tuple[str, str], set[str]] = {}
    for message in expected:
        if message.is_half:
            continue
        for key in (message.keys or "").split():
            wanted.setdefault((message.topic, key), set()).add(message.message_id)
        if message.unique_key and message.kind != "batch":
            wanted.setdefault((message.topic, message.unique_key), set()).add(message.message_id)
    missing = [
        f"{place}: {sorted(ids - view.by_key.get(place, frozenset()))}"
        for place, ids in wanted.items()
        if not ids <= view.by_key.get(place, frozenset())
    ]
    none_of(missing, "keys that do not find their messages")


def everything_matches(view: View, expected: Iterable[Acknowledged]) -> None:
    expected = list(expected)
    assert not view.problems, view.problems[:SHOWN_MAX]
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
    wrong = [f"{earlier[place]} became {later.get(place)}" for place in earlier if later.get(place) != earlier[place]]
    none_of(wrong, "messages changed or gone")


def appends_continue(before: View, appended: Iterable[Acknowledged]) -> None:
    """The first new message of a queue has the offset that was the queue's max."""
    firsts: dict[Queue, int] = {}
    for message in appended:
        queue = (message.topic, message.queue_id)
        firsts[queue] = min(message.queue_offset, firsts.get(queue, message.queue_offset))
    wrong = [
        f"{queue}: goes on at {first}, its end was {before.bounds[queue][1]}"
        for queue, first in firsts.items()
        if queue in before.bounds and first != before.bounds[queue][1]
    ]
    none_of(wrong, "queues that do not go on where they ended")
