"""Members that are told of changes, and how often."""

from __future__ import annotations

from collections.abc import Callable

from rocketq.broker.groups.change_notices import ChangeNotices, Client
from rocketq.broker.groups.members import Member
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Language


class Link:
    """Stands for a connection."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []

    def call_oneway(self, command: Command) -> None:
        self.told.append((command.code, command.ext_fields["consumerGroup"]))


class Group:
    """Members, and timers that fire when a test says so."""

    def __init__(self, count: int) -> None:
        self.links = [Link() for _ in range(count)]
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.notices = ChangeNotices(self._members, lambda delay_s, call: self.timers.append((delay_s, call)))

    def _members(self, group: str) -> list[Client]:
        return [Member(link, "c", Language.JAVA, 407) for link in self.links]  # type: ignore[arg-type]

    def end_pause(self) -> float:
        ((delay_s, call),) = self.timers
        self.timers.clear()
        call()
        return delay_s


def test_the_first_change_is_told_at_once() -> None:
    """Goal: in a quiet group nobody waits for a pause."""
    group = Group(2)
    group.notices.notify("g")
    assert [link.told for link in group.links] == [[(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "g")]] * 2


def test_changes_in_a_pause_are_told_once_when_it_is_over() -> None:
    """Goal: a thousand members that join at once cost thousands of requests, not millions; the last change is told."""
    group = Group(1_000)
    for _ in range(1_000):
        group.notices.notify("g")
    assert len(group.links[0].told) == 1
    group.links.append(Link())
    assert group.end_pause() == 1.0
    assert len(group.links[0].told) == 2
    assert len(group.links[-1].told) == 1


def test_a_pause_without_a_change_ends_quietly() -> None:
    """Goal: nothing is told twice, and the next change is told at once again."""
    group = Group(1)
    group.notices.notify("g")
    group.end_pause()
    assert not group.timers
    assert len(group.links[0].told) == 1
    group.notices.notify("g")
    assert len(group.links[0].told) == 2


def test_groups_pause_for_themselves() -> None:
    """Goal: a busy group does not delay another."""
    group = Group(1)
    group.notices.notify("a")
    group.notices.notify("b")
    assert [name for _, name in group.links[0].told] == ["a", "b"]


def test_a_new_group_is_told_a_little_later() -> None:
    """Goal: whoever asked for its retry topic's route after the heartbeat is told to look again."""
    group = Group(1)
    group.notices.notify_later("g")
    assert not group.links[0].told
    group.end_pause()
    assert len(group.links[0].told) == 1
