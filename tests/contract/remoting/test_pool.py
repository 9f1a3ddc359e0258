"""A live pool of connections, and requests that servers send to their clients."""

from __future__ import annotations

import asyncio
import time

import pytest

from rocketq.errors import (
    ConfigError,
    ConnectionClosedError,
    RequestTimeoutError,
    RocketQError,
    TooManyRequestsError,
    UnreachableError,
)
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, ConnectionPool, Dispatcher, Limits, Server

from .conftest import Run
from .peers import BIG, BIG_BYTES, ECHO, SILENT, SLOW, make_dispatcher, serving

CALL_BACK = 9100


def request(code: int, **members: object) -> Command:
    return Command(code=code, **members)  # type: ignore[arg-type]


def test_many_requests_share_one_connection(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        async with serving() as server:
            bodies = [str(number).encode() for number in range(500)]
            answers = await asyncio.gather(*(pool.invoke(server.addr, request(ECHO, body=body)) for body in bodies))
            assert [answer.body for answer in answers] == bodies
            assert len(server.connections) == 1
            await pool.close()

    run(main())


def test_no_answer_in_time_is_a_timeout_and_the_connection_stays(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        async with serving() as server:
            started = time.monotonic()
            with pytest.raises(RequestTimeoutError) as caught:
                await pool.invoke(server.addr, request(SILENT), timeout_ms=200)
            assert 0.15 < time.monotonic() - started < 2
            assert (caught.value.addr, caught.value.code, caught.value.retriable) == (server.addr, SILENT, True)
            connection = await pool.connection(server.addr)
            assert connection.calls_count == 0
            assert (await pool.invoke(server.addr, request(ECHO))).code == 0
            assert await pool.connection(server.addr) is connection
            await pool.close()

    run(main())


def test_deadlines_are_met_in_any_order(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        ended: list[int] = []

        async def wait(timeout_ms: int) -> None:
            with pytest.raises(RequestTimeoutError):
                await pool.invoke(server.addr, request(SILENT), timeout_ms)
            ended.append(timeout_ms)

        async with serving() as server:
            await pool.connection(server.addr)
            await asyncio.gather(*(wait(timeout_ms) for timeout_ms in (300, 100, 200)))
            await pool.close()
        assert ended == [100, 200, 300]

    run(main())


def test_an_answer_that_comes_too_late_is_dropped(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        async with serving() as server:
            with pytest.raises(RequestTimeoutError):
                await pool.invoke(server.addr, request(SLOW, ext_fields={"seconds": "0.2"}), timeout_ms=100)
            await asyncio.sleep(0.2)
            assert (await pool.invoke(server.addr, request(ECHO, body=b"own"))).body == b"own"
            await pool.close()

    run(main())


def test_a_lost_connection_fails_what_waits_and_is_made_again(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        lost: list[str] = []
        pool.add_close_callback(lambda addr, connection: lost.append(addr))
        async with serving() as server:
            waiting = asyncio.create_task(pool.invoke(server.addr, request(SILENT), timeout_ms=10_000))
            await pool.invoke(server.addr, request(ECHO))
            for connection in server.connections:
                connection.abort()
            with pytest.raises(ConnectionClosedError) as caught:
                await waiting
            assert caught.value.retriable
            assert lost == [server.addr]
            assert (await pool.invoke(server.addr, request(ECHO))).code == 0
            await pool.close()
        assert len(lost) == 2

    run(main())


def test_nobody_there(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        async with serving() as server:
            addr = server.addr
        failures = await asyncio.gather(*(pool.invoke(addr, request(ECHO)) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(failure, UnreachableError) and failure.addr == addr for failure in failures)
        with pytest.raises(ConfigError):
            await pool.invoke("nowhere", request(ECHO))
        await pool.close()

    run(main())


def test_a_server_that_comes_back_is_found_again(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        async with serving() as server:
            await pool.invoke(server.addr, request(ECHO))
        with pytest.raises(RocketQError) as caught:
            await pool.invoke(server.addr, request(ECHO))
        assert caught.value.retriable
        again = Server(make_dispatcher())
        await again.start("127.0.0.1", server.port)
        assert (await pool.invoke(server.addr, request(ECHO))).code == 0
        await pool.close()
        await again.stop()

    run(main())


def test_a_oneway_request_arrives_and_waits_for_nothing(run: Run) -> None:
    arrived = []

    async def main() -> None:
        dispatcher = Dispatcher()
        dispatcher.register(ECHO, lambda command, connection: arrived.append(command))
        pool = ConnectionPool()
        async with serving(dispatcher) as server:
            await pool.invoke_oneway(server.addr, request(ECHO, body=b"gone"))
            while not arrived:
                await asyncio.sleep(0.01)
            await pool.close()

    run(main())
    assert arrived[0].is_oneway
    assert arrived[0].body == b"gone"


def test_too_many_requests_at_once_are_not_sent(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool(limits=Limits(calls_max=3))
        async with serving() as server:
            waiting = [asyncio.create_task(pool.invoke(server.addr, request(SILENT))) for _ in range(3)]
            await asyncio.sleep(0.1)
            with pytest.raises(TooManyRequestsError):
                await pool.invoke(server.addr, request(ECHO))
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert (await pool.invoke(server.addr, request(ECHO))).code == 0
            await pool.close()

    run(main())


def test_a_cancelled_request_leaves_nothing_behind(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        async with serving() as server:
            task = asyncio.create_task(pool.invoke(server.addr, request(SILENT)))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await pool.connection(server.addr)).calls_count == 0
            await pool.close()

    run(main())


def test_who_is_cancelled_while_connecting_does_not_take_others_along(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool()
        async with serving() as server:
            first = asyncio.create_task(pool.invoke(server.addr, request(ECHO)))
            second = asyncio.create_task(pool.invoke(server.addr, request(ECHO)))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).code == 0
            await pool.close()

    run(main())


def test_requests_and_answers_larger_than_all_buffers_pass_both_ways(run: Run) -> None:
    """Goal: a server that holds back and a client that pushes never wait for each other."""

    async def main() -> None:
        limits = Limits(write_high_bytes=64 * 1024)
        pool = ConnectionPool(limits=limits)
        async with serving(limits=limits) as server:
            calls = (pool.invoke(server.addr, request(ECHO, body=bytes(BIG_BYTES)), 30_000) for _ in range(200))
            answers = await asyncio.gather(*calls)
            assert all(len(answer.body) == BIG_BYTES for answer in answers)
            calls = (pool.invoke(server.addr, request(BIG), 30_000) for _ in range(200))
            assert all(len(answer.body) == BIG_BYTES for answer in await asyncio.gather(*calls))
            await pool.close()

    run(main())


def test_a_server_asks_its_client_on_the_same_connection(run: Run) -> None:
    """Goal: answered, refused, unknown, too slow, and gone."""

    async def main() -> None:
        pool = ConnectionPool(make_dispatcher())
        async with serving() as server:
            await pool.invoke(server.addr, request(ECHO))
            (connection,) = server.connections
            assert (await connection.call(request(ECHO, body=b"back"), 1_000)).body == b"back"
            assert (await connection.call(request(CALL_BACK), 1_000)).code == 3
            with pytest.raises(RequestTimeoutError):
                await connection.call(request(SILENT), 100)
            connection.call_oneway(request(ECHO))
            waiting = asyncio.create_task(connection.call(request(SILENT), 10_000))
            await asyncio.sleep(0.05)
            await pool.close()
            with pytest.raises(ConnectionClosedError):
                await waiting
            with pytest.raises(ConnectionClosedError):
                await connection.call(request(ECHO), 1_000)

    run(main())


def test_both_sides_ask_at_once_under_the_same_numbers(run: Run) -> None:
    """Goal: direction is told by the flag alone, so equal opaques do not meet."""

    async def main() -> None:
        pool = ConnectionPool(make_dispatcher())
        async with serving() as server:
            await pool.invoke(server.addr, request(ECHO))
            (connection,) = server.connections
            ours = [pool.invoke(server.addr, request(ECHO, body=b"c%d" % number)) for number in range(50)]
            theirs = [connection.call(request(ECHO, body=b"s%d" % number), 3_000) for number in range(50)]
            answers = await asyncio.gather(*ours, *theirs)
            assert [answer.body for answer in answers] == [b"%s%d" % (s, n) for s in (b"c", b"s") for n in range(50)]
            await pool.close()

    run(main())


def test_a_call_from_inside_a_handler_ends_when_its_caller_closes(run: Run) -> None:
    """Goal: a relay whose other end vanishes gets an error, and the server lives on."""

    async def relay(command: Command, connection: Connection) -> Command:
        return command.answer(0, body=(await connection.call(request(SILENT), 5_000)).body)

    async def main() -> None:
        dispatcher = make_dispatcher()
        dispatcher.register(CALL_BACK, relay)
        pool, other = ConnectionPool(make_dispatcher()), ConnectionPool()
        async with serving(dispatcher) as server:
            task = asyncio.create_task(pool.invoke(server.addr, request(CALL_BACK)))
            await asyncio.sleep(0.1)
            await pool.close()
            with pytest.raises(ConnectionClosedError):
                await task
            assert (await other.invoke(server.addr, request(ECHO))).code == 0
            await other.close()

    run(main())


def test_hooks_of_a_pool_see_requests_answers_and_failures(run: Run) -> None:
    seen: list[tuple[str, int, int | None]] = []

    class Recorder:
        def before(self, connection: Connection, request: Command) -> None:
            seen.append(("before", request.code, None))

        def after(self, connection: Connection, request: Command, response: Command | None) -> None:
            seen.append(("after", request.code, None if response is None else response.code))

    async def main() -> None:
        pool = ConnectionPool(hooks=[Recorder()])
        async with serving() as server:
            await pool.invoke(server.addr, request(ECHO))
            await pool.invoke_oneway(server.addr, request(ECHO))
            with pytest.raises(RequestTimeoutError):
                await pool.invoke(server.addr, request(SILENT), 50)
            await pool.close()

    run(main())
    assert seen == [
        ("before", ECHO, None),
        ("after", ECHO, 0),
        ("before", ECHO, None),
        ("after", ECHO, None),
        ("before", SILENT, None),
        ("after", SILENT, None),
    ]


def test_an_idle_connection_is_closed_by_the_client_too(run: Run) -> None:
    async def main() -> None:
        pool = ConnectionPool(limits=Limits(idle_ms=200))
        async with serving() as server:
            await pool.invoke(server.addr, request(ECHO))
            await asyncio.sleep(0.5)
            assert not server.connections
            assert (await pool.invoke(server.addr, request(ECHO))).code == 0
            await pool.close()

    run(main())
