"""Configured groups."""

from __future__ import annotations

from rocketq.broker.groups.table import BUILTIN_GROUPS, GroupTable
from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigTable


def test_a_group_comes_to_be_when_it_may() -> None:
    groups, told = GroupTable(), []
    groups.listeners.append(lambda: told.append(groups.data_version.counter))
    assert groups.find("g", auto_create=False, now_ms=1) is None
    assert groups.find("g", auto_create=True, now_ms=1) == GroupConfig(group="g")
    assert groups.find("g", auto_create=False, now_ms=1) is not None
    assert groups.find("CID_RMQ_SYS_x", auto_create=False, now_ms=1) is not None
    assert groups.find("not legal", auto_create=True, now_ms=1) is None
    assert groups.find("x" * 256, auto_create=True, now_ms=1) is None
    assert told == [1, 2]


def test_what_was_saved_wins_and_built_in_ones_stay() -> None:
    groups = GroupTable()
    mine = GroupConfig(group="TOOLS_CONSUMER", consume_enable=False)
    groups.load(GroupConfigTable(groups={"TOOLS_CONSUMER": mine}))
    assert groups.get("TOOLS_CONSUMER") == mine
    assert set(BUILTIN_GROUPS) <= set(groups.names())


def test_put_and_delete_move_the_version() -> None:
    groups = GroupTable()
    groups.put(GroupConfig(group="g", retry_max=3), now_ms=5)
    assert groups.delete("g", now_ms=6)
    assert not groups.delete("g", now_ms=7)
    assert (groups.data_version.counter, groups.data_version.timestamp_ms) == (2, 6)
    assert "g" not in groups.snapshot().groups
