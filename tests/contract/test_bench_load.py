"""What the load generator sends: frames as clients build them, signed and delayed where asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from bench.load.generator import Load, NoCompilerError, program, run

from rocketq.kernel.signatures import Account, Accounts, SignatureCheck
from rocketq.protocol.acl import ACCESS_KEY, SIGNATURE, is_signed
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.messages import decode_batch
from rocketq.protocol.properties import decode_properties

SHORT = Load(connections=1, depth=4, seconds=0.2, warm_up=0)
SIGNED = replace(SHORT, access_key="bench-user", secret_key="bench-secret")


@pytest.fixture(autouse=True)
def _generator() -> None:
    try:
        program()
    except NoCompilerError as reason:
        pytest.skip(str(reason))


class Listener:
    """A broker that keeps what it got and says yes to everything."""

    def __init__(self, listening: socket.socket) -> None:
        self.commands: list[Command] = []
        self._listening = listening

    def serve(self) -> None:
        connection, _ = self._listening.accept()
        decoder = FrameDecoder(frame_bytes_max=1 << 20)
        with connection, suppress(ConnectionError):  # the generator ends in the middle of it all
            while chunk := connection.recv(1 << 16):
                commands = decoder.feed(chunk)
                self.commands += commands
                for command in commands:
                    connection.sendall(
                        encode_command(Command(code=0, opaque=command.opaque, flag=1, form=command.form))
                    )


@contextmanager
def listener() -> Iterator[tuple[Listener, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = Listener(listening)
        thread = threading.Thread(target=found.serve, daemon=True)
        thread.start()
        yield found, listening.getsockname()[1]
        thread.join(10)


def requests_of(load: Load) -> list[Command]:
    with listener() as (found, port):
        run(load, ports=[port], pids=[])
    assert len(found.commands) > load.depth
    return found.commands


@pytest.mark.parametrize("binary", [0, 1])
@pytest.mark.parametrize("more", [{}, {"batch": 3}, {"pull": 1}, {"delay_level": 2}], ids=str)
def test_signed_requests_are_signed(binary: int, more: dict[str, int]) -> None:
    """Goal: every frame is valid for the code that clients and brokers use, and for the kernel."""
    accounts = Accounts()
    accounts.put(Account(b"bench-user", [b"bench-secret"], None))
    check = SignatureCheck()
    for command in requests_of(replace(SIGNED, binary=binary, **more)):  # type: ignore[arg-type]
        assert command.form is (HeaderForm.BINARY if binary else HeaderForm.JSON)
        assert command.ext_fields[ACCESS_KEY] == "bench-user"
        assert is_signed(command, "bench-secret")
        assert check.signer_of(bytes(encode_command(command)), accounts) is not None


def test_requests_are_not_signed_unless_asked() -> None:
    for command in requests_of(SHORT):
        assert not {ACCESS_KEY, SIGNATURE} & set(command.ext_fields)


def test_long_secrets_are_hashed_first() -> None:
    """Goal: RFC 2104 in the generator too."""
    secret = "long" * 30
    assert all(is_signed(command, secret) for command in requests_of(replace(SIGNED, secret_key=secret)))


@pytest.mark.parametrize("binary", [0, 1])
def test_sends_are_those_of_clients(binary: int) -> None:
    """Goal: the fields and properties that a broker's fast path expects, equal in both header forms."""
    command = requests_of(replace(SHORT, binary=binary))[0]
    assert command.code == 310
    assert set(command.ext_fields) == set("abcdefghijkm")
    properties = decode_properties(command.ext_fields["i"].encode())
    assert set(properties) == {"KEYS", "UNIQ_KEY", "WAIT", "TAGS"}
    assert len(command.body) == SHORT.body


def test_delayed_sends_name_their_level() -> None:
    command = requests_of(replace(SHORT, delay_level=3))[0]
    assert decode_properties(command.ext_fields["i"].encode())["DELAY"] == "3"
    assert decode_properties(command.ext_fields["i"].encode())["WAIT"] == "true"


def test_wide_sends_have_a_property_beyond_ascii() -> None:
    command = requests_of(replace(SHORT, wide=1))[0]
    assert decode_properties(command.ext_fields["i"].encode())["note"] == "café"


def test_batches_have_all_their_messages() -> None:
    command = requests_of(replace(SHORT, batch=3))[0]
    assert (command.code, command.ext_fields["m"]) == (320, "true")
    assert [len(each.body) for each in decode_batch(command.body)] == [SHORT.body] * 3
