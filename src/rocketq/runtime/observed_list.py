"""A list that reports its changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from typing import Any, TypeVar, overload

_Item = TypeVar("_Item")


class ObservedList(MutableSequence[_Item]):
    """`changed` is called after every change."""

    def __init__(self, changed: Callable[[], None], items: Iterable[_Item] = ()) -> None:
        self._changed = changed
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> _Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Item]: ...
    def __getitem__(self, index: int | slice) -> _Item | list[_Item]:
        return self._items[index]

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._items[index] = value
        self._changed()

    def __delitem__(self, index: int | slice) -> None:
        del self._items[index]
        self._changed()

    def insert(self, index: int, value: _Item) -> None:
        self._items.insert(index, value)
        self._changed()
