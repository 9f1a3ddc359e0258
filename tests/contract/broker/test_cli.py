"""`rocketq broker` and `rocketq up` as processes: what they print, leave behind and survive."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.config_text import parse_config
from tests.contract.broker.kit import connected, letters, over_loopback, pull, records, route, send, send_fields
from tests.contract.broker.test_membership import commit, offset

START_SECONDS_MAX = 30
SMALL = ("mappedFileSizeCommitLog=4194304", "maxMessageSize=1048576", "mappedFileSizeConsumeQueue=100000")
SMALL_INDEX = (
    "maxHashSlotNum=5000",
    "maxIndexNum=20000",
    "diskMaxUsedSpaceRatio=95",
    "diskSpaceWarningLevelRatio=0.99",
)
OPTIONS = [part for change in (*SMALL, *SMALL_INDEX) for part in ("--set", change)]


class Process:
    """One command; `addresses` waits until it serves."""

    def __init__(self, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.ready = folder / "ready.json"
        self.ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "rocketq", *arguments, "--ready-file", str(self.ready)]
        self.child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def note(self) -> dict[str, Any]:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.ready.exists():
            assert self.child.poll() is None, self.child.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        note: dict[str, Any] = json.loads(self.ready.read_text())
        return note

    def addresses(self) -> dict[str, str]:
        return dict(self.note()["addresses"])

    def stop(self, number: int = signal.SIGTERM) -> tuple[str, str]:
        self.child.send_signal(number)
        output = self.child.communicate(timeout=15)
        assert self.child.returncode == 0, output
        return output

    def kill(self) -> None:
        self.child.kill()
        self.child.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def run(*arguments: str, **given: Any) -> Process:
        started.append(Process(tmp_path, *arguments, **given))
        return started[-1]

    yield run
    for process in started:
        if process.child.poll() is None:
            process.child.terminate()
            try:
                process.child.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()


def up(folder: Path, *more: str) -> tuple[str, ...]:
    return ("up", "--data-dir", str(folder), "--namesrv-port", "0", "--broker-port", "0", *OPTIONS, *more)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_says_when_it_serves_and_stops_cleanly(tmp_path: Path, start: Start, number: int) -> None:
    process = start(*up(tmp_path / "data"))
    note = process.note()
    assert set(note["pids"].values()) == {process.child.pid}
    addresses = note["addresses"]
    assert set(addresses) == {"namesrv", "broker-0"}

    async def use() -> None:
        async with connected(addresses["broker-0"], addresses["namesrv"]) as (broker, names):
            assert (await send(broker, "T", b"hello")).code == 0
            assert await route(names, "TBW102") is not None

    asyncio.run(use())
    out, err = process.stop(number)
    boot, metrics = out.splitlines()
    assert boot == f"boot success: namesrv {addresses['namesrv']}, broker-0 {addresses['broker-0']}"
    assert re.fullmatch(
        r"metrics: namesrv http://127\.0\.0\.1:\d+/metrics, broker-0 http://127\.0\.0\.1:\d+/metrics", metrics
    )
    assert "Traceback" not in err
    assert not process.ready.exists()
    root = tmp_path / "data" / "broker-0"
    assert not (root / "abort").exists()
    assert json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]["T"]["perm"] == 6


def test_an_idle_up_is_small(tmp_path: Path, start: Start) -> None:
    process = start(*up(tmp_path / "data"))
    process.note()
    status = Path(f"/proc/{process.child.pid}/status").read_text()
    resident_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident_kb < 60 * 1024


@over_loopback
@pytest.mark.parametrize("brokers", [(), ("--brokers", "2")], ids=["one", "two"])
async def test_up_takes_little_of_the_disk(tmp_path: Path, start: Start, brokers: tuple[str, ...]) -> None:
    """Goal: small files where nothing is set, the same again at the next start."""
    command = ("up", "--data-dir", str(tmp_path / "data"), "--namesrv-port", "0", "--broker-port", "0", *brokers)
    for number in range(2):
        process = start(*command)
        async with connected(process.addresses()["broker-0"]) as (peer,):
            answer = await peer.ask(RequestCode.SEND_MESSAGE_V2, letters(send_fields("T")), b"a")
            assert answer.ext_fields["queueOffset"] == str(number)
        process.stop()
    files = [path.stat() for path in (tmp_path / "data" / "broker-0").rglob("*") if path.is_file()]
    assert sum(each.st_blocks * 512 for each in files) < 400 << 20
    assert 128 << 20 in {each.st_size for each in files}


@over_loopback
async def test_kill_9_loses_nothing_that_was_acknowledged_to_the_log(tmp_path: Path, start: Start) -> None:
    process = start(*up(tmp_path / "data"))
    addresses = process.addresses()
    async with connected(addresses["broker-0"]) as (peer,):
        fields = letters(send_fields("T"))
        asked = [peer.start(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number) for number in range(500)]
        answers = await asyncio.gather(*asked)
        assert {answer.code for answer in answers} == {0}
        await commit(peer, "g", "T", 11)
        await asyncio.sleep(0)
        process.kill()
    process = start(*up(tmp_path / "data"))
    addresses = process.addresses()
    async with connected(addresses["broker-0"]) as (peer,):
        bodies: list[bytes] = []
        while len(bodies) < 500:
            bodies += [record.body for record in records(await pull(peer, "T", len(bodies)))]
        assert bodies == [b"%d" % number for number in range(500)]
        assert (await send(peer, "T")).ext_fields["queueOffset"] == "500"


@over_loopback
async def test_a_restart_keeps_topics_groups_offsets_and_messages(tmp_path: Path, start: Start) -> None:
    process = start(*up(tmp_path / "data"))
    async with connected(process.addresses()["broker-0"]) as (peer,):
        for number in range(5):
            assert (await send(peer, "T", b"%d" % number)).code == 0
        await commit(peer, "g", "T", 3)
        body = b'{"groupName":"g","retryMaxTimes":7}'
        assert (await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0
    process.stop()
    process = start(*up(tmp_path / "data"))
    async with connected(process.addresses()["broker-0"]) as (peer,):
        assert [record.body for record in records(await pull(peer, "T"))] == [b"%d" % number for number in range(5)]
        assert await offset(peer, "g", "T") == "3"
        answer = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        assert b'"retryMaxTimes":7' in answer.body
    process.stop()


@over_loopback
async def test_broker_takes_file_flags_environment_and_keeps_changes(tmp_path: Path, start: Start) -> None:
    names = start("namesrv", "--port", "0")
    name_server = names.addresses()["namesrv"]
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"brokerName=from-file\nnobodyKnows=1\nlistenPort=1234\nstorePathRootDir={tmp_path}/store\n"
        + "\n".join((*SMALL, *SMALL_INDEX, ""))
    )
    process = start(
        "broker", "-c", str(conf), "--port", "0", "--set", "regionId=R", environment={"NAMESRV_ADDR": name_server}
    )
    addresses = process.addresses()
    assert set(addresses) == {"from-file"}
    async with connected(addresses["from-file"], name_server) as (peer, asker):
        assert (await send(peer, "T")).ext_fields["MSG_REGION"] == "R"
        assert await route(asker, "from-file") is not None
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false\n")).code == 0
        _, err = process.stop()
        assert err.count("nobodyKnows") == 1
        assert await route(asker, "from-file") is None  # it said goodbye
    assert parse_config(conf.read_text())["traceOn"] == "false"


@over_loopback
async def test_several_brokers_are_processes_of_their_own(tmp_path: Path, start: Start) -> None:
    process = start(*up(tmp_path / "data", "--brokers", "2"))
    note = process.note()
    assert set(note["addresses"]) == {"namesrv", "broker-0", "broker-1"}
    pids = note["pids"]
    assert len(set(pids.values())) == 3
    assert pids["namesrv"] == process.child.pid
    async with connected(note["addresses"]["namesrv"]) as (names,):
        found = await route(names, "TBW102")
        assert found is not None
        assert sorted(data.broker_name for data in found.queues) == ["broker-0", "broker-1"]
    process.stop()
    for name in ("broker-0", "broker-1"):
        assert not Path(f"/proc/{pids[name]}").exists()


def test_when_one_broker_dies_all_is_stopped(tmp_path: Path, start: Start) -> None:
    process = start(*up(tmp_path / "data", "--brokers", "2"))
    pids = process.note()["pids"]
    os.kill(pids["broker-1"], signal.SIGKILL)
    process.child.communicate(timeout=15)
    assert process.child.returncode == 1
    assert not Path(f"/proc/{pids['broker-0']}").exists()


@over_loopback
async def test_when_up_is_killed_its_brokers_stop_cleanly(tmp_path: Path, start: Start) -> None:
    """Goal: nobody is left behind who holds ports and directories; what was sent is there at the next start."""
    process = start(*up(tmp_path / "data", "--brokers", "2"))
    note = process.note()
    async with connected(note["addresses"]["broker-1"]) as (peer,):
        assert (await send(peer, "Orphan", b"kept")).code == 0
    process.kill()
    deadline = time.monotonic() + START_SECONDS_MAX
    while any(is_running(note["pids"][name]) for name in ("broker-0", "broker-1")):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    for name in ("broker-0", "broker-1"):
        assert not (tmp_path / "data" / name / "abort").exists(), "a clean stop removes it"
    again = start(*up(tmp_path / "data", "--brokers", "2"))
    async with connected(again.addresses()["broker-1"]) as (peer,):
        assert [record.body for record in records(await pull(peer, "Orphan"))] == [b"kept"]
    again.stop()


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("brokers", [(), ("--brokers", "2")])
def test_a_slip_in_a_key_is_told_once_with_what_was_meant(
    tmp_path: Path, start: Start, brokers: tuple[str, ...]
) -> None:
    """Goal: one line, however many brokers there are; everything starts nevertheless."""
    process = start(*up(tmp_path / "data", *brokers, "--set", "fileReservedTme=48", "--set", "nobodyKnows=1"))
    process.note()
    _, err = process.stop()
    assert err.count("unknown settings are ignored") == 1
    assert "fileReservedTme (did you mean fileReservedTime?), nobodyKnows" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["up", "--brokers", "2", "--set", "traceOn=perhaps"], 2, "traceOn='perhaps'"),
        (["up", "--set", "flushDiskType=SOMETIMES"], 2, "flushDiskType"),
        (["up", "--set", "fileReservedTime=-1"], 2, "fileReservedTime must not be negative"),
        (["broker", "--set", "listenPort=many"], 2, "listenPort='many'"),
        (["broker", "--log-file", "/dev/null/x/broker.log"], 2, "--log-file /dev/null/x/broker.log"),
        (["broker", "-c", "missing.conf"], 2, "missing.conf"),
        (["broker", "--set", "listenPort"], 2, "KEY=VALUE"),
        (["broker", "--set", "traceOn=perhaps"], 2, "traceOn"),
        (["up", "--brokers", "none"], 2, "--brokers"),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, start: Start, arguments: list[str], code: int, said: str) -> None:
    process = start(*arguments, "--data-dir", str(tmp_path / "data"))
    _, err = process.child.communicate(timeout=START_SECONDS_MAX)
    assert (process.child.returncode, said in err) == (code, True)


def test_a_directory_in_use_is_said_so(tmp_path: Path, start: Start) -> None:
    first = start(*up(tmp_path / "data"))
    first.note()
    first.ready.unlink()
    second = start(*up(tmp_path / "data"))
    _, err = second.child.communicate(timeout=START_SECONDS_MAX)
    assert (second.child.returncode, "rocketq up:" in err) == (1, True)


def test_a_directory_that_cannot_be_written_is_said_so_in_one_line(tmp_path: Path, start: Start) -> None:
    """Goal: what is wrong with the place, and no traceback. Root may write anywhere, so a directory is in the way."""
    (tmp_path / "data" / "broker-0" / "lock").mkdir(parents=True)
    process = start(*up(tmp_path / "data"))
    _, err = process.child.communicate(timeout=START_SECONDS_MAX)
    assert process.child.returncode == 1
    assert "rocketq up: the store cannot be opened" in err
    assert "Traceback" not in err
