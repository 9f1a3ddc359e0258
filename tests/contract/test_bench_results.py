"""What long benchmarks leave behind: results row by row, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import bars, kept
from bench.bars import Bar
from bench.kept import Kept
from bench.load.folders import PREFIX, run_folder
from bench.load.peers import Ours
from bench.progress import Progress

ROWS = ["first", "second", "third"]


@dataclass(frozen=True)
class Figures:
    messages_per_s: float


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bars, "_path", lambda name: tmp_path / f"{name}.json")
    return tmp_path / "broker.json"


def put(commit: str, monkeypatch: pytest.MonkeyPatch, **measured: float) -> Kept:
    monkeypatch.setattr(kept, "state_of_sources", lambda: commit)
    found = Kept("broker", ROWS)
    for row, value in measured.items():
        bar = Bar(name=f"{row}, messages/s", measured=value, wanted=2.0)
        found.put(row, {"rocketq": Figures(value)}, [bar], rounds=3, notes=["a note", "a note"])
    return found


def test_every_row_is_in_the_file_as_soon_as_it_is_measured(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a run that is killed has lost only the row it was at."""
    put("aaaa", monkeypatch, second=3.0)
    assert list(json.loads(results.read_text())["rows"]) == ["second"]
    put("aaaa", monkeypatch, first=1.0)
    rows = json.loads(results.read_text())["rows"]
    assert list(rows) == ["first", "second"]
    assert rows["second"]["figures"] == {"rocketq": {"messages_per_s": 3.0}}
    assert (rows["second"]["rounds"], rows["second"]["notes"]) == (3, ["a note"])
    assert [each["held"] for row in rows.values() for each in row["bars"]] == [False, True]


def test_rows_of_another_commit_stay_and_say_so(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: figures of different commits are never mixed silently."""
    put("aaaa", monkeypatch, first=1.0, second=1.0)
    later = put("bbbb", monkeypatch, second=3.0)
    assert [bar.name for bar in later.bars()] == ["first, messages/s [aaaa]", "second, messages/s"]
    assert [bar.measured for bar in later.bars(["second"])] == [3.0]
    rows = json.loads(results.read_text())["rows"]
    assert {name: row["commit"] for name, row in rows.items()} == {"first": "aaaa", "second": "bbbb"}


def test_a_row_that_is_no_more_is_dropped(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the file holds what the benchmark measures; one of another form does no harm."""
    results.write_text(json.dumps({"rows": {"gone": {"commit": "aaaa"}, "first": {"rocketq": {}}}}))
    put("bbbb", monkeypatch, third=3.0)
    assert list(json.loads(results.read_text())["rows"]) == ["third"]


def test_time_left_follows_what_was_done() -> None:
    """Goal: twice as slow as thought means that the rest takes twice as long, too."""
    progress = Progress({"first": 10.0, "second": 30.0})
    began = progress._began
    assert progress.left_s(now=began) == 40.0
    assert progress.left_s("first", 0.5, now=began + 10) == 70.0
    progress.finish("first")
    assert progress.left_s("second", 0.0, now=began + 20) == 60.0


def test_the_folder_of_a_run_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: stores of a gigabyte do not pile up, neither those of a run that failed nor of one that was killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left, running = tmp_path / f"{PREFIX}{int(ended.stdout)}-x", tmp_path / f"{PREFIX}{os.getppid()}-x"
    left.mkdir()
    running.mkdir()

    def run_and_be_ended() -> None:
        with run_folder() as root:
            assert Path(tempfile.mkdtemp()).parent == root
            raise KeyboardInterrupt

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        with pytest.raises(KeyboardInterrupt):
            run_and_be_ended()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)
    assert list(tmp_path.iterdir()) == [running]
    assert tempfile.gettempdir() == str(tmp_path)


def test_a_peer_that_does_not_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the run may be ended while a broker starts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="flushDiskType"), Ours({"flushDiskType": "NEVER"}):
        raise AssertionError("it started")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """Goal: SIGTERM stops the brokers and removes their stores."""
    code = """
import signal
from bench.load.folders import run_folder
from bench.load.peers import Ours
with run_folder(), Ours({"flushDiskType": "ASYNC_FLUSH"}) as peer:
    print(*peer.pids, flush=True)
    signal.pause()
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as run:
        assert run.stdout is not None
        (pid,) = map(int, run.stdout.readline().split())
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{pid}").exists()
    assert list(tmp_path.iterdir()) == []
