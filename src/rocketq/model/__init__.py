"""Frozen values that all packages share."""

from rocketq.model.host import LOOPBACK, Host
from rocketq.model.ids import decode_message_id, encode_message_id
from rocketq.model.record import NewMessage, Record, SysFlag

__all__ = ["LOOPBACK", "Host", "NewMessage", "Record", "SysFlag", "decode_message_id", "encode_message_id"]
