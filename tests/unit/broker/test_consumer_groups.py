"""Membership: who joins, leaves and falls silent, and which groups must be told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.members import Member, Roster
from rocketq.protocol.bodies.clients import ConsumerData, Subscription
from rocketq.protocol.flags import Language, MessageModel


def member(connection: str, at_ms: int = 0) -> Member[str]:
    return Member(connection, f"id-{connection}", Language.JAVA, 407, at_ms)


def data(*subscriptions: Subscription, group: str = "g") -> ConsumerData:
    return ConsumerData(group=group, subscriptions=subscriptions)


def sub(topic: str, version: int = 1, expression: str = "*") -> Subscription:
    return Subscription(topic=topic, version=version, expression=expression)


def test_a_new_connection_or_topic_is_a_change_a_repeated_heartbeat_is_not() -> None:
    groups: ConsumerGroups[str] = ConsumerGroups()
    assert groups.heartbeat(data(sub("T")), member("a"))
    assert not groups.heartbeat(data(sub("T")), member("a", 5))
    assert groups.heartbeat(data(sub("T")), member("b"))
    assert groups.heartbeat(data(sub("T"), sub("U")), member("a"))
    assert groups.heartbeat(data(sub("U")), member("a"))
    assert groups.subscription("g", "T") is None
    assert [one.client_id for one in groups.members("g")] == ["id-a", "id-b"]


def test_a_newer_expression_replaces_an_older_one_quietly() -> None:
    groups: ConsumerGroups[str] = ConsumerGroups()
    groups.heartbeat(data(sub("T", 5)), member("a"))
    assert not groups.heartbeat(data(sub("T", 6, "x")), member("a"))
    assert not groups.heartbeat(data(sub("T", 4, "old")), member("a"))
    found = groups.subscription("g", "T")
    assert found is not None
    assert found.expression == "x"


def test_leaving_by_word_by_disconnect_and_by_silence() -> None:
    groups: ConsumerGroups[str] = ConsumerGroups()
    for connection in "abc":
        groups.heartbeat(data(sub("T")), member(connection, 100 if connection == "b" else 0))
        groups.heartbeat(data(sub("T"), group="h"), member(connection, 100))
    assert groups.leave("g", "a")
    assert not groups.leave("g", "a")
    assert groups.disconnect("b") == ["g", "h"]
    gone = groups.expire(heard_before_ms=50)
    assert (gone.connections, gone.groups) == ({"c"}, {"g"})
    assert groups.get("g") is None
    assert groups.get("h") is not None
    assert groups.groups_of("T") == ["h"]


def test_the_last_heartbeat_says_how_the_group_consumes() -> None:
    groups: ConsumerGroups[str] = ConsumerGroups()
    groups.heartbeat(data(), member("a"))
    groups.heartbeat(ConsumerData(group="g", model=MessageModel.BROADCASTING), member("a"))
    known = groups.get("g")
    assert known is not None
    assert known.model is MessageModel.BROADCASTING


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "disconnect", "expire"]),
        st.sampled_from("gh"),
        st.sampled_from("abc"),
        st.integers(0, 9),
    )
)


@given(EVENTS)
def test_any_history_leaves_the_roster_whole(events: list[tuple[str, str, str, int]]) -> None:
    """Goal: both of its tables always say the same, compared with a plain set."""
    roster: Roster[str] = Roster()
    model: dict[tuple[str, str], int] = {}
    for what, group, connection, number in events:
        if what == "put":
            assert roster.put(group, member(connection, number)) == ((group, connection) not in model)
            model[group, connection] = number
        elif what == "remove":
            assert roster.remove(group, connection) == (model.pop((group, connection), None) is not None)
        elif what == "disconnect":
            assert roster.disconnect(connection) == sorted(one for one, other in model if other == connection)
            model = {key: at for key, at in model.items() if key[1] != connection}
        else:
            gone = roster.expire(number)
            old = {key for key, at in model.items() if at < number}
            assert gone.groups == {one for one, _ in old}
            assert gone.connections == {one for _, one in old}
            model = {key: at for key, at in model.items() if key not in old}
    assert {(group, one.connection) for group in roster for one in roster.members(group)} == set(model)
    assert {group for group, _ in model} == set(roster)
    found = roster.client("id-a")
    assert (found is not None) == any(connection == "a" for _, connection in model)
