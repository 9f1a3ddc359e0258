"""Benchmarks stay runnable: each has a smoke size that runs here once, without bars."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from bench import client
from bench.bars import Bar
from bench.delays import judge as judge_delays
from bench.delays import run as run_delays
from bench.filters import judge as judge_filters
from bench.filters import run_round as run_filters
from bench.filters import table as filters_table
from bench.load.generator import NoCompilerError, program
from bench.loop_hold import Hold, Producer
from bench.loop_hold import judge as judge_holds
from bench.opening import run as run_opening
from bench.store import Figures, judge, medians, run_round, table


def test_the_store_benchmark_runs() -> None:
    figures = run_round(300)
    assert figures.append_128_us > 0
    assert figures.recovery_mb_s > 0
    assert "recovery, MB/s" in table(figures, figures)


def test_the_opening_benchmark_runs() -> None:
    bars = run_opening(1 << 18, 4, 1 << 16)
    assert [bar.at_most for bar in bars] == [True, True, True]


def test_the_delays_benchmark_runs() -> None:
    result = run_delays(200, 500, 0.1, 1 << 20)
    assert result.delivered_per_second > 0
    assert [bar.at_most for bar in judge_delays(result)] == [False, True]


def test_the_filter_benchmark_runs() -> None:
    figures = run_filters(2_000)
    assert figures.messages_passed_per_s > 0
    assert "evaluations" in filters_table(figures, figures)
    assert [bar.wanted for bar in judge_filters(figures)] == [1_000_000]


def test_the_broker_benchmark_runs() -> None:
    try:
        program()
    except NoCompilerError as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [sys.executable, "-m", "bench.broker", "--smoke"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"sends", "batches", "pulls"}


def test_the_replication_benchmark_runs() -> None:
    try:
        program()
    except NoCompilerError as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [sys.executable, "-m", "bench.replication", "--smoke"], capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"sends", "catch-up"}


def test_the_loop_hold_benchmark_runs() -> None:
    try:
        program()
    except NoCompilerError as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [sys.executable, "-m", "bench.loop_hold", "--smoke"], capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {"317 progress of all groups", "NameServer 103 a broker registers"} <= set(said["holds"])
    assert set(said["producers"]) == {"8 x 128", "1 x 1"}


def test_loop_hold_bar_uses_the_longest_hold() -> None:
    short, long = (Hold(hold_ms=ms, wait_ms=50, worst_ms=99, cpu_ms=1, answer_kib=1) for ms in (1.0, 11.0))
    producer = Producer(p50_us=10, p99_us=100, p50_us_asked=10, p99_us_asked=114)
    bars = judge_holds({"21": short, "317": long}, {"8 x 128": producer})
    assert [bar.held for bar in bars] == [False, True]
    assert "317" in bars[0].name


def test_the_client_benchmark_runs() -> None:
    try:
        program()
    except NoCompilerError as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [sys.executable, "-m", "bench.client", "--smoke"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == len(client.rows(1, 1))


def test_bars_are_judged_by_their_direction() -> None:
    assert Bar("fast enough", 2.0, 1.5).held
    assert not Bar("too slow", 1.0, 1.5).held
    assert Bar("cheap enough", 0.9, 1.0, at_most=True).held


def test_medians_are_taken_figure_by_figure() -> None:
    low, high = (Figures(*[value] * 10) for value in (1.0, 3.0))
    assert medians([low, high, high]) == high
    assert len(judge(high, low)) == 4
