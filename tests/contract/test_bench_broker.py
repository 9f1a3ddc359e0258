"""The broker's benchmark: the parts beside its rows run in a small size, and bars are judged as they are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench import backlog
from bench.bars import Bar
from bench.broker import ROW_NAMES, ROWS, judge, named
from bench.footprint import Footprint
from bench.footprint import judge as judge_footprints
from bench.load.foreign import FOREIGN, Foreign, ForeignUnavailable
from bench.load.generator import Load, Measured, NoCompilerError, program, run
from bench.plot import plot_bars
from bench.spread import Spread, many_topics, two_brokers
from bench.spread import judge as judge_spreads

SHORT = Load(connections=4, depth=8, seconds=0.3, warm_up=0)


@pytest.fixture
def generator() -> None:
    try:
        program()
    except NoCompilerError as reason:
        pytest.skip(str(reason))


def test_rows_are_named_with_blanks_or_commas() -> None:
    """Goal: as the other benchmarks take them, and a comma within a name is none between two."""
    assert named([""]) == ROW_NAMES
    assert named(["1KiB", "sync"]) == named(["1KiB,sync"]) == named(["sync,,1KiB"])
    assert len(named(["sync"])) == 2
    assert named(["1,000 topics"]) == ["1,000 topics x 8 queues"]
    assert named(["nothing,none"]) == []


def measured(messages_per_s: float, cpu_us: float, p50_us: float) -> Measured:
    return Measured(
        messages_per_s=messages_per_s,
        requests_per_s=messages_per_s,
        cpu_us_per_message=cpu_us,
        mb_per_s=1,
        p50_us=p50_us,
        p99_us=p50_us,
        max_us=p50_us,
        errors=0,
        messages=1,
        generator_cpu_share=1,
        broker_cpu_share=1,
        anonymous_mib=1,
    )


def test_ours_is_judged_by_the_faster_apache_of_a_row() -> None:
    """Goal: rate and CPU against the release with the higher rate, p50 against the lower one; others do not count."""
    row = next(row for row in ROWS if row.name == "sends 128B 1x1")
    peers = {
        "rocketq": measured(300, 2, 50),
        "Apache 4.9.7": measured(100, 8, 100),
        "Apache 5.3.3": measured(90, 4, 80),
        "Redis Streams": measured(900, 1, 10),
    }
    bars = judge([row], {row.name: peers})
    assert {bar.name.rpartition(", ")[2]: bar.measured for bar in bars} == {"p50": 50 / 80, "CPU": 2 / 8}


def test_footprints_are_compared_with_the_smaller_apache() -> None:
    """Goal: the better of the peers counts; without one there is nothing to say."""
    found = {"rocketq": Footprint(20, 1), "Apache 4.9.7": Footprint(400, 9), "Apache 5.3.3": Footprint(500, 4)}
    assert [(bar.measured, bar.held) for bar in judge_footprints(found)] == [(0.05, True), (0.25, False)]
    assert judge_footprints({"rocketq": Footprint(20, 1)}) == []


@pytest.mark.usefixtures("generator")
def test_many_topics_and_two_brokers_run() -> None:
    """Goal: both loads are answered without an error, over all topics and both brokers."""
    found = {
        "1,000 topics x 8 queues": many_topics(1, topics=3, load=SHORT, before_s=0.3),
        "two brokers": two_brokers(1, SHORT),
    }
    assert all(each.one_per_s > 0 and each.many_per_s > 0 for each in found.values())
    assert [bar.wanted for bar in judge_spreads(found)] == [0.8, 1.3]
    assert Spread(0, 1, 1, 1).ratio == 0


@pytest.mark.usefixtures("generator")
def test_old_messages_are_pulled_behind_later_ones() -> None:
    """Goal: the same pulls twice, with gigabytes, here megabytes, in between; all of them far behind the end."""
    short = replace(backlog.PULLS, seconds=0.3, warm_up=0)
    far = {"accessMessageInMemoryMaxRatio": "0"}
    found = backlog.measure([], 1, [], later_gib=0.01, pulls=short, settings=far)
    ours = found["rocketq"]
    assert min(ours.fresh_per_s, ours.behind_per_s) > 0
    assert ours.later_gib >= 0.01
    (bar,) = backlog.judge("row", found)
    assert (bar.measured, bar.wanted) == (ours.ratio, 0.8)
    assert "rocketq" in backlog.table(found)
    assert backlog.Backlog(0, 1, 1, 1, 1).ratio == 0


def test_what_cpu_allows_two_brokers_is_told() -> None:
    """Goal: a bar that is missed on a small machine is told from one that cannot be met there."""
    assert Spread(400_000, 600_000, 2.0, 2.25, 0.25).explain(2).startswith("CPU allows 1.60: 2 cores / (2.25 + 0.25 us")


@pytest.mark.usefixtures("generator")
@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.protocol)
def test_the_generator_speaks_to_others_too(kind: type[Foreign]) -> None:
    """Goal: every publish is acknowledged by a broker of another protocol."""
    try:
        peer = kind()
    except ForeignUnavailable as reason:
        pytest.skip(str(reason))
    with peer:
        load = Load(connections=2, depth=4, seconds=0.3, warm_up=0, protocol=peer.protocol)
        figures = run(load, ports=peer.ports, pids=peer.pids)
    assert (figures.errors, figures.messages > 0) == (0, True)


def test_ratios_are_drawn(tmp_path: Path) -> None:
    """Goal: a picture beside the figures, also when all bars are of one kind."""
    pytest.importorskip("matplotlib")
    bars = [Bar(name="a", measured=2.0, wanted=1.5), Bar(name="b", measured=1.0, wanted=1.5)]
    path = plot_bars(bars, tmp_path / "bars.png")
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")
    assert plot_bars([], tmp_path / "none.png") is None
