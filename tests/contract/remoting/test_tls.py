"""TLS and plain frames on one port."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.errors import TlsError, UnreachableError
from rocketq.protocol.command import Command
from rocketq.remoting import ClientTls, ConnectionPool, TlsConfig, TlsMode, certificates
from rocketq.remoting.certificates import write_self_signed

from .conftest import Run
from .peers import BIG_BYTES, ECHO, raw_peer, serving


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    try:
        return write_self_signed(tmp_path)
    except TlsError as error:
        pytest.skip(str(error))


@pytest.fixture
def config(certificate: tuple[Path, Path]) -> TlsConfig:
    return TlsConfig(cert_path=certificate[0], key_path=certificate[1])


def request(**members: object) -> Command:
    return Command(code=ECHO, **members)  # type: ignore[arg-type]


async def is_served(addr: str, *, tls: bool) -> bool:
    try:
        async with raw_peer(addr, tls=tls) as peer:
            peer.send(request())
            try:
                return (await peer.receive()).code == 0
            except EOFError:
                return False
    except (ConnectionError, ssl.SSLError):
        return False


@pytest.mark.parametrize(
    ("mode", "plain", "encrypted"),
    [(TlsMode.PERMISSIVE, True, True), (TlsMode.ENFORCING, False, True), (TlsMode.DISABLED, True, False)],
)
def test_interop_16_who_is_served_in_which_mode(
    run: Run, config: TlsConfig, mode: TlsMode, plain: bool, encrypted: bool
) -> None:
    async def main() -> None:
        async with serving(tls=replace(config, mode=mode)) as server:
            for _ in range(2):
                assert await is_served(server.addr, tls=False) is plain
                assert await is_served(server.addr, tls=True) is encrypted

    run(main())


def test_a_server_without_a_certificate_makes_one(run: Run, certificate: tuple[Path, Path]) -> None:
    async def main() -> None:
        async with serving() as server:
            assert await is_served(server.addr, tls=True)
            assert await is_served(server.addr, tls=False)

    run(main())


def test_a_pool_over_tls_carries_large_bodies_and_calls_both_ways(run: Run, config: TlsConfig) -> None:
    async def main() -> None:
        pool = ConnectionPool(tls=ClientTls(trust_path=config.cert_path))
        async with serving(tls=config) as server:
            body = bytes(range(256)) * (BIG_BYTES // 256)
            answers = await asyncio.gather(*(pool.invoke(server.addr, request(body=body), 20_000) for _ in range(40)))
            assert all(answer.body == body for answer in answers)
            (connection,) = server.connections
            assert connection.is_encrypted
            assert (await connection.call(request(), 1_000)).code == 3
            await pool.close()

    run(main())


def test_a_pool_that_trusts_another_certificate_does_not_connect(run: Run, config: TlsConfig, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, _ = write_self_signed(tmp_path / "other")

    async def main() -> None:
        pool = ConnectionPool(tls=ClientTls(trust_path=other))
        async with serving(tls=config) as server:
            with pytest.raises(UnreachableError):
                await pool.invoke(server.addr, request())
            assert await is_served(server.addr, tls=True)
            await pool.close()

    run(main())


def test_a_client_without_a_certificate_is_refused_where_one_is_required(run: Run, config: TlsConfig) -> None:
    cert, key = config.cert_path, config.key_path
    strict = TlsConfig(cert_path=cert, key_path=key, trust_path=cert, client_auth=ssl.CERT_REQUIRED)

    async def main() -> None:
        known = ConnectionPool(tls=ClientTls(cert_path=cert, key_path=key))
        async with serving(tls=strict) as server:
            assert not await is_served(server.addr, tls=True)
            assert (await known.invoke(server.addr, request())).code == 0
            await known.close()

    run(main())


@pytest.mark.parametrize("garbage", [b"\x16", b"\x16\x03\x01\xff\xff" + bytes(100), b"\x16\x03\x01\x00\x05hello"])
def test_a_bad_handshake_ends_its_connection_only(run: Run, config: TlsConfig, garbage: bytes) -> None:
    async def main() -> None:
        async with serving(tls=config) as server:
            async with raw_peer(server.addr) as peer:
                peer.send_bytes(garbage)
                peer.writer.write_eof()
                await peer.reader.read()
            assert await is_served(server.addr, tls=True)

    run(main())


def test_a_changed_certificate_is_used_for_the_next_handshake(run: Run, config: TlsConfig, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    cert, key = write_self_signed(tmp_path / "new")

    async def main() -> None:
        pool = ConnectionPool(tls=ClientTls(trust_path=cert))
        async with serving(tls=config) as server:
            with pytest.raises(UnreachableError):
                await pool.invoke(server.addr, request())
            assert config.cert_path is not None
            assert config.key_path is not None
            config.cert_path.write_bytes(cert.read_bytes())
            config.key_path.write_bytes(key.read_bytes())
            assert (await pool.invoke(server.addr, request())).code == 0
            await pool.close()

    run(main())


def test_a_wrong_certificate_file_stops_the_start(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")

    async def main() -> None:
        with pytest.raises(TlsError):
            async with serving(tls=TlsConfig(cert_path=tmp_path / "cert.pem")):
                pass

    run(main())


def test_without_anything_to_make_a_certificate_plain_clients_are_still_served(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_package(cert: Path, key: Path) -> None:
        raise ImportError

    monkeypatch.setattr(certificates, "_by_package", no_package)
    monkeypatch.setattr(certificates.shutil, "which", lambda name: None)

    async def main() -> None:
        async with serving() as server:
            assert not await is_served(server.addr, tls=True)
            assert await is_served(server.addr, tls=False)

    run(main())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl command")
def test_the_openssl_command_makes_a_certificate_too(tmp_path: Path) -> None:
    certificates._by_command(tmp_path / "cert.pem", tmp_path / "key.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
