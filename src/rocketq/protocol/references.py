"""fastjson's `$ref`: the second mention of an object is written as the path to its first.

    {"$ref":"$.consumerTable.10\\.0\\.0\\.9\\@1"}    from the root; a backslash protects the next character
    {"$ref":"$"}  {"$ref":"@"}  {"$ref":".."}        the root, the object itself, its parent: cycles

A path is replaced by what it points at, unless that holds references itself: so no cycle and no exponential document
can arise. Whatever is not replaced stays `{"$ref": path}`.
"""

from __future__ import annotations

import re
from typing import Any

_STEP = re.compile(r"\.((?:[^\\.\[]|\\.)+)|\[(\d{1,9})\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MISSING = object()


def resolve_references(document: Any) -> Any:
    """The document with its references replaced; it is not copied, changes are made in place."""
    holders: dict[int, bool] = {}
    _mark_holders(document, holders)
    _replace(document, document, holders)
    return document


def _mark_holders(node: Any, holders: dict[int, bool]) -> bool:
    """Note, by identity, every container with a reference somewhere inside (a reference is one itself)."""
    if not isinstance(node, (dict, list)):
        return False
    children = node.values() if isinstance(node, dict) else node
    inside = [_mark_holders(child, holders) for child in children]
    holders[id(node)] = _path(node) is not None or any(inside)
    return holders[id(node)]


def _replace(node: Any, root: Any, holders: dict[int, bool]) -> None:
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in list(entries):
        path = _path(child)
        target = _MISSING if path is None else _follow(path, root)
        if target is not _MISSING and not holders.get(id(target), False):
            node[key] = target
        elif holders.get(id(child), False):
            _replace(child, root, holders)


def _path(node: Any) -> str | None:
    if not isinstance(node, dict) or len(node) != 1:
        return None
    path = node.get("$ref")
    return path if isinstance(path, str) else None


def _follow(path: str, root: Any) -> Any:
    """What a `$...` path points at, or _MISSING."""
    if not path.startswith("$"):
        return _MISSING
    at, node = 1, root
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return _MISSING
        node = _step(node, found)
        if node is _MISSING:
            return _MISSING
        at = found.end()
    return node


def _step(node: Any, found: re.Match[str]) -> Any:
    name, index = found.groups()
    if isinstance(node, dict):
        return node.get(_ESCAPE.sub(r"\1", name) if name is not None else index, _MISSING)
    if isinstance(node, list) and index is not None and int(index) < len(node):
        return node[int(index)]
    return _MISSING
