"""The pipeline's benchmark: each variant of our broker serves its loads, and bars are judged as they are written."""

from __future__ import annotations

import pytest
from bench.load.generator import Measured, NoCompilerError, program
from bench.load.peers import Ours
from bench.pipeline import (
    APACHE_ACL,
    DELAYED,
    FULL_LOAD,
    GUARD,
    PLAIN,
    PULLS,
    QUOTAS,
    ROW_NAMES,
    SIGNED,
    SLOW_PATH,
    judge,
    smoke,
)


def measured(messages_per_s: float, cpu_us: float) -> Measured:
    return Measured(
        messages_per_s=messages_per_s,
        requests_per_s=messages_per_s,
        cpu_us_per_message=cpu_us,
        mb_per_s=1,
        p50_us=1,
        p99_us=1,
        max_us=1,
        errors=0,
        messages=1,
        generator_cpu_share=1,
        broker_cpu_share=1,
        anonymous_mib=1,
    )


OURS = {PLAIN: measured(100, 2), GUARD: measured(95, 2), QUOTAS: measured(80, 2), SIGNED: measured(60, 4)}
APACHE = {"Apache 4.9.7": measured(30, 9), APACHE_ACL: measured(15, 9)}


def test_guard_and_quotas_are_judged_at_every_load() -> None:
    """Goal: by the rate of the plain broker in the same row."""
    for row in set(ROW_NAMES) - {DELAYED, SLOW_PATH}:
        bars = judge(row, OURS)[:2]
        assert [(bar.measured, bar.held) for bar in bars] == [(0.95, True), (0.8, False)]


def test_signed_requests_are_judged_by_cpu_and_by_apache() -> None:
    """Goal: the full load has both bars, pulls have their own, the other rows have figures only."""
    assert [(bar.measured, bar.wanted) for bar in judge(FULL_LOAD, OURS | APACHE)[2:]] == [(2.0, 2.5), (4.0, 3.0)]
    assert [bar.measured for bar in judge(FULL_LOAD, OURS)[2:]] == [2.0]
    assert [(bar.measured, bar.wanted) for bar in judge(PULLS, OURS | APACHE)[2:]] == [(0.6, 0.85)]
    assert judge("sends 128B 1x1", OURS | APACHE)[2:] == []


def test_slow_sends_are_judged_by_their_cpu() -> None:
    (bar,) = judge(SLOW_PATH, {PLAIN: measured(100, 41)})
    assert (bar.measured, bar.held) == (41, False)


def test_a_setting_that_no_broker_knows_is_an_error() -> None:
    """Goal: the broker would ignore it, and the wrong thing would be measured."""
    with pytest.raises(ValueError, match="flushDiskTyp"):
        Ours({"flushDiskTyp": "ASYNC_FLUSH"})


@pytest.mark.parametrize("variant", ["plain", "guard", "quotas", "signed"])
def test_the_pipeline_benchmark_runs(variant: str) -> None:
    """Goal: every load is answered without an error by every variant."""
    try:
        program()
    except NoCompilerError as reason:
        pytest.skip(str(reason))
    figures = smoke([variant])
    assert len(figures) == 3
    for name, each in figures.items():
        assert (each.errors, each.messages > 0) == (0, True), name
