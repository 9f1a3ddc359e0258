"""Key-value config by namespace, saved in Apache's kvConfig.json."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketq.errors import ConfigError, DamagedStateError, RemoteProtocolError
from rocketq.nameserver.state_file import backup_of, read_text, write_state
from rocketq.protocol.bodies import Body, body, member
from rocketq.protocol.fastjson import to_bytes

log = logging.getLogger(__name__)

NAME_CHARS_MAX: Final = 255

Table = dict[str, dict[str, str]]


@body
class KvFile(Body):
    table: dict[str, dict[str, str]] = member("configTable", factory=dict)


@dataclass(frozen=True, slots=True)
class KvLimits:
    value_bytes_max: int = 64 << 10
    count_max: int = 10_000
    bytes_max: int = 4 << 20


@dataclass(slots=True, eq=False)
class _Change:
    """One put, or with None as value one delete."""

    namespace: str
    key: str
    value: str | None
    is_done: bool = False
    error: Exception | None = None


Changes = list[_Change]


class KvConfig:
    """A change is visible, and `put` and `delete` return, when the file holds it.

    One write is in progress at a time, on another thread; changes that arrive during a write go into the next one.
    """

    def __init__(self, path: Path, limits: KvLimits | None = None) -> None:
        self._path = path
        self._limits = limits or KvLimits()
        self._table: Table = _load(path)
        self._waiting: Changes = []
        self._writing = asyncio.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def list(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace; None when it never had one, empty when all were deleted."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """ConfigError when a limit is exceeded, OSError when the file cannot be written."""
        for what, name in (("namespace", namespace), ("key", key)):
            if not 0 < len(name) <= NAME_CHARS_MAX:
                raise ConfigError(f"the {what} has {len(name)} characters, 1 to {NAME_CHARS_MAX} are allowed")
        if len(value.encode("utf-8", "replace")) > (value_bytes_max := self._limits.value_bytes_max):
            raise ConfigError(f"the value of key {key!r} exceeds {value_bytes_max} bytes (kvConfigValueBytesMax)")
        await self._apply(_Change(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        await self._apply(_Change(namespace, key, None))

    async def _apply(self, change: _Change) -> None:
        self._waiting.append(change)
        async with self._writing:
            if not change.is_done:
                batch, self._waiting = self._waiting, []
                try:
                    await self._write(batch)
                except BaseException as error:
                    for one in batch:
                        one.error = one.error or (error if isinstance(error, Exception) else OSError("not written"))
                    raise
                finally:
                    for one in batch:
                        one.is_done = True
        if change.error is not None:
            raise change.error

    async def _write(self, batch: Changes) -> None:
        """Apply what the limits allow to a copy, write the copy, then use it."""
        table, limits = dict(self._table), self._limits
        count = sum(map(len, table.values()))
        size = sum(len(key) + len(value) for values in table.values() for key, value in values.items())
        copied: set[str] = set()
        for change in batch:
            values = table.get(change.namespace, {})
            before = values.get(change.key)
            if before == change.value:
                continue
            more = _size(change.key, change.value) - _size(change.key, before)
            if before is None and (count >= limits.count_max or len(table) > limits.count_max):
                change.error = ConfigError(f"the KV configuration has {count} keys, its limit (kvConfigCountMax)")
            elif more > 0 and size + more > limits.bytes_max:
                change.error = ConfigError(f"the KV configuration exceeds {limits.bytes_max} bytes (kvConfigBytesMax)")
            else:
                if change.namespace not in copied:
                    values = table[change.namespace] = dict(values)
                    copied.add(change.namespace)
                if change.value is None:
                    del values[change.key]
                else:
                    values[change.key] = change.value
                count += (before is None) - (change.value is None)
                size += more
        if copied:
            await asyncio.to_thread(lambda: write_state(self._path, b"".join(_file_parts(table))))
            self._table = table


def _size(key: str, value: str | None) -> int:
    return 0 if value is None else len(key) + len(value)


def _file_parts(table: Table) -> Iterator[bytes]:
    """The file's text in Apache's tabbed form, one key at a time: a single call of the JSON encoder would block other
    threads for all of it."""
    yield b'{\n\t"configTable":{'
    for number, (namespace, values) in enumerate(table.items()):
        yield b"," * (number > 0) + to_bytes(f"\n\t\t{json.dumps(namespace, ensure_ascii=False)}:{{")
        for index, (key, value) in enumerate(values.items()):
            entry = f"{json.dumps(key, ensure_ascii=False)}:{json.dumps(value, ensure_ascii=False)}"
            yield b"," * (index > 0) + to_bytes(f"\n\t\t\t{entry}")
        yield b"\n\t\t}" if values else b"}"
    yield b"\n\t}\n}" if table else b"}\n}"


def _load(path: Path) -> Table:
    """Read the file, or its backup when it is damaged."""
    unreadable = []
    for file in (path, backup_of(path)):
        try:
            text = read_text(file)
            if text is not None and text.strip():
                return {name: dict(values) for name, values in KvFile.decode(text.encode()).table.items()}
        except (RemoteProtocolError, UnicodeDecodeError) as error:
            log.error("%s is damaged: %s", file, error)
            unreadable.append(file)
    if unreadable:
        raise DamagedStateError(f"{path} is damaged and has no readable backup")
    return {}
