"""Families, folding and both text formats, judged by the parsers of prometheus_client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rocketq.runtime.metrics import (
    OTHER,
    Counters,
    Distribution,
    Family,
    Histograms,
    Kind,
    Registry,
    Snapshot,
    counter,
    gauge,
    histogram,
)

SENT = counter("sent_total", "Messages sent.", "topic", "kind")
DEPTH = gauge("depth", 'Depth with "quotes", a \\ and\na line.', "topic")
AGE = gauge("age_seconds", "Age of the oldest.", "topic", adds_up=False)
TOOK = histogram("took_seconds", "Time taken.", (0.1, 1, 10), "topic")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def run(steps: Iterator[str]) -> str:
    return "".join(steps)


def samples(text: str, *, openmetrics: bool) -> Samples:
    parse = parse_openmetrics if openmetrics else parse_text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def filled(topic: str = "T") -> Registry:
    registry = Registry({"cluster": "C"})
    sent, took = Counters(SENT), Histograms(TOOK)
    sent.add((topic, "normal"), 3)
    sent.add((topic, "normal"))
    took.observe((topic,), 0.1)
    took.observe((topic,), 5.0, 2)
    took.observe((topic,), 99.0)
    registry.add(sent.collect, took.collect)

    def collect(snapshot: Snapshot) -> Iterator[None]:
        snapshot.add(DEPTH, (topic,), 7)
        yield

    registry.add(collect)
    return registry


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_parse_to_the_values(*, openmetrics: bool) -> None:
    text = run(filled().exposition(openmetrics=openmetrics))
    found = samples(text, openmetrics=openmetrics)
    labels = (("cluster", "C"), ("topic", "T"))
    assert found["sent_total", (("cluster", "C"), ("kind", "normal"), ("topic", "T"))] == 4
    assert found["depth", labels] == 7
    buckets = [
        found["took_seconds_bucket", (labels[0], ("le", le), labels[1])] for le in ("0.1", "1.0", "10.0", "+Inf")
    ]
    assert buckets == [1, 1, 3, 4]
    assert found["took_seconds_count", labels] == 4
    assert found["took_seconds_sum", labels] == pytest.approx(109.1)
    assert text.endswith("# EOF\n") == openmetrics
    families = {family.name: family for family in (parse_openmetrics if openmetrics else parse_text)(text)}
    assert families["depth"].documentation == DEPTH.help
    assert (families["sent"].type, families["took_seconds"].type) == ("counter", "histogram")


@given(topic=st.text(min_size=1))  # an empty label value means no label
def test_any_label_value_survives(topic: str) -> None:
    """Goal: quotes, newlines, backslashes and any script in a topic break neither format."""
    registry = filled(topic)
    for openmetrics in (False, True):
        found = samples(run(registry.exposition(openmetrics=openmetrics)), openmetrics=openmetrics)
        wanted = topic.encode("utf-8", "replace").decode()
        assert found["depth", (("cluster", "C"), ("topic", wanted))] == 7


def test_series_beyond_the_limit_are_folded_and_sums_stay_right() -> None:
    registry = Registry({}, series_max=10)
    sent = Counters(SENT)
    for number in range(25):
        sent.add((f"T{number}", "normal"), number)

    def collect(snapshot: Snapshot) -> Iterator[None]:
        for number in range(25):
            snapshot.add(AGE, (f"T{number}",), number)
            snapshot.add(TOOK, (f"T{number}",), Distribution([1, 0, 0, 1], 50.0))
        yield

    registry.add(sent.collect, collect)
    found = samples(run(registry.exposition(openmetrics=False)), openmetrics=False)
    assert sum(value for (name, _), value in found.items() if name == "sent_total") == sum(range(25))
    assert found["sent_total", (("kind", "normal"), ("topic", OTHER))] == sum(range(10, 25))
    assert found["age_seconds", (("topic", OTHER),)] == 24
    assert found["took_seconds_count", (("topic", OTHER),)] == 30
    assert found["rocketq_metrics_folded_total", (("family", "sent_total"),)] == 15
    assert found["rocketq_metrics_series", (("family", "sent_total"),)] == 11


def test_series_go_with_their_topic() -> None:
    sent = Counters(SENT)
    sent.add(("T", "normal"))
    sent.add(("U", "normal"))
    registry = Registry({})
    registry.add(sent.collect)
    assert len(samples(run(registry.exposition(openmetrics=False)), openmetrics=False)) == 3
    sent.forget("topic", "T")
    sent.forget("no such label", "T")
    assert '"T"' not in run(registry.exposition(openmetrics=False))
    run(registry.exposition(openmetrics=False))
    assert registry._prepared[SENT].texts.keys() == {("U", "normal")}


def test_malformed_families_are_rejected() -> None:
    with pytest.raises(ValueError, match="_total"):
        counter("sent", "Messages.")
    with pytest.raises(ValueError, match="buckets"):
        Family("took", Kind.HISTOGRAM, "Time.")


def test_cost_of_50_000_samples(record_property: object) -> None:
    """Goal: a scrape costs less than 100 ms of CPU, in steps far below 2 ms."""
    registry = Registry({"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"})
    sent = Counters(counter("rocketmq_sent_total", "Messages.", "topic", "consumer_group", "is_system"))
    for number in range(49_000):
        sent.add((f"topic-{number % 7000}", f"group-{number // 7000}", "false"), number)
    registry.add(sent.collect)
    run(registry.exposition(openmetrics=False))  # label texts are kept between scrapes
    best_s, longest_s = 9.0, 9.0
    for _ in range(5):
        began_s, longest = time.thread_time(), 0.0
        before_s = began_s
        for _ in registry.exposition(openmetrics=False):
            now_s = time.thread_time()
            longest, before_s = max(longest, now_s - before_s), now_s
        best_s, longest_s = min(best_s, time.thread_time() - began_s), min(longest, longest_s)
    assert callable(record_property)
    record_property("figures", f"49,000 samples: {best_s * 1000:.0f} ms CPU, longest step {longest_s * 1000:.2f} ms")
    assert best_s < 0.3  # 0.06 s on an idle machine
