"""etcd of three members that die, hang and come back; passwords; TLS; what is no etcd at all."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rocketq.errors import ConfigError
from rocketq.replication import control
from rocketq.replication.control import ControlError, LeaseLostError, MasterKey, Put, Transaction
from rocketq.replication.etcd_gateway import EtcdConfig
from rocketq.testing.etcd import LocalEtcd, free_ports
from tests.sim.kernel_forms import COMPILED_IS_TESTED_TOO

from .test_control_stores import GROUP, elect, in_time, join, needs_etcd, opened

pytestmark = [
    needs_etcd,
    pytest.mark.slow,
    pytest.mark.skipif(COMPILED_IS_TESTED_TOO, reason="no kernel is used: run with the compiled one"),
]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalEtcd]:
    with LocalEtcd(tmp_path, members=3) as cluster:
        yield cluster


async def read_soon(store: control.ControlStore, tries_s: float = 20) -> control.GroupView:
    """etcd needs a moment for an election of its own."""
    deadline = time.monotonic() + tries_s
    while True:
        try:
            return await store.read(GROUP)
        except ControlError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


def test_a_dead_or_hanging_endpoint_is_left_within_a_second(three: LocalEtcd) -> None:
    """Goal: one member killed, then one stopped: calls go on at the others."""

    async def work() -> None:
        async with opened(EtcdConfig(endpoints=three.endpoints)) as store:
            await join(store, "a")
            three.members[0].kill()
            assert set((await read_soon(store)).replicas) == {1}
            three.start_member(three.members[0])
            three.wait_ready()
        for member in three.members:
            async with opened(EtcdConfig(endpoints=(member.endpoint, *three.endpoints))) as store:
                member.signal(signal.SIGSTOP)
                began = time.monotonic()
                try:
                    view = await store.read(GROUP)
                    assert time.monotonic() - began < 10  # one endpoint's time, on a machine that may be busy
                except ControlError:  # the leader hangs: the others must elect one first
                    view = await read_soon(store)
                finally:
                    member.signal(signal.SIGCONT)
                assert set(view.replicas) == {1}

    in_time(work())


def test_all_members_killed_at_once_keep_what_was_committed(three: LocalEtcd) -> None:
    """Goal: no epoch is ever used twice, the state is the last committed one."""

    async def work() -> None:
        async with opened(EtcdConfig(endpoints=three.endpoints)) as store:
            number = await join(store, "a")
            for epoch in (1, 2):
                lease = await store.grant(5_000)
                assert (await elect(store, number, lease)).epoch == epoch
                for member in three.members:
                    member.kill()
                with pytest.raises(ControlError):
                    await store.read(GROUP)
                three.start()
                view = await read_soon(store)
                assert view.epoch == epoch

    in_time(work())


def test_killing_the_member_that_is_asked_during_an_election_loses_no_decision(three: LocalEtcd) -> None:
    """Goal: an answer that is lost leaves the outcome to be read, and it is one of two."""

    async def work() -> None:
        async with opened(EtcdConfig(endpoints=three.endpoints)) as store:
            number = await join(store, "a")
            lease = await store.grant(20_000)
            view = await store.read(GROUP)
            state, change = control.elect(view, MasterKey(number, 0, "x"), lease)
            asking = asyncio.create_task(store.commit(GROUP, change))
            await asyncio.sleep(0)
            three.members[0].kill()
            try:
                revision = await asking
            except ControlError:
                revision = None
            after = await read_soon(store)
            assert after.epoch in (0, 1)
            if revision is not None:
                assert after.state is not None
                assert (after.state.value, after.state.revision) == (state, revision)

    in_time(work())


def test_users_and_passwords(tmp_path: Path) -> None:
    """Goal: with etcd's authentication on, the right password is needed and enough."""

    async def work(server: LocalEtcd) -> None:
        async with opened(EtcdConfig(endpoints=server.endpoints)) as plain:
            await switch_auth_on(plain)
            with pytest.raises(ControlError):
                await plain.read(GROUP)
        async with opened(EtcdConfig(endpoints=server.endpoints, user="root", password="wrong")) as store:
            with pytest.raises(ControlError, match="rejected the login"):
                await store.read(GROUP)
        async with opened(EtcdConfig(endpoints=server.endpoints, user="root", password="secret")) as store:
            assert await join(store, "a") == 1
            lease = await store.grant(5_000)
            await store.keep_alive(lease)
            assert (await elect(store, 1, lease)).epoch == 1
            assert await store.wait_for_change(GROUP, 1, 5_000)

    with LocalEtcd(tmp_path) as server:
        in_time(work(server))


async def switch_auth_on(store: object) -> None:
    gateway = store._gateway  # type: ignore[attr-defined]
    await gateway.call("auth/user/add", {"name": "root", "password": "secret"})
    await gateway.call("auth/role/add", {"name": "root"})
    await gateway.call("auth/user/grant", {"user": "root", "role": "root"})
    await gateway.call("auth/enable", {})


def test_nothing_or_something_else_at_the_endpoint(tmp_path: Path) -> None:
    """Goal: an error that can be told and tried again, never an unknown exception."""

    async def work() -> None:
        (port,) = free_ports(1)
        async with opened(EtcdConfig(endpoints=(f"http://127.0.0.1:{port}",))) as store:
            with pytest.raises(ControlError, match="no etcd endpoint answers"):
                await store.read(GROUP)
            with pytest.raises(ControlError):
                await store.commit(GROUP, Transaction((), (Put("last_id", b"1"),)))
            with pytest.raises(ControlError):
                await store.wait_for_change(GROUP, 1, 1_000)

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, opened(EtcdConfig(endpoints=(f"http://127.0.0.1:{port}",))) as store:
            with pytest.raises(ControlError, match="is not an etcd endpoint"):
                await store.read(GROUP)

    in_time(work())


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":"etcdserver: requested lease not found","code":5,"message":"etcdserver: requested lease not found"}',
        b'{"code":5,"message":"etcdserver: requested lease not found","details":[]}',
    ],
    ids=["3.4", "3.6"],
)
def test_a_failure_is_one_however_an_etcd_words_it(body: bytes) -> None:
    """Goal: newer ones tell by the status alone; a transaction that was refused must never pass for one that lost."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, opened(EtcdConfig(endpoints=(f"http://127.0.0.1:{port}",))) as store:
            with pytest.raises(LeaseLostError):
                await store.commit(GROUP, Transaction((), (Put("last_id", b"1"),)))

    in_time(work())


@pytest.mark.parametrize(
    "url", ["http://h:2379", "etcd://", "h:2379", "etcd://u:p@h:2379", "etcds:///prefix"], ids=range(5)
)
def test_a_wrong_address_is_told(url: str) -> None:
    """Goal: one clear line at the start."""
    with pytest.raises(ConfigError, match="haControl"):
        EtcdConfig.from_url(url)


def test_addresses_of_several_members() -> None:
    """Goal: as the settings have it."""
    config = EtcdConfig.from_url("etcds://a:2379,b:2380/my/prefix", user="u", password="p")
    assert config.endpoints == ("https://a:2379", "https://b:2380")
    assert (config.prefix, config.user) == ("my/prefix", "u")
    assert EtcdConfig.from_url("etcd://a:2379").prefix == "rocketq"


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, its own authority."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "etcd")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    key_id = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(key_id, critical=False)
        .sign(private, hashes.SHA256())
    )
    cert, key = folder / "cert.pem", folder / "key.pem"
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(private.private_bytes(*plain))
    return cert, key


def test_tls(tmp_path: Path) -> None:
    """Goal: etcds:// with the authority's certificate works, without it the endpoint is not believed."""
    cert, key = write_certificate(tmp_path)
    extra = [f"--cert-file={cert}", f"--key-file={key}"]

    async def work(server: LocalEtcd) -> None:
        url = server.url.replace("etcd:", "etcds:")
        async with opened(EtcdConfig.from_url(url, ca_path=str(cert))) as store:
            await read_soon(store)
            assert await join(store, "a") == 1
            assert await store.wait_for_change(GROUP, 1, 5_000)
        async with opened(EtcdConfig.from_url(url)) as store:
            with pytest.raises(ControlError, match="no etcd endpoint answers"):
                await store.read(GROUP)
        with pytest.raises(ConfigError, match="cannot be loaded"):
            EtcdConfig.from_url(url, ca_path=str(tmp_path / "none")).tls_context()

    with LocalEtcd(tmp_path / "etcd", extra=extra, scheme="https") as server:
        in_time(work(server))
