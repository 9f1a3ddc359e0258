"""Message ids: the location of a message, as text. Upper-case hex of store host, port (i32) and log offset (i64)."""

from __future__ import annotations

from rocketq.model.host import Host

_HEX_LENGTHS = {32: 4, 56: 16}


def encode_message_id(store_host: Host, log_offset: int) -> str:
    return (store_host.packed() + log_offset.to_bytes(8, "big", signed=True)).hex().upper()


def decode_message_id(text: str) -> tuple[Host, int]:
    """The store host and log offset of an id; ValueError when it is not one."""
    ip_bytes = _HEX_LENGTHS.get(len(text))
    if ip_bytes is None:
        raise ValueError(f"a message id has 32 or 56 hex digits, not {len(text)}: {text!r}")
    raw = bytes.fromhex(text)
    return Host.unpack(raw[: ip_bytes + 4]), int.from_bytes(raw[ip_bytes + 4 :], "big", signed=True)
