"""A list that reports its changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketq.runtime.observed_list import ObservedList

List = ObservedList[str]


@pytest.mark.parametrize(
    ("change", "items"),
    [
        (lambda each: each.append("d"), "abcd"),
        (lambda each: each.insert(0, "d"), "dabc"),
        (lambda each: each.extend("de"), "abcde"),
        (lambda each: each.__iadd__("d"), "abcd"),
        (lambda each: each.remove("b"), "ac"),
        (lambda each: each.pop(), "ab"),
        (lambda each: each.clear(), ""),
        (lambda each: each.reverse(), "cba"),
        (lambda each: each.__setitem__(0, "d"), "dbc"),
        (lambda each: each.__setitem__(slice(0, 2), "d"), "dc"),
        (lambda each: each.__delitem__(slice(1, None)), "a"),
    ],
)
def test_every_change_is_reported_after_it_is_made(change: Callable[[List], object], items: str) -> None:
    seen: list[str] = []
    observed: List = ObservedList(lambda: seen.append("".join(observed)), "abc")
    assert not seen
    change(observed)
    assert "".join(observed) == items
    assert seen[-1] == items


def test_reading_reports_nothing() -> None:
    seen: list[str] = []
    observed: List = ObservedList(lambda: seen.append("changed"), "abc")
    assert (len(observed), observed[1], observed[1:], "b" in observed, [*observed]) == (
        3,
        "b",
        ["b", "c"],
        True,
        ["a", "b", "c"],
    )
    with pytest.raises(ValueError):
        observed.remove("x")
    with pytest.raises(IndexError):
        observed[9] = "x"
    assert not seen
