"""The first message that a broker acknowledges after its start."""

from __future__ import annotations

import contextlib
import socket
import time

from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Language
from rocketq.protocol.frame import FrameDecoder, encode_command

PAUSE_S = 0.005
FIELDS = {
    **{"a": "BENCH_GROUP", "b": "BenchFirst", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000"},
    **{"h": "0", "i": "", "j": "0", "k": "false", "m": "false"},
}


def first_acknowledged(port: int, deadline: float) -> float:
    """When the first send to the broker at `port` was acknowledged, by time.monotonic(); tried until then."""
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            if _send(link):
                return time.monotonic()
        time.sleep(PAUSE_S)
    raise TimeoutError(f"no send to port {port} was acknowledged in time")


def _send(link: socket.socket) -> bool:
    request = Command(
        code=RequestCode.SEND_MESSAGE_V2,
        language=Language.JAVA,
        version=453,
        opaque=1,
        ext_fields=FIELDS,
        body=b"first",
    )
    link.sendall(encode_command(request))
    decoder = FrameDecoder()
    while data := link.recv(65_536):
        for answer in decoder.feed(data):
            return answer.code == ResponseCode.SUCCESS
    return False
