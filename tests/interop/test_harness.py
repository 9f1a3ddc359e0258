"""The judge judged: Apache's own restart must serve everything the driver wrote, or no other verdict counts."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from . import client_programs, driver, expect
from .cache import Unavailable, made_once
from .client_programs import Program
from .conftest import StartBroker
from .kept_logs import keep_logs
from .release import obtain

pytestmark = pytest.mark.interop

ALL_KINDS = {
    "plain",
    "tagged",
    "keyed",
    "multi-key",
    "no-wait",
    "ordered",
    "batch",
    "compressed",
    "raw",
    "delayed",
    "delay-delivered",
    "half-commit_message",
    "half-rollback_message",
    "half-unknow",
    "tx-delivered",
}


@pytest.mark.parametrize("version", ["4.7.1", "4.9.7", "5.3.3"])
def test_apache_serves_everything_after_its_own_clean_restart(apache: StartBroker, version: str) -> None:
    """Goal: the driver's manifest is true, its reading complete, and a restart changes no message."""
    with apache(version) as broker:
        sent = driver.produce(broker, prefix="Interop", seed=1)
        before = driver.verify(broker, sent)
    assert set(Counter(message.kind for message in sent)) == ALL_KINDS
    expect.everything_matches(before, sent)

    with apache(version) as broker:
        after = driver.verify(broker, sent)
        more = driver.produce(broker, prefix="Interop", seed=2)
        both = driver.verify(broker, [*sent, *more])
    expect.everything_matches(after, sent)
    expect.contains(after.pulled, before.pulled)
    expect.appends_continue(after, more)
    expect.everything_matches(both, [*sent, *more])


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_apache_serves_every_acknowledged_message_after_a_kill(apache: StartBroker, version: str) -> None:
    """Goal: what a streaming client counts as acknowledged when the broker is killed really is in the log."""
    with apache(version) as broker, driver.streaming(broker, prefix="Killed") as stream:
        stream.await_count(3000)
        broker.kill()
        stream.await_end()
        sent = stream.acknowledged()
    with apache(version) as broker:
        after = driver.verify(broker, sent)
    expect.no_problems(after)
    expect.pulls_match(after, sent)
    expect.ids_match(after, sent)
    expect.queues_are_dense(after)


def test_a_missing_jdk_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Unavailable, match="no javac was found"):
        obtain.__wrapped__("4.9.7")


def test_a_failing_maven_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] no route to the registry'\nexit 1\n", encoding="utf-8")
    maven.chmod(0o755)
    (tmp_path / "javac").write_text("#!/bin/sh\necho javac 17.0.1\n", encoding="utf-8")
    (tmp_path / "javac").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("ROCKETQ_APACHE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(Unavailable, match=r"RocketMQ 4\.9\.7 cannot be fetched: .*no route"):
        obtain.__wrapped__("4.9.7")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (client_programs.go, "no go was found"),
        (client_programs.node, "no node was found"),
        (client_programs.cpp, r"the C\+\+ client comes for Linux on x86-64 only"),
    ],
)
def test_a_missing_toolchain_is_a_reason_to_skip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[], Program], reason: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(Unavailable, match=reason):
        make()


def test_a_half_made_folder_is_not_taken_for_whole(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise Unavailable("the line was cut")

    with pytest.raises(Unavailable):
        made_once(tmp_path / "thing", fail)
    whole = made_once(tmp_path / "thing", lambda folder: (folder / "whole").touch())
    assert [path.name for path in whole.iterdir()] == ["whole"]
    assert made_once(tmp_path / "thing", fail) == whole


def test_logs_of_a_failed_test_are_kept(tmp_path: Path) -> None:
    work, target = tmp_path / "work", tmp_path / "kept"
    (work / "broker").mkdir(parents=True)
    for name, text in (("broker/Broker.log", "booted"), ("old.log", "before"), ("store.bin", "data"), ("no.log", "")):
        (work / name).write_text(text)
    os.utime(work / "old.log", (1, 1))
    (target / "stale").mkdir(parents=True)
    assert keep_logs(work, target, since=2) == [target / "broker" / "Broker.log"]
    assert [path.name for path in target.rglob("*") if path.is_file()] == ["Broker.log"]


def test_a_child_does_not_outlive_the_run(tmp_path: Path) -> None:
    """Goal: a run that is killed leaves no broker behind."""
    script = (
        "import sys, time; from pathlib import Path; from tests.interop import processes\n"
        "child = processes.start([sys.executable, '-c', 'import time; time.sleep(600)'], log=open(sys.argv[1], 'wb'))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script, str(tmp_path / "child.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        run.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
