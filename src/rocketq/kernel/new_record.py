"""What a record is made of, besides its queue and its position."""

from __future__ import annotations

import cython


@cython.final
@cython.cclass
class NewRecord:
    """Made once and filled for each append. Body and properties are spans of memory that the caller keeps alive
    until the record is written."""

    def __init__(self):
        if not cython.compiled:
            self.body = self.properties = b""
        self.body_at = self.body_len = self.properties_at = self.properties_len = 0
        self.flag = self.sys_flag = self.reconsume_times = 0
        self.born_ms = self.store_ms = self.prepared_offset = 0
        self.born_host = b""

    def set_body(self, p, at, count):
        self.body = p
        self.body_at = at
        self.body_len = count

    def set_properties(self, p, at, count):
        self.properties = p
        self.properties_at = at
        self.properties_len = count

    def set_origin(self, born_ms, born_host, store_ms, reconsume_times):
        """Where the message comes from, and when it is stored."""
        self.born_ms = born_ms
        self.born_host = born_host
        self.store_ms = store_ms
        self.reconsume_times = reconsume_times
