"""Attacks on the fenced replication port with raw frames: forged epochs, impostors of slaves and of the master."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.broker.config import BrokerConfig
from rocketq.broker.ha.fenced_replicas import load_secret, replication_tls
from rocketq.errors import ConfigError
from rocketq.remoting.certificates import write_self_signed
from rocketq.replication import fenced_listener
from rocketq.replication.agent import Role
from rocketq.replication.fenced_auth import AuthRequest, Credentials, StreamIdentity, encode_auth_request, make_proof
from rocketq.replication.fenced_frames import (
    Frame,
    FrameDecoder,
    FrameType,
    Introduction,
    ack,
    encode_frame,
    encode_introduction,
)

from .groups import HANG_S, LocalGroup, Member, bytes_of, until

EPOCH_MAX = (1 << 31) - 1
STRANGER = Credentials(bytes(32), {})


def run(group: Callable[[], LocalGroup], work: Callable[[LocalGroup], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(HANG_S), group() as members:
            await work(members)

    asyncio.run(limited())


class Peer:
    """A raw connection to a replication port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self.received = b""

    @classmethod
    async def connect(cls, port: int) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, *frames: Frame) -> None:
        self._writer.write(b"".join(map(encode_frame, frames)))

    async def next(self) -> Frame | None:
        """None at the end of the connection."""
        while not self._frames:
            try:
                data = await self._reader.read(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.received += data
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def ended(self) -> list[Frame]:
        """All frames until the master closes the connection."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        self._writer.close()
        return frames


def introduction(master: Member, slave_id: int) -> Introduction:
    own = master.replica._introduction()
    return replace(own, broker_id=slave_id, check_code="forged")


def identity(master: Member, slave_id: int) -> StreamIdentity:
    agent = master.replica.agent
    codes = {number: each.value.check_code for number, each in agent.view.replicas.items()}
    state = agent.state
    return StreamIdentity(
        state.cluster,
        state.broker_name,
        state.epoch,
        state.broker_id,
        codes[state.broker_id],
        slave_id,
        codes[slave_id],
    )


def auth_request(known: StreamIdentity, nonce: bytes) -> Frame:
    request = AuthRequest(known.cluster, known.broker_name, known.master_id, known.slave_id, nonce)
    return Frame(type=FrameType.AUTH_REQUEST, master_epoch=known.epoch, body=encode_auth_request(request))


def credentials(master: Member) -> Credentials:
    secret = master.replica._credentials()
    assert secret is not None
    return secret


async def authenticate(master: Member, slave_id: int) -> Peer:
    """A connection of a peer that knows the secret and the check codes."""
    known, nonce = identity(master, slave_id), os.urandom(32)
    peer = await Peer.connect(master.port)
    peer.send(auth_request(known, nonce))
    challenge = await peer.next()
    assert challenge is not None
    proof = make_proof(credentials(master), "slave", known, nonce, challenge.body[:32])
    peer.send(Frame(type=FrameType.AUTH_PROOF, master_epoch=known.epoch, body=proof))
    return peer


async def assert_serves(group: LocalGroup, master: Member, number: int) -> None:
    assert master.leads, group.describe()
    assert await master.is_answered(master.append(number))


def test_a_forged_epoch_has_no_effect(tmp_path: Path) -> None:
    """Goal: frames with the largest epoch neither end a mastership nor reach haState; restarted replicas serve."""

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        slaves = group.others(master)
        epoch = master.replica.agent.state.epoch
        own = encode_introduction(introduction(master, slaves[0].replica.agent.broker_id))
        for kind, body in (
            (FrameType.HELLO, own),
            (FrameType.ACK, b""),
            (FrameType.REJECT, b'{"reason": ""}'),
            (FrameType.HEARTBEAT, b""),
            (FrameType.AUTH_REQUEST, encode_auth_request(AuthRequest("cluster", "broker-a", 1, 2, bytes(32)))),
        ):
            for member in group.members:
                peer = await Peer.connect(member.port)
                peer.send(Frame(type=kind, master_epoch=EPOCH_MAX, body=body))
                for frame in await peer.ended():
                    assert frame.type is FrameType.REJECT
                    assert frame.master_epoch == 0
        await assert_serves(group, master, 1)
        for member in group.members:
            assert member.replica.agent.state.epoch == epoch
            assert member.replica.replica.load_state().epoch == epoch
        for member in group.members:
            await member.stop(cleanly=False)
            await member.start()
        await assert_serves(group, await group.leader(), 2)

    run(lambda: LocalGroup(tmp_path), work)


def test_an_impostor_of_a_slave_acknowledges_nothing(tmp_path: Path) -> None:
    """Goal: with both slaves down, peers that claim their ids and acknowledge everything confirm no message, and learn
    nothing about the log."""

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        slaves = group.others(master)
        ids = [slave.replica.agent.broker_id for slave in slaves]
        known = [identity(master, slave_id) for slave_id in ids]
        assert await master.is_answered(master.append(1))
        confirmed = master.replica.agent.confirm_offset
        for slave in slaves:
            await slave.stop(cleanly=False)
        end = master.append(2)

        async def impostor(who: StreamIdentity) -> bytes:
            peer = await Peer.connect(master.port)
            claim = encode_introduction(introduction(master, who.slave_id))
            hello = Frame(type=FrameType.HELLO, master_epoch=who.epoch, body=claim)
            forged = make_proof(STRANGER, "slave", who, bytes(32), bytes(32))
            peer.send(
                auth_request(who, bytes(32)), Frame(type=FrameType.AUTH_PROOF, master_epoch=who.epoch, body=forged)
            )
            peer.send(hello, ack(who.epoch, end, end))
            frames = await peer.ended()
            assert {frame.type for frame in frames} <= {FrameType.AUTH_CHALLENGE, FrameType.REJECT}
            other = await Peer.connect(master.port)
            other.send(hello, ack(who.epoch, end, end))
            assert await other.ended() == []
            return peer.received + other.received

        received = b"".join(await asyncio.gather(*map(impostor, known * 5)))
        assert b"epochs" not in received
        assert b"logEnd" not in received
        assert master.replica.agent.confirm_offset == confirmed
        assert not await master.is_answered(end, timeout_s=1)
        for slave in slaves:
            await slave.start()
        assert await (await group.leader()).is_answered((await group.leader()).append(3))
        await group.is_equal()

    run(lambda: LocalGroup(tmp_path), work)


@pytest.mark.parametrize("fault", ["replay", "reflection", "other id", "other epoch", "no proof"])
def test_a_proof_is_valid_once_for_one_replica(tmp_path: Path, fault: str) -> None:
    """Goal: a recorded proof, the master's own one, and one for another id or epoch authenticate nobody."""

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        first, second = (slave.replica.agent.broker_id for slave in group.others(master))
        known, nonce = identity(master, first), os.urandom(32)
        peer = await Peer.connect(master.port)
        peer.send(auth_request(known, nonce))
        challenge = await peer.next()
        assert challenge is not None
        master_nonce = challenge.body[:32]
        proofs = {
            "replay": make_proof(credentials(master), "slave", known, nonce, os.urandom(32)),
            "reflection": challenge.body[32:],
            "other id": make_proof(credentials(master), "slave", identity(master, second), nonce, master_nonce),
            "other epoch": make_proof(
                credentials(master), "slave", replace(known, epoch=known.epoch + 1), nonce, master_nonce
            ),
            "no proof": b"",
        }
        peer.send(Frame(type=FrameType.AUTH_PROOF, master_epoch=known.epoch, body=proofs[fault]))
        (rejection,) = await peer.ended()
        assert (rejection.type, rejection.master_epoch) == (FrameType.REJECT, 0)
        assert json.loads(rejection.body)["reason"] == "authentication failed"
        await assert_serves(group, master, 1)

    run(lambda: LocalGroup(tmp_path), work)


def test_a_slave_takes_nothing_from_an_impostor_of_its_master(tmp_path: Path) -> None:
    """Goal: a process at the master's address that does not know the secret gets no log position, and its records and
    confirm offsets reach nobody."""

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        assert await master.is_answered(master.append(1))
        await group.is_equal()
        slave = group.others(master)[0]
        before = bytes_of(slave.store)
        epoch, end = master.replica.agent.state.epoch, master.store.log_end
        requests: list[bytes] = []
        replies: list[bytes] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requests.append(await reader.read(1 << 16))
            welcome = encode_introduction(master_introduction)
            writer.write(
                b"".join(
                    encode_frame(frame)
                    for frame in (
                        Frame(type=FrameType.AUTH_CHALLENGE, master_epoch=epoch, body=os.urandom(64)),
                        Frame(type=FrameType.WELCOME, master_epoch=epoch, offset=end, body=welcome),
                        Frame(type=FrameType.DATA, master_epoch=epoch, data_epoch=epoch, offset=end, body=b"forged"),
                        Frame(type=FrameType.HEARTBEAT, master_epoch=EPOCH_MAX, offset=end, second=end + 9),
                    )
                )
            )
            replies.append(await reader.read(1 << 16))
            writer.close()

        master_introduction = master.replica._introduction()
        await master.stop(cleanly=False)
        server = await asyncio.start_server(answer, "127.0.0.1", master.port)
        await until(lambda: len(replies) >= 2)
        server.close()
        assert all(b"epochs" not in request for request in requests)
        assert not any(replies)
        assert bytes_of(slave.store)[: len(before)] == before
        assert b"forged" not in bytes_of(slave.store)
        await until(lambda: any(member.leads for member in group.others(master)), group.describe)
        assert max(member.replica.agent.state.epoch for member in group.others(master)) < EPOCH_MAX
        await master.start()
        await assert_serves(group, await group.leader(), 2)
        await group.is_equal()

    run(lambda: LocalGroup(tmp_path), work)


def test_a_slave_with_another_log_is_not_counted(tmp_path: Path) -> None:
    """Goal: an authenticated replica whose bytes differ below the rejoin point is rejected; its acknowledgement does
    not count."""

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        for number in range(50):
            end = master.append(number)
        assert await master.is_answered(end)
        slave = group.others(master)[0]
        slave_id = slave.replica.agent.broker_id
        await slave.stop(cleanly=False)
        await until(lambda: slave_id not in master.replica.agent.term.in_sync)  # type: ignore[union-attr]
        segment = next(path for path in sorted((slave.root / "commitlog").iterdir()))
        with segment.open("r+b") as file:
            file.seek(200)
            byte = file.read(1)
            file.seek(200)
            file.write(bytes([byte[0] ^ 1]))
        await slave.start()
        await until(lambda: slave.replica.unrelated is not None, group.describe)
        assert "differs" in (slave.replica.unrelated or "")
        term = master.replica.agent.term
        assert term is not None
        assert slave_id not in term.in_sync
        await assert_serves(group, master, 100)

    run(lambda: LocalGroup(tmp_path), work)


def test_an_acknowledgement_above_what_was_sent_closes_the_connection(tmp_path: Path) -> None:
    """Goal: an authenticated slave cannot confirm records that it was not sent on this connection."""

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        slave = group.others(master)[0]
        slave_id = slave.replica.agent.broker_id
        for number in range(9):
            end = master.append(number)
        assert await master.is_answered(end)
        empty = replace(
            introduction(master, slave_id), shape=replace(master.replica.replica.shape, end=master.store.log_start)
        )
        await slave.stop(cleanly=False)
        peer = await authenticate(master, slave_id)
        epoch = master.replica.agent.state.epoch
        peer.send(Frame(type=FrameType.HELLO, master_epoch=epoch, body=encode_introduction(empty)))
        welcome = await peer.next()
        assert welcome is not None
        assert welcome.type is FrameType.WELCOME
        confirmed = master.replica.agent.confirm_offset
        peer.send(ack(epoch, end, end))
        assert await peer.ended() == []
        assert master.replica.agent.confirm_offset == confirmed

    run(lambda: LocalGroup(tmp_path), work)


def test_unauthenticated_connections_keep_no_slave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: silent peers are limited in number and time; a slave that returns meanwhile joins."""
    monkeypatch.setattr(fenced_listener, "AUTH_MS_MAX", 60_000)

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        slave = group.others(master)[0]
        await slave.stop(cleanly=False)
        silent = [socket.create_connection(("127.0.0.1", master.port)) for _ in range(100)]
        try:
            limit = fenced_listener.UNAUTHENTICATED_MAX
            listener = master.replica.listener
            await until(lambda: len(listener.unauthenticated) == limit, group.describe)
            await slave.start()
            await assert_serves(group, await group.leader(), 1)
            monkeypatch.setattr(fenced_listener, "AUTH_MS_MAX", 0)
            await until(lambda: not listener.unauthenticated)
        finally:
            for each in silent:
                each.close()
        assert master.replica.agent.role is Role.LEADING

    run(lambda: LocalGroup(tmp_path), work)


def test_replicas_that_start_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    """Goal: the first transaction creates the secret; it is in no representation of the view or of a change."""

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        secrets = {credentials(member).secret for member in group.members}
        assert len(secrets) == 1
        (secret,) = secrets
        assert len(secret) == 32
        assert secret.hex() not in repr(master.replica.agent.view)
        assert repr(secret) not in repr(master.replica.agent.view)

    run(lambda: LocalGroup(tmp_path), work)


def test_a_replica_with_another_secret_is_kept_out(tmp_path: Path) -> None:
    """Goal: haSecretFile of two replicas is equal, of the third one not: it neither follows nor counts."""
    one, other = b"the same secret of two", b"another one altogether"

    async def work(group: LocalGroup) -> None:
        await until(lambda: any(member.leads for member in group.members[:2]), group.describe)
        master = next(member for member in group.members[:2] if member.leads)
        await until(lambda: len(master.replica.agent.term.in_sync) == 2, group.describe)  # type: ignore[union-attr]
        assert await master.is_answered(master.append(1))
        stranger = group.members[2]
        await until(lambda: "authentication failed" in stranger.replica.follower.failure, group.describe)
        assert stranger.replica.agent.view.secret is None
        assert stranger.store.log_end == 0
        term = master.replica.agent.term
        assert term is not None
        assert len(term.in_sync) == 2

    async def limited() -> None:
        group = LocalGroup(tmp_path, secrets=[one, one, other])
        async with asyncio.timeout(HANG_S):
            for member in group.members[:2]:
                await member.start()
                await until(lambda: group.members[0].leads, group.describe)
            await group.members[2].start()
            try:
                await work(group)
            finally:
                await group.__aexit__()

    asyncio.run(limited())


async def first_byte(master: Member, context: ssl.SSLContext) -> bytes:
    """Of the answer to a valid request; empty when the connection fails."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.port, ssl=context)
        writer.write(encode_frame(auth_request(identity(master, 2), bytes(32))))
        try:
            return await reader.read(1)
        finally:
            writer.close()
    except OSError:  # SSLError is one
        return b""


def test_replication_over_tls_requires_certificates_of_the_authority(tmp_path: Path) -> None:
    """Goal: replicas with certificates replicate; peers without one or with one of another authority get nothing."""
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    cert, key = write_self_signed(tmp_path / "own")
    other_cert, other_key = write_self_signed(tmp_path / "other")

    def contexts(own: Path, own_key: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        given = {"haTlsCa": str(cert), "haTlsCert": str(own), "haTlsKey": str(own_key)}
        made = replication_tls(BrokerConfig.from_java({"brokerName": "b"} | given))
        assert made is not None
        return made

    async def work(group: LocalGroup) -> None:
        master = await group.leader()
        assert await master.is_answered(master.append(1))
        await group.is_equal()
        plain = await Peer.connect(master.port)
        plain.send(auth_request(identity(master, 2), bytes(32)))
        assert await plain.ended() == []
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
        for context in (bare, contexts(other_cert, other_key)[1]):
            assert await first_byte(master, context) == b""
        await assert_serves(group, master, 2)

    run(lambda: LocalGroup(tmp_path / "data", tls=contexts(cert, key)), work)


@pytest.mark.parametrize("content", [b"short", None], ids=["too short", "absent"])
def test_a_bad_secret_file_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    """Goal: one line that names the setting."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="haSecretFile"):
        load_secret(str(path))


def test_tls_files_are_set_together() -> None:
    """Goal: a certificate without its authority is no TLS."""
    with pytest.raises(ConfigError, match="haTlsCa"):
        BrokerConfig.from_java({"brokerName": "b", "haTlsCert": "cert.pem"})
