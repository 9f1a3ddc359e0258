"""Key-value config by namespace, saved in Apache's kvConfig.json."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from rocketq.errors import DamagedStateError, RemoteProtocolError
from rocketq.nameserver.state_file import backup_of, read_text, write_state
from rocketq.protocol.bodies import Body, body, member
from rocketq.protocol.fastjson import dumps

log = logging.getLogger(__name__)

Table = dict[str, dict[str, str]]


@body
class KvFile(Body):
    table: dict[str, dict[str, str]] = member("configTable", factory=dict)


class KvConfig:
    """Changes are durable: each is applied after the file is written. `put` and `delete` block on the disk and run on
    other threads, one at a time; reads need no lock because tables are replaced, never edited."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: Table = _load(path)
        self._changing = threading.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def list(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace; None when it never had one, empty when all were deleted."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    def put(self, namespace: str, key: str, value: str) -> None:
        with self._changing:
            self._replace(namespace, {**self._table.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        with self._changing:
            values = self._table.get(namespace, {})
            if key in values:
                self._replace(namespace, {name: value for name, value in values.items() if name != key})

    def _replace(self, namespace: str, values: dict[str, str]) -> None:
        table = {**self._table, namespace: values}
        write_state(self._path, dumps(KvFile(table=table).to_json(), pretty=True))
        self._table = table


def _load(path: Path) -> Table:
    """Read the file, or its backup when it is damaged."""
    unreadable = []
    for file in (path, backup_of(path)):
        try:
            text = read_text(file)
            if text is not None and text.strip():
                return dict(KvFile.decode(text.encode()).table)
        except (RemoteProtocolError, UnicodeDecodeError) as error:
            log.error("%s is damaged: %s", file, error)
            unreadable.append(file)
    if unreadable:
        raise DamagedStateError(f"{path} is damaged and has no readable backup")
    return {}
