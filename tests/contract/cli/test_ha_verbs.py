"""`rocketq ha` and `rocketq up --replicas` against a real etcd."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketq.cli.main import main
from rocketq.replication import control
from rocketq.replication.control import AliveReport, ControlStore, Group, MasterKey, Replica
from rocketq.replication.control_etcd import EtcdControl
from rocketq.replication.etcd_gateway import EtcdConfig
from rocketq.testing.etcd import PACKAGE, EtcdError, LocalEtcd, find_etcd

pytestmark = pytest.mark.slow
needs_etcd = pytest.mark.skipif(
    find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"
)
GROUP = Group("DefaultCluster", "broker-a")
START_S = 90


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[LocalEtcd]:
    with LocalEtcd(tmp_path / "etcd") as server:
        yield server


async def fill(store: ControlStore) -> None:
    """Two replicas, the first is master, both in sync."""
    for name in "ab":
        _, change = control.apply_for_id(await store.read(GROUP), Replica(f"addr-{name}", name))
        assert await store.commit(GROUP, change)
    leases = [await store.grant(60_000) for _ in range(2)]
    _, change = control.elect(await store.read(GROUP), MasterKey(1, 0, "ha", "addr-a"), leases[0])
    assert await store.commit(GROUP, change)
    _, change = control.alter_set(await store.read(GROUP), 1, leases[0], frozenset({1, 2}))
    assert await store.commit(GROUP, change)
    for number, end, slaves in ((1, 500, ((2, 390, 2_500),)), (2, 400, ())):
        report = AliveReport("ha", end, 1, slaves)
        assert await store.commit(GROUP, control.report_alive(number, report, leases[number - 1]))
    await store.close()


@needs_etcd
def test_status_shows_roles_and_how_far_everybody_is(etcd: LocalEtcd, tmp_path: Path) -> None:
    """Goal: for eyes and for programs; from a broker.conf as well."""
    asyncio.run(fill(EtcdControl(EtcdConfig.from_url(etcd.url))))
    asked = ["ha", "status", "--control", etcd.url, "--broker", "broker-a"]
    told = json.loads(CliRunner().invoke(main, [*asked, "--json"]).output)
    assert (told["epoch"], told["master"]) == (1, 1)
    names = ("role", "in_sync", "behind_bytes", "behind_seconds")
    assert [tuple(row[name] for name in names) for row in told["replicas"]] == [
        ("master", True, 0, 0.0),
        ("slave", True, 110, 2.5),  # as the master sees it
    ]
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=broker-a\nhaControlStore={etcd.url}\nhaProtocol=fenced\n")
    shown = CliRunner().invoke(main, ["ha", "status", "-c", str(conf)])
    assert shown.exit_code == 0
    assert "addr-b" in shown.output
    assert "SECONDS" in shown.output


@needs_etcd
def test_what_cannot_be_is_told_in_one_line(etcd: LocalEtcd) -> None:
    """Goal: no group, nobody to switch to, no address: a line and an exit code."""
    known = ["--control", etcd.url, "--broker", "nobody"]
    for arguments, code, words in (
        (["status", *known], 1, "not known"),
        (["switch", *known], 1, "no master"),
        (["status", "--broker", "x"], 2, "--control"),
        (["status", "--control", "nonsense", "--broker", "x"], 2, "etcd://"),
    ):
        done = CliRunner().invoke(main, ["ha", *arguments])
        assert done.exit_code == code, done.output
        assert words in done.output
        assert len(done.output.strip().splitlines()) == 1


@needs_etcd
def test_a_switch_to_one_that_is_not_in_sync_is_refused(etcd: LocalEtcd) -> None:
    """Goal: said at once; and a master that does not hear is told of after the time given."""
    asyncio.run(fill(EtcdControl(EtcdConfig.from_url(etcd.url))))
    known = ["--control", etcd.url, "--broker", "broker-a"]
    done = CliRunner().invoke(main, ["ha", "switch", "7", *known])
    assert done.exit_code == 1
    assert "not an in-sync slave" in done.output
    done = CliRunner().invoke(main, ["ha", "switch", "2", "--timeout", "1", *known])
    assert done.exit_code == 1
    assert "no other master within 1 s" in done.output


@needs_etcd
def test_a_replica_that_is_gone_can_be_removed(etcd: LocalEtcd) -> None:
    """Goal: not one in sync, not one alive, and only once."""
    asyncio.run(fill(EtcdControl(EtcdConfig.from_url(etcd.url))))
    known = ["--control", etcd.url, "--broker", "broker-a"]

    async def join() -> None:
        store = EtcdControl(EtcdConfig.from_url(etcd.url))
        _, change = control.apply_for_id(await store.read(GROUP), Replica("gone", "c"))
        assert await store.commit(GROUP, change)
        await store.close()

    asyncio.run(join())
    for number, code, words in (("1", 1, "alive"), ("3", 0, "forgotten"), ("3", 1, "not registered")):
        done = CliRunner().invoke(main, ["ha", "remove", number, *known])
        assert (done.exit_code, words in done.output) == (code, True), done.output


def test_replicas_without_etcd_are_refused_with_the_packages_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one line that says what to install."""
    monkeypatch.setattr("rocketq.testing.etcd.find_etcd", lambda: None)
    done = CliRunner().invoke(main, ["up", "--replicas", "3", "--data-dir", str(tmp_path), "--namesrv-port", "0"])
    assert done.exit_code == 1
    assert PACKAGE in done.output


def test_replicas_that_would_not_be_replicas_are_refused(tmp_path: Path) -> None:
    """Goal: wrong usage, before anything starts."""
    options = ["up", "--replicas", "3", "--data-dir", str(tmp_path), "--namesrv-port", "0"]
    done = CliRunner().invoke(main, [*options, "--set", "haProtocol=classic"])
    assert done.exit_code == 2
    assert "haProtocol=classic" in done.output


@pytest.mark.parametrize("port", ["1", "65530"])
def test_ports_that_replicas_cannot_have_are_told_once(
    tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one line for all of them, before any starts; it names what was typed, also where etcd is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    options = ["up", "--replicas", "3", "--data-dir", str(tmp_path), "--namesrv-port", "0", "--broker-port", port]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 2
    assert done.output.count(f"--broker-port {port}") == done.output.count("\n") == 1


@needs_etcd
def test_an_etcd_whose_starter_was_killed_is_ended_by_the_next(tmp_path: Path) -> None:
    """Goal: nobody has to look for a process; and while its starter lives, the directory is said to be taken."""
    first = LocalEtcd(tmp_path / "etcd")
    try:
        with LocalEtcd(tmp_path / "etcd") as old:
            with pytest.raises(EtcdError, match="is open in another process"):
                first.start()
            old._free_lock()  # as the end of its process does
            with first:
                orphan = old.members[0].process
                assert orphan is not None
                assert orphan.wait(20) == -signal.SIGKILL
                assert first.members[0].process is not None
                assert first.members[0].process.poll() is None
    finally:
        first.stop()


@needs_etcd
def test_up_with_replicas_survives_the_end_of_its_master(tmp_path: Path) -> None:
    """Goal: one command; the master's process is killed, another replica takes over, the killed one comes back."""
    ready, log = tmp_path / "ready.json", tmp_path / "up.log"
    command = [str(Path(sys.executable).with_name("rocketq")), "up", "--replicas", "3", "--namesrv-port", "0"]
    command += ["--broker-port", "0", "--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)]
    command += ["--set", "haLeaseTtl=4000", "--set", "haLeaseTimeout=2000", "--set", "mappedFileSizeCommitLog=8388608"]
    command += ["--set", "maxMessageSize=1048576"]
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _wait(ready.exists, log)
        told = json.loads(ready.read_text())
        etcd_url = told["addresses"]["etcd"].replace("http://", "etcd://")
        asked = ["ha", "status", "--json", "--control", etcd_url, "--broker", "broker-0"]

        def group() -> dict[str, object]:
            return dict(json.loads(CliRunner().invoke(main, asked).output))

        def whole(epoch: int) -> bool:
            facts = group()
            rows = facts["replicas"]
            assert isinstance(rows, list)
            return int(str(facts["epoch"])) > epoch and len(rows) == 3 and all(row["in_sync"] for row in rows)

        _wait(lambda: whole(0), log)
        facts = group()
        rows = facts["replicas"]
        assert isinstance(rows, list)
        addr = next(row["address"] for row in rows if row["role"] == "master")
        name = next(name for name, each in told["addresses"].items() if each == addr)
        os.kill(told["pids"][name], signal.SIGKILL)
        _wait(lambda: whole(int(str(facts["epoch"]))), log)
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 0, log.read_text()[-3000:]


def _wait(done: object, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            if done():  # type: ignore[operator]
                return
        except (ValueError, KeyError):
            pass
        assert time.monotonic() < deadline, log.read_text()[-4_000:]
        time.sleep(0.2)
