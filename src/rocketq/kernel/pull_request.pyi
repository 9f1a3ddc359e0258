"""Written by tools/kernel_stubs.py from pull_request.pxd and pull_request.py."""

from typing import Final

GROUP: Final[int]
TOPIC: Final[int]
QUEUE_ID: Final[int]
QUEUE_OFFSET: Final[int]
COUNT_MAX: Final[int]
SYS_FLAG: Final[int]
COMMIT_OFFSET: Final[int]
HOLD_MS: Final[int]
EXPRESSION: Final[int]
VERSION: Final[int]
TYPE: Final[int]
BYTES_MAX: Final[int]
SOURCE: Final[int]
BROKER_NAME: Final[int]
REQUEST_TYPE: Final[int]
NEEDED: Final[int]
KEY_END: Final[bytes]

class PullRequest:
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def count_max(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def commit_offset(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def bytes_max(self) -> int: ...
    def __init__(self) -> None: ...
