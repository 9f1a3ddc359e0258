"""Metric families, their values, and the Prometheus and OpenMetrics text formats. Pure: no clock, no I/O.

Code that counts holds a `Counters` or `Histograms` and adds to it. Everything that is known anyway, such as the length
of a table, is read by a collector when somebody asks: a generator that adds samples to a `Snapshot` in short steps.

    Registry.snapshot()      steps: collectors -> Snapshot (series limited per family)
    Registry.exposition()    steps: Snapshot -> pieces of text

Both are generators, so that the caller can run them in slices on an event loop.

    text 0.0.4:   # HELP name text \\n # TYPE name kind \\n name{label="value",...} number \\n
    OpenMetrics:  the same, with the family name of a counter without `_total`, and `# EOF` at the end
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Labels = tuple[str, ...]
"""Values of a family's labels, in their order. Labels with an empty value are left out, which means the same."""

SERIES_MAX: Final = 50_000
OTHER: Final = "__other__"
"""Label value of the series that holds what exceeds a family's limit."""
_FOLDED_LABELS: Final = ("topic", "consumer_group", "group", "client_id")
_STEP: Final = 64  # samples: one step of a generator, about 0.05 ms
TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: the name of its samples (a histogram's without `_bucket`), its help sentence, and its label names.

    `adds_up` says how series beyond the limit are folded into one: their sum, or else their maximum.
    """

    name: str
    kind: Kind
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    adds_up: bool = True

    def __post_init__(self) -> None:
        if self.kind is Kind.COUNTER and not self.name.endswith("_total"):
            raise ValueError(f"counter {self.name} does not end in _total")
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets):
            raise ValueError(f"{self.name}: buckets belong to histograms")


def counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, Kind.COUNTER, text, labels)


def gauge(name: str, text: str, *labels: str, adds_up: bool = True) -> Family:
    return Family(name, Kind.GAUGE, text, labels, adds_up=adds_up)


def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Family:
    return Family(name, Kind.HISTOGRAM, text, labels, tuple(buckets))


@dataclass(slots=True)
class Distribution:
    """One series of a histogram: observations by bucket (not cumulative, the last one is +Inf), and their sum."""

    counts: list[int]
    sum: float = 0.0

    def merge(self, other: Distribution) -> None:
        self.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum


Value = int | float | Distribution


class Counters:
    """Values of a counter or gauge family by labels."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.values: dict[Labels, float] = {}

    def add(self, labels: Labels, value: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + value

    def collect(self, snapshot: Snapshot) -> Iterator[None]:
        return _copy(self.family, self.values, snapshot)

    def forget(self, label: str, *values: str) -> None:
        """Remove the series in which `label` has one of these values."""
        _forget(self.family, self.values, label, values)


class Histograms:
    """Distributions of a histogram family by labels."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.values: dict[Labels, Distribution] = {}

    def observe(self, labels: Labels, value: float, count: int = 1) -> None:
        """Count `count` observations of the same value."""
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = Distribution([0] * (len(self.family.buckets) + 1))
        found.counts[bisect_left(self.family.buckets, value)] += count
        found.sum += value * count

    def merge(self, labels: Labels, more: Distribution) -> None:
        found = self.values.get(labels)
        if found is None:
            self.values[labels] = more
        else:
            found.merge(more)

    def collect(self, snapshot: Snapshot) -> Iterator[None]:
        return _copy(self.family, self.values, snapshot)

    def forget(self, label: str, *values: str) -> None:
        """Remove the series in which `label` has one of these values."""
        _forget(self.family, self.values, label, values)


def _copy(family: Family, values: Mapping[Labels, Value], snapshot: Snapshot) -> Iterator[None]:
    for number, labels in enumerate(list(values)):  # a copy of the keys alone takes 0.2 ms for 50,000 of them
        if (value := values.get(labels)) is not None:
            snapshot.add(family, labels, value)
        if number % _STEP == 0:
            yield


def _forget(family: Family, values: dict[Labels, Value] | dict[Labels, float] | dict[Labels, Distribution],
            label: str, gone: Iterable[str]) -> None:  # fmt: skip
    if label not in family.labels:
        return
    at, names = family.labels.index(label), frozenset(gone)
    for labels in [labels for labels in values if labels[at] in names]:
        del values[labels]


class Snapshot:
    """Samples of one moment by family and labels. A family has up to `series_max` series; what exceeds them is folded
    into a series with `__other__` for topic and group, so that sums stay right, and counted in `folded`."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self.families: dict[Family, dict[Labels, Value]] = {}
        self.folded: dict[Family, int] = {}
        self._series_max = series_max

    def add(self, family: Family, labels: Labels, value: Value) -> None:
        """Add a series; one that is there already is added up."""
        series = self.families.get(family)
        if series is None:
            series = self.families[family] = {}
        if labels not in series:
            if len(series) < self._series_max:
                series[labels] = value
                return
            self.folded[family] = self.folded.get(family, 0) + 1
            labels = tuple(
                OTHER if name in _FOLDED_LABELS else value for name, value in zip(family.labels, labels, strict=True)
            )
        known = series.get(labels)
        if known is None:
            series[labels] = value
        elif isinstance(known, Distribution) or isinstance(value, Distribution):
            assert isinstance(known, Distribution)
            assert isinstance(value, Distribution)
            merged = Distribution(list(known.counts), known.sum)
            merged.merge(value)
            series[labels] = merged
        else:
            series[labels] = known + value if family.adds_up else max(known, value)

    def value(self, family: Family, *labels: str) -> Value | None:
        return self.families.get(family, {}).get(labels)


Collector = Callable[[Snapshot], Iterator[None]]


@dataclass(slots=True)
class _Prepared:
    """Texts of a family's series up to the value, by labels; a histogram has one for each line. They are kept between
    scrapes, and made again once there are more of them than series."""

    texts: dict[Labels, str] = field(default_factory=dict)
    lines: dict[Labels, list[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.texts) + len(self.lines)


class Registry:
    """All metrics of a process or server. `constant` labels are on every series."""

    def __init__(self, constant: Mapping[str, str], *, series_max: int = SERIES_MAX) -> None:
        self._constant = [f'{name}="{escape(value)}"' for name, value in constant.items()]
        self._series_max = series_max
        self._collectors: list[Collector] = []
        self._prepared: dict[Family, _Prepared] = {}
        self.folded = counter(
            "rocketq_metrics_folded_total", "Series of a family that were folded into __other__ by scrapes.", "family"
        )
        self.series = gauge("rocketq_metrics_series", "Series of a family in this exposition.", "family")
        self._folded = Counters(self.folded)

    def add(self, *collectors: Collector) -> None:
        self._collectors.extend(collectors)

    def snapshot(self) -> Generator[None, None, Snapshot]:
        """All samples of now."""
        found = Snapshot(self._series_max)
        for collector in list(self._collectors):
            yield from collector(found)
        for family, count in found.folded.items():
            self._folded.add((family.name,), count)
        sizes = {family.name: len(series) for family, series in found.families.items()}
        yield from self._folded.collect(found)
        for name, size in sizes.items():
            found.add(self.series, (name,), size)
        return found

    def exposition(self, *, openmetrics: bool) -> Generator[str, None, None]:
        """The text of a scrape in pieces; empty pieces while samples are collected."""
        steps = self.snapshot()
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: Snapshot = stop.value
                break
            yield ""
        for family in sorted(found.families, key=lambda one: one.name):
            yield head(family, openmetrics=openmetrics)
            yield from self._render(family, found.families.pop(family))
        if openmetrics:
            yield "# EOF\n"

    def _render(self, family: Family, series: dict[Labels, Value]) -> Iterator[str]:
        prepared = self._prepared.get(family)
        if prepared is None or prepared.count > len(series):
            prepared = self._prepared[family] = _Prepared()  # series have gone, and their texts with them
        texts = prepared.texts
        pieces: list[str] = []
        for labels, value in series.items():
            if isinstance(value, Distribution):
                pieces.extend(self._lines(family, labels, value, prepared))
            else:
                text = texts.get(labels)
                if text is None:
                    text = texts[labels] = f"{family.name}{self._label_text(family, labels)} "
                pieces.append(f"{text}{value}\n")
            if len(pieces) >= _STEP:
                yield "".join(pieces)
                pieces.clear()
        yield "".join(pieces)

    def _lines(self, family: Family, labels: Labels, value: Distribution, prepared: _Prepared) -> Iterator[str]:
        lines = prepared.lines.get(labels)
        if lines is None:
            bounds = [repr(float(bound)) for bound in family.buckets] + ["+Inf"]
            lines = [f"{family.name}_bucket{self._label_text(family, labels, le=bound)} " for bound in bounds]
            lines += [f"{family.name}_{end}{self._label_text(family, labels)} " for end in ("count", "sum")]
            prepared.lines[labels] = lines
        total = 0
        for number, count in enumerate(value.counts):
            total += count
            yield f"{lines[number]}{total}\n"
        yield f"{lines[-2]}{total}\n{lines[-1]}{value.sum}\n"

    def _label_text(self, family: Family, labels: Labels, le: str | None = None) -> str:
        own = [f'{name}="{escape(value)}"' for name, value in zip(family.labels, labels, strict=True) if value]
        if le is not None:
            own.append(f'le="{le}"')
        every = ",".join([*self._constant, *own])
        return f"{{{every}}}" if every else ""


def head(family: Family, *, openmetrics: bool) -> str:
    name = family.name.removesuffix("_total") if openmetrics and family.kind is Kind.COUNTER else family.name
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind.value}\n"


def escape(value: str) -> str:
    """A label value as it stands between quotes. Lone surrogates, which UTF-8 does not have, become `?`."""
    text = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
