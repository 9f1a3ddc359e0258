"""A local etcd whose last starter was killed: what it left behind is ended, in bounded time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketq.testing import etcd
from rocketq.testing.etcd import EtcdError, EtcdMember

SLEEPS = "print(flush=True); import time; time.sleep(600)"


@contextmanager
def left_behind(member: EtcdMember, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that the member's folder names."""
    member.folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", SLEEPS, *words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it runs under its own name now
            (member.folder / "pid").write_text(f"{process.pid}\n")
            yield process
        finally:
            process.kill()


@pytest.fixture
def member(tmp_path: Path) -> EtcdMember:
    return EtcdMember("m0", tmp_path / "m0", 1, 2)


def test_one_that_does_not_end_is_told_after_a_while(member: EtcdMember, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a process stuck in the system must not hold up whoever starts anew for ever."""
    monkeypatch.setattr(etcd, "_STOP_S", 0.2)
    with left_behind(member, f"--data-dir={member.folder / 'data'}") as process, monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: None)
        with pytest.raises(EtcdError, match=f"process {process.pid} has .* and does not end"):
            member.start("/bin/true", "")
        assert member.process is None


def test_one_of_another_user_is_told(member: EtcdMember, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one line that names the process."""

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    with left_behind(member, f"--data-dir={member.folder / 'data'}") as process, monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuse)
        with pytest.raises(EtcdError, match=f"process {process.pid}, of another user"):
            member.start("/bin/true", "")


@pytest.mark.parametrize("pid", ["", "garbage", "999999999"])
def test_a_pid_of_nobody_holds_up_nothing(member: EtcdMember, pid: str) -> None:
    """Goal: whatever the file says, a new one starts."""
    member.folder.mkdir()
    (member.folder / "pid").write_text(pid)
    member.start("/bin/true", "")
    member.kill()


def test_others_are_left_alone(member: EtcdMember) -> None:
    """Goal: a number that was given to another process meanwhile is not ended."""
    with left_behind(member, "--data-dir=elsewhere") as process:
        member.start("/bin/true", "")
        member.kill()
        assert process.poll() is None
