"""The keys and ids of a file's messages: a sorted table of hashes and row numbers.

A hash only selects candidate rows; the text of the row decides.
"""

from __future__ import annotations

import os
import zlib
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_SCHEMA: Final = pa.schema([("hash", pa.uint32()), ("row", pa.uint32())])


class KeyTable:
    """Filled while a file is written."""

    def __init__(self) -> None:
        self._hashes = array("I")
        self._rows = array("I")

    def add(self, batch: pa.RecordBatch, first_row: int) -> None:
        self._add_texts(batch.column("msgId"), range(first_row, first_row + batch.num_rows))
        words = pc.split_pattern(batch.column("keys"), " ")
        parents = [first_row + each for each in pc.list_parent_indices(words).to_pylist()]
        self._add_texts(pc.list_flatten(words), parents)

    def _add_texts(self, texts: pa.Array, rows: range | list[int]) -> None:
        crc32 = zlib.crc32
        if texts.null_count:
            rows = [row for row, is_there in zip(rows, texts.is_valid().to_pylist(), strict=True) if is_there]
            texts = texts.drop_null()
        self._hashes.extend([crc32(each) for each in texts.cast(pa.binary()).to_pylist()])
        self._rows.extend(rows)

    def write(self, path: Path) -> None:
        columns = [pa.array(self._hashes, pa.uint32()), pa.array(self._rows, pa.uint32())]
        table = pa.Table.from_arrays(columns, schema=_SCHEMA).sort_by([("hash", "ascending"), ("row", "ascending")])
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            with pa.ipc.new_file(file, _SCHEMA) as writer:
                writer.write_table(table.combine_chunks())
            file.flush()
            os.fsync(file.fileno())


def rows_with(path: Path, text: str) -> list[int]:
    """Rows that may have this key or id, by the table of their file."""
    wanted = zlib.crc32(text.encode())
    with pa.memory_map(str(path)) as mapped:
        table = pa.ipc.open_file(mapped).read_all().combine_chunks()
        hashes, rows = table.column("hash"), table.column("row")
        at = bisect_left(range(table.num_rows), wanted, key=lambda index: hashes[index].as_py())
        found = []
        while at < table.num_rows and hashes[at].as_py() == wanted:
            found.append(rows[at].as_py())
            at += 1
    return sorted(set(found))
