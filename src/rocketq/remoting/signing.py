"""Signatures of requests at the time they are sent."""

from __future__ import annotations

import os
import time

from rocketq.protocol.acl import Credentials, sign
from rocketq.protocol.command import Command


def sign_now(command: Command, credentials: Credentials) -> Command:
    """Sign a request; with fresh credentials a time and a nonce are signed, too, so that it is accepted once."""
    if not credentials.fresh:
        return sign(command, credentials)
    return sign(command, credentials, signed_at_ms=time.time_ns() // 1_000_000, nonce=os.urandom(9).hex())
