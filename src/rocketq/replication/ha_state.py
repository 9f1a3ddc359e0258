"""What a replica must remember over any crash: who it is, the highest epoch it saw, a truncation under way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Final
from zlib import crc32

from rocketq.errors import ProtocolError

FILE_NAME: Final = "haState"


@dataclass(frozen=True, slots=True, kw_only=True)
class HaState:
    cluster: str
    broker_name: str
    check_code: str
    """Made once for this store; an id counts only with it."""
    broker_id: int = 0
    """0: none granted yet."""
    epoch: int = 0
    truncating_to: int | None = None
    """The log is being cut to this offset; a start finishes that before anything else."""

    def __post_init__(self) -> None:
        if not (self.cluster and self.broker_name and self.check_code):
            raise ProtocolError("a replica needs cluster, brokerName and check code")
        if self.broker_id < 0 or self.epoch < 0 or (self.truncating_to or 0) < 0:
            raise ProtocolError("a replica's id, epoch and offsets cannot be negative")

    def with_seen(self, broker_id: int, epoch: int) -> HaState:
        """With this id, and with this epoch unless a larger one is known."""
        return replace(self, broker_id=broker_id, epoch=max(self.epoch, epoch))


def encode_ha_state(state: HaState) -> bytes:
    """JSON on one line, its CRC32 on the next."""
    text = json.dumps(asdict(state), sort_keys=True).encode()
    return text + b"\n%d\n" % crc32(text)


def decode_ha_state(data: bytes) -> HaState:
    """ProtocolError for anything that is not a whole state."""
    text, _, crc = data.rstrip(b"\n").rpartition(b"\n")
    try:
        if int(crc) != crc32(text):
            raise ProtocolError("the state of this replica does not match its checksum")
        fields = json.loads(text)
        return HaState(**fields)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"not the state of a replica: {error}") from None
