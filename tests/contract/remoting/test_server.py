"""A live server over loopback: frames, answers, failures, limits."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from contextlib import AsyncExitStack

import pytest

from rocketq.errors import UnreachableError
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import CommandFlag, Language
from rocketq.protocol.frame import encode_command
from rocketq.remoting import Connection, Limits, Server

from .conftest import Run
from .peers import (
    BIG,
    BIG_BYTES,
    BROKEN,
    ECHO,
    FRAME_BYTES,
    LATE,
    REFUSED,
    SILENT,
    SLOW,
    STRICT,
    TOO_BIG,
    UNKNOWN,
    make_dispatcher,
    raw_peer,
    serving,
)

TOIL = 9100


def framed(header: str) -> bytes:
    return struct.pack(">ii", 4 + len(header), len(header)) + header.encode()


def request(code: int, opaque: int = 7, **members: object) -> Command:
    return Command(code=code, opaque=opaque, **members)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", list(HeaderForm))
def test_interop_1_5_14_an_answer_has_the_opaque_the_form_and_a_version(run: Run, form: HeaderForm) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            answer = await peer.ask(request(ECHO, 42, body=b"hello", ext_fields={"a": "b"}, form=form))
            assert (answer.opaque, answer.flag, answer.form) == (42, CommandFlag.RESPONSE, form)
            assert (answer.body, answer.ext_fields) == (b"hello", {"a": "b"})
            assert answer.version >= 232

    run(main())


def test_interop_2_answers_come_in_any_order(run: Run) -> None:
    """Goal: a request that takes time never delays a later one on the same connection."""

    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            peer.send(request(SLOW, 1, ext_fields={"seconds": "0.2"}), request(LATE, 2), request(ECHO, 3))
            assert [(await peer.receive()).opaque for _ in range(3)] == [3, 2, 1]

    run(main())


@pytest.mark.parametrize("code", [ECHO, UNKNOWN, BROKEN, STRICT, REFUSED])
def test_interop_3_a_oneway_request_gets_no_answer(run: Run, code: int) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            peer.send(request(code, 1, flag=CommandFlag.ONEWAY))
            assert (await peer.ask(request(ECHO, 2))).opaque == 2

    run(main())


def test_interop_4_who_ignores_the_answer_but_does_not_say_so_is_answered(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            assert (await peer.ask(request(ECHO, 1, flag=0))).code == 0

    run(main())


def test_interop_6_7_ext_values_are_texts_and_numbers_are_small(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            peer.send(request(ECHO, ext_fields={"queueId": "3"}))
            frame_bytes, header_bytes = struct.unpack(">ii", await peer.reader.readexactly(8))
            header = json.loads((await peer.reader.readexactly(frame_bytes - 4))[:header_bytes])
            assert header["extFields"] == {"queueId": "3"}
            assert all(-32768 <= header[name] <= 32767 for name in ("code", "version"))

    run(main())


def test_interop_8_9_headers_of_other_clients_are_read(run: Run) -> None:
    """Goal: numbers and booleans as ext values, unknown members, an empty remark, an unknown language."""
    header = (
        b'{"code":%d,"flag":0,"opaque":5,"language":"COBOL","version":1,"remark":"","more":[1],'
        b'"extFields":{"queueId":3,"k":false,"other":"x"}}' % ECHO
    )
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header

    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            peer.send_bytes(frame)
            answer = await peer.receive()
            assert answer.ext_fields == {"queueId": "3", "k": "false", "other": "x"}

    run(main())


def test_interop_10_the_largest_frame_is_taken_and_a_larger_one_closes(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            async with raw_peer(server.addr) as peer:
                head = len(encode_command(request(SILENT, body=b"")))
                frame = encode_command(request(SILENT, body=bytes(FRAME_BYTES - head)))
                assert len(frame) == FRAME_BYTES
                peer.send_bytes(frame)
                assert (await peer.ask(request(ECHO, 9))).opaque == 9
            async with raw_peer(server.addr) as peer:
                peer.send_bytes((FRAME_BYTES - 3).to_bytes(4, "big"))
                assert await peer.is_closed_by_peer()

    run(main())


def test_interop_11_frames_byte_by_byte_and_many_at_once(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            for byte in encode_command(request(ECHO, 1, body=b"slow")):
                peer.send_bytes(bytes([byte]))
                await peer.writer.drain()
                await asyncio.sleep(0)
            assert (await peer.receive()).body == b"slow"
            peer.send(*(request(ECHO, opaque) for opaque in range(1000)))
            assert [(await peer.receive()).opaque for _ in range(1000)] == list(range(1000))

    run(main())


def test_interop_12_an_unknown_code_is_answered_with_3(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            answer = await peer.ask(request(UNKNOWN))
            assert answer.code == 3
            assert str(UNKNOWN) in (answer.remark or "")

    run(main())


def test_interop_13_a_missing_field_is_answered_with_1_and_the_connection_stays(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            answer = await peer.ask(request(STRICT, 1, ext_fields={"namespace": "N"}))
            assert answer.code == 1
            assert "key" in (answer.remark or "")
            assert (await peer.ask(request(ECHO, 2))).opaque == 2

    run(main())


def test_a_failing_handler_is_code_1_and_a_refusal_its_own_code(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            answer = await peer.ask(request(BROKEN))
            assert (answer.code, answer.remark) == (1, "ZeroDivisionError: not foreseen")
            answer = await peer.ask(request(REFUSED))
            assert (answer.code, answer.remark, answer.ext_fields) == (16, "not for you", {"why": "test"})
            answer = await peer.ask(request(TOO_BIG))
            assert answer.code == 1
            assert "limit" in (answer.remark or "")

    run(main())
    assert "request 9006 failed" in caplog.text


@pytest.mark.parametrize(
    ("members", "remark"),
    [
        ('"extFields":[]', "extFields must be an object"),
        ('"extFields":"x"', "extFields must be an object"),
        ('"version":"x"', "header member version is not a 32-bit number: 'x'"),
        ('"version":{}', "header member version is not a 32-bit number: '{}'"),
        ('"code":[9000]', "header member code is not a 32-bit number: '[9000]'"),
        ('"code":99999999999', "header member code is not a 32-bit number: '99999999999'"),
    ],
)
def test_a_header_with_members_of_wrong_kinds_is_answered_and_the_connection_stays(
    run: Run, members: str, remark: str
) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            for flag, opaque in ((2, 1), (0, 2)):  # of the first, one-way, nothing is heard
                peer.send_bytes(framed(f'{{"code":{int(ECHO)},"flag":{flag},"opaque":{opaque},{members}}}'))
            answer = await peer.receive()
            assert (answer.opaque, answer.code, answer.remark) == (2, 1, remark)
            assert (await peer.ask(request(ECHO, 3))).code == 0

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x10\x00\x00\x00\xff" + bytes(12),
        b"\x00\x00\x00\x08\x00\x00\x00\x04nope",
        b"\x00\x00\x00\x08\x07\x00\x00\x04{}  ",
        b"\x00\x00\x00\x07\x01\x00\x00\x03\x00\x01\x02",
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",
        framed('{"extFields":5}'),
        framed('{"version":"x","opaque":"one"}'),
        framed('{"version":"x","opaque":1,"flag":1}'),
    ],
)
def test_garbage_closes_its_connection_and_no_other(run: Run, garbage: bytes) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as other:
            async with raw_peer(server.addr) as peer:
                peer.send_bytes(garbage)
                assert await peer.is_closed_by_peer()
            assert (await other.ask(request(ECHO))).code == 0

    run(main())


def test_requests_before_garbage_are_answered(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            peer.send_bytes(encode_command(request(ECHO, 1)) + b"\xff\xff\xff\xff garbage")
            assert (await peer.receive()).opaque == 1
            assert await peer.is_closed_by_peer()

    run(main())


def test_half_a_frame_then_the_end(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            for end in (1, 4, 5, 30):
                async with raw_peer(server.addr) as peer:
                    peer.send_bytes(encode_command(request(ECHO))[:end])
                    await peer.writer.drain()
            async with raw_peer(server.addr) as peer:
                assert (await peer.ask(request(ECHO))).code == 0
                assert len(server.connections) == 1

    run(main())


def test_holders_of_unfinished_frames_are_closed_and_active_peers_stay(run: Run) -> None:
    """Goal: peers that announce large frames and never end them cannot fill the memory, nor push others out."""
    frame = encode_command(request(ECHO, body=bytes(1 << 20)))
    part = frame[: 700 << 10]

    async def main() -> None:
        limits = Limits(unfinished_bytes_max=2 << 20)
        async with serving(limits=limits) as server, AsyncExitStack() as stack:
            holders = [await stack.enter_async_context(raw_peer(server.addr)) for _ in range(2)]
            for holder in holders:
                holder.send_bytes(part)
                await holder.writer.drain()
            active = await stack.enter_async_context(raw_peer(server.addr))
            await asyncio.sleep(0.2)
            for _ in range(3):
                active.send_bytes(part)
                await active.writer.drain()
                await asyncio.sleep(0.05)
                active.send_bytes(frame[len(part) :])
                assert len((await active.receive()).body) == 1 << 20
            assert await holders[0].is_closed_by_peer()

    run(main())


def test_slow_readers_are_closed_before_unsent_bytes_fill_the_memory(run: Run) -> None:
    """Goal: of many peers that do not read, those that hold most are closed; others are served."""
    limits = Limits(unsent_bytes_max=8 << 20, write_high_bytes=1 << 20)

    async def main() -> None:
        async with serving(limits=limits) as server, AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(raw_peer(server.addr)) for _ in range(12)]
            for peer in slow:
                peer.send(*(request(BIG) for _ in range(60)))
                await peer.writer.drain()
            probe = await stack.enter_async_context(raw_peer(server.addr))
            async with asyncio.timeout(20):
                while len(server.connections) == 13:
                    assert (await probe.ask(request(ECHO))).code == 0
            assert (await probe.ask(request(ECHO))).code == 0
            assert sum(connection.unsent_bytes for connection in server.connections) <= 8 << 20

    run(main())


def test_one_connection_cannot_use_all_handler_slots(run: Run) -> None:
    """Goal: a peer with many unfinished requests gets code 2, another one is served."""

    async def main() -> None:
        dispatcher = make_dispatcher(handlers_max=100)
        async with serving(dispatcher) as server, raw_peer(server.addr) as greedy, raw_peer(server.addr) as other:
            greedy.send(*(request(SLOW, ext_fields={"seconds": "1"}) for _ in range(40)))
            answers = [await greedy.receive() for _ in range(15)]
            assert {answer.code for answer in answers} == {2}
            assert "requests of this connection" in (answers[0].remark or "")
            assert (await other.ask(request(SLOW, ext_fields={"seconds": "0"}))).code == 0

    run(main())


def test_a_longer_header_than_allowed_closes_the_connection_before_it_is_read(run: Run) -> None:
    async def main() -> None:
        async with serving(limits=Limits(header_bytes_max=64 << 10)) as server:
            for form in (b"\0", b"\1"):
                async with raw_peer(server.addr) as peer:
                    peer.send_bytes((12 << 20).to_bytes(4, "big") + form + (11 << 20).to_bytes(3, "big"))
                    assert await peer.is_closed_by_peer()

    run(main())


def test_more_connections_than_may_be_are_dropped(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: those that are there are served, and when one goes there is room again."""

    async def main() -> None:
        async with serving(limits=Limits(connections_max=2)) as server, raw_peer(server.addr) as first:
            assert (await first.ask(request(ECHO))).code == 0
            async with raw_peer(server.addr) as second:
                assert (await second.ask(request(ECHO))).code == 0
                for _ in range(3):
                    async with raw_peer(server.addr) as third:
                        assert await third.is_closed_by_peer()
                assert (await first.ask(request(ECHO))).code == 0
            while len(server.connections) > 1:
                await asyncio.sleep(0.01)
            async with raw_peer(server.addr) as late:
                assert (await late.ask(request(ECHO))).code == 0

    run(main())
    assert caplog.text.count("limit of connections reached (2): dropping new ones") == 1


def test_a_thousand_idle_connections(run: Run) -> None:
    """Goal: they cost little and keep nobody from being served."""

    async def main() -> None:
        async with serving() as server:
            idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(1000)]
            async with raw_peer(server.addr) as peer:
                assert (await peer.ask(request(ECHO))).code == 0
                assert len(server.connections) == 1001
            for _, writer in idle:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for _, writer in idle))

    run(main())


def test_interop_15_silence_closes_and_a_heartbeat_keeps(run: Run) -> None:
    async def main() -> None:
        server_with_quiet_limit = serving(limits=Limits(idle_ms=800))
        async with server_with_quiet_limit as server, raw_peer(server.addr) as quiet, raw_peer(server.addr) as alive:
            for _ in range(9):
                assert (await alive.ask(request(ECHO))).code == 0
                await asyncio.sleep(0.1)
            assert await quiet.is_closed_by_peer(timeout_s=5)
            assert (await alive.ask(request(ECHO))).code == 0

    run(main())


def test_a_slow_reader_holds_up_only_itself(run: Run) -> None:
    """Goal: 4,000 requests for 1 GB of answers, unread: the server keeps little of it, and serves others."""

    async def main() -> None:
        limits = Limits(write_high_bytes=1 << 20)
        async with serving(limits=limits) as server, raw_peer(server.addr) as slow, raw_peer(server.addr) as other:
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slow.send(*(request(BIG, opaque) for opaque in range(4000)))
            await asyncio.sleep(0.3)
            (connection,) = (one for one in server.connections if one.unsent_bytes)
            assert connection.writes_paused
            assert connection.unsent_bytes < (1 << 20) + 2 * BIG_BYTES
            assert (await other.ask(request(ECHO))).code == 0
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert [(await slow.receive()).opaque for _ in range(100)] == list(range(100))
            assert connection.unsent_bytes < (1 << 20) + 2 * BIG_BYTES

    run(main())


def test_a_peer_with_thousands_of_requests_at_once_leaves_others_their_turn(run: Run) -> None:
    """Goal: 20,000 requests from one peer, a little work each; another's is answered long before the last."""
    handled, begun = [], threading.Event()

    def toil(request: Command, connection: Connection) -> None:
        handled.append(request.opaque)
        begun.set()
        time.sleep(0.0002)

    def flood(greedy: socket.socket) -> None:
        greedy.sendall(b"".join(encode_command(request(TOIL, number, body=bytes(300))) for number in range(20_000)))

    def ask_meanwhile(modest: socket.socket) -> int:
        """How many requests of the other were handled while one of ours waited, at most."""
        assert begun.wait(10)
        waits = []
        while (before := len(handled)) < 20_000:
            modest.sendall(encode_command(request(ECHO)))
            assert modest.recv(1 << 16)
            waits.append(len(handled) - before)
        return max(waits)

    async def main() -> None:
        dispatcher = make_dispatcher()
        dispatcher.register(TOIL, toil)
        async with serving(dispatcher) as server:
            addr = (server.host, server.port)
            with socket.create_connection(addr, 30) as greedy, socket.create_connection(addr, 30) as modest:
                sending = asyncio.create_task(asyncio.to_thread(flood, greedy))
                assert await asyncio.to_thread(ask_meanwhile, modest) < 3_000
                await sending

    run(main())


def test_a_peer_that_never_reads_is_dropped_at_the_limit(run: Run) -> None:
    """Goal: what handlers answer late, and what we push, does not pile up without end."""

    async def main() -> None:
        limits = Limits(write_high_bytes=1 << 16, write_bytes_max=4 << 20)
        async with serving(limits=limits) as server, raw_peer(server.addr) as peer:
            assert (await peer.ask(request(ECHO))).code == 0
            (connection,) = server.connections
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(1000):
                connection.send(request(ECHO, body=bytes(BIG_BYTES)))
                await asyncio.sleep(0)
            assert connection.is_closed
            assert connection.unsent_bytes == 0

    run(main())


def test_interop_17_too_many_handlers_at_once_are_answered_with_2(run: Run) -> None:
    async def main() -> None:
        async with serving(make_dispatcher(handlers_max=10)) as server, raw_peer(server.addr) as peer:
            peer.send(*(request(SLOW, opaque, ext_fields={"seconds": "0.2"}) for opaque in range(12)))
            answers = [await peer.receive() for _ in range(12)]
            assert [answer.code for answer in answers] == [2, 2] + [0] * 10
            assert (answers[0].remark or "").startswith("[OVERLOAD]")
            assert (await peer.ask(request(ECHO))).code == 0

    run(main())


def test_a_check_rejects_before_the_handler_runs(run: Run) -> None:
    async def main() -> None:
        dispatcher = make_dispatcher()
        dispatcher.checks.append(lambda command, connection: command.answer(16, remark="no") if command.body else None)
        async with serving(dispatcher) as server, raw_peer(server.addr) as peer:
            assert (await peer.ask(request(BROKEN, body=b"x"))).code == 16
            assert (await peer.ask(request(ECHO))).code == 0

    run(main())


def test_hooks_see_every_request_and_its_answer(run: Run) -> None:
    seen: list[tuple[str, int, int | None]] = []

    class Recorder:
        def before(self, connection: Connection, request: Command) -> None:
            seen.append(("before", request.code, None))

        def after(self, connection: Connection, request: Command, response: Command | None) -> None:
            seen.append(("after", request.code, response and response.code))
            raise RuntimeError("a hook's fault is its own")

    async def main() -> None:
        dispatcher = make_dispatcher()
        dispatcher.hooks.append(Recorder())
        async with serving(dispatcher) as server, raw_peer(server.addr) as peer:
            for code in (ECHO, LATE, UNKNOWN):
                await peer.ask(request(code))

    run(main())
    assert seen == [
        entry
        for code, answer in ((ECHO, 0), (LATE, 0), (UNKNOWN, 3))
        for entry in (("before", code, None), ("after", code, answer))
    ]


def test_a_connection_knows_its_peer(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as peer:
            await peer.ask(request(ECHO, language=Language.GO, version=317))
            (connection,) = server.connections
            assert (connection.peer_host, connection.language, connection.version) == ("127.0.0.1", Language.GO, 317)
            assert connection.peer_port == peer.writer.get_extra_info("sockname")[1]
            assert connection.local_port == server.port
            assert connection.client_id is None

    run(main())


def test_who_is_gone_before_the_answer_hurts_nobody(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: answers given later, by a handler or by who held the request, end at a closed connection."""

    async def main() -> None:
        async with serving() as server, raw_peer(server.addr) as other:
            for _ in range(20):
                async with raw_peer(server.addr) as peer:
                    peer.send(request(LATE), request(SLOW, ext_fields={"seconds": "0.05"}), request(BIG))
                    await peer.writer.drain()
                    peer.writer.transport.abort()
            await asyncio.sleep(0.2)
            assert (await other.ask(request(ECHO))).code == 0
            assert len(server.connections) == 1

    run(main())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_drain_lets_handlers_finish_and_answers_go_out(run: Run) -> None:
    async def main() -> None:
        server = Server(make_dispatcher())
        await server.start("127.0.0.1", 0)
        async with raw_peer(server.addr) as peer:
            peer.send(request(SLOW, 1, ext_fields={"seconds": "0.3"}), request(BIG, 2))
            await peer.writer.drain()
            await asyncio.sleep(0.1)
            stop = asyncio.create_task(server.stop(drain_ms=5_000))
            await asyncio.sleep(0.05)
            peer.send(request(ECHO, 3))  # too late
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", server.port)
            assert {(await peer.receive()).opaque for _ in range(2)} == {1, 2}
            assert await peer.is_closed_by_peer()
            await stop

    run(main())


def test_a_drain_ends_in_time_whatever_handlers_and_peers_do(run: Run) -> None:
    async def main() -> None:
        server = Server(make_dispatcher())
        await server.start("127.0.0.1", 0)
        async with raw_peer(server.addr) as stuck, raw_peer(server.addr) as deaf:
            stuck.send(request(SLOW, ext_fields={"seconds": "60"}))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            deaf.send(*(request(BIG) for _ in range(100)))
            await asyncio.sleep(0.2)
            await asyncio.wait_for(server.stop(drain_ms=300), 5)
            assert not server.connections

    run(main())


class LateTransport(asyncio.Transport):
    """Of a connection that the loop accepted and has not told of yet."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def abort(self) -> None:
        self.aborted = True


def test_a_peer_that_comes_while_the_server_stops_does_not_hold_it_up(run: Run) -> None:
    """Goal: a connection that is made after all others were closed ends at once: the stop would wait for it."""

    async def main() -> None:
        server, transport = Server(make_dispatcher()), LateTransport()
        await server.start("127.0.0.1", 0)
        late = server._accept()
        await server.stop(drain_ms=1_000)
        late.connection_made(transport)
        assert transport.aborted
        late.connection_lost(None)
        assert not server.connections

    run(main())


def test_a_feed_may_answer_by_itself(run: Run) -> None:
    """Goal: the seam of the hot path: bytes once per read in, (bytes to write, commands for the handlers) out."""
    reads: list[bytes] = []

    def feed(connection: Connection, data: bytes) -> tuple[bytes, list[Command]]:
        reads.append(data)
        return (data[::-1], []) if data.startswith(b"\x00hot") else (b"", [request(ECHO, 5)])

    async def main() -> None:
        async with serving(frame_reader=feed) as server, raw_peer(server.addr) as peer:
            peer.send_bytes(b"\x00hot")
            assert await peer.reader.readexactly(4) == b"toh\x00"
            peer.send_bytes(b"\x00cold")
            assert (await peer.receive()).opaque == 5

    run(main())
    assert reads == [b"\x00hot", b"\x00cold"]


def test_a_fault_in_a_feed_ends_its_connection_only(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def feed(connection: Connection, data: bytes) -> tuple[bytes, list[Command]]:
        raise ZeroDivisionError

    async def main() -> None:
        async with serving(frame_reader=feed) as server:
            for _ in range(2):
                async with raw_peer(server.addr) as peer:
                    peer.send_bytes(b"\x00")
                    assert await peer.is_closed_by_peer()

    run(main())
    assert "reading from 127.0.0.1" in caplog.text


def test_a_port_in_use_is_said_so(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            with pytest.raises(UnreachableError) as caught:
                await Server(make_dispatcher()).start("127.0.0.1", server.port)
            assert caught.value.addr == server.addr

    run(main())
