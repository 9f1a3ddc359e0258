"""TLS without sockets."""

from __future__ import annotations

import ssl

import pytest

from rocketq.errors import TlsError
from rocketq.remoting import TlsSettings
from rocketq.remoting.tls import ClientTls, ServerTls, TlsConfig, TlsMode


@pytest.fixture
def server_tls() -> ServerTls:
    tls = ServerTls(TlsConfig())
    try:
        tls.session()
    except TlsError as error:
        pytest.skip(str(error))
    return tls


class Client:
    """The other end, in memory."""

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = ClientTls().context().wrap_bio(self.incoming, self.outgoing)

    def handshake(self) -> bool:
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 1 << 20])
def test_a_conversation_in_any_chunking(server_tls: ServerTls, chunk_bytes: int) -> None:
    """Goal: where TCP cuts the stream does not matter, and large texts pass both ways."""
    client, session = Client(), server_tls.session()
    text = bytes(range(256)) * 300
    received = b""

    def carry() -> None:
        nonlocal received
        sent = client.outgoing.read()
        for at in range(0, len(sent), chunk_bytes):
            received += session.receive(sent[at : at + chunk_bytes])
        client.incoming.write(session.take_outgoing())

    while not client.handshake():
        carry()
    client.object.write(text)
    carry()
    assert received == text
    client.incoming.write(session.send(text))
    answer = b""
    while len(answer) < len(text):
        answer += client.object.read(1 << 20)
    assert answer == text
    with pytest.raises(ssl.SSLWantReadError):
        client.object.unwrap()
    carry()
    assert session.closed_by_peer


def test_what_is_no_handshake_is_an_error(server_tls: ServerTls) -> None:
    session = server_tls.session()
    with pytest.raises(ssl.SSLError):
        session.receive(b"\x16 this is no handshake at all")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("disabled", TlsMode.DISABLED),
        ("Enforcing", TlsMode.ENFORCING),
        ("", TlsMode.PERMISSIVE),
    ],
)
def test_the_server_mode_is_read(text: str, mode: TlsMode) -> None:
    assert TlsSettings.read({"tls.server.mode": text}).server.mode is mode
