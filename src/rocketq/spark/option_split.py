"""Options of a source and of a sink given together: which are whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketq.spark.options import Options, parse_source
from rocketq.spark.sink_options import parse_sink


def of_source(given: Mapping[str, str]) -> dict[str, str]:
    """All options except those of the sink; the source rejects unknown ones."""
    return _without(given, _sink_names() - _source_names())


def of_sink(given: Mapping[str, str]) -> dict[str, str]:
    return _without(given, _source_names() - _sink_names())


def _without(given: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.lower() not in names}


def _source_names() -> frozenset[str]:
    return _asked({"nameServer": "-", "subscribe": "-"}, lambda options: parse_source(options, streaming=False))


def _sink_names() -> frozenset[str]:
    return _asked({"nameServer": "-"}, lambda options: parse_sink(options, streaming=False))


def _asked(given: Mapping[str, str], parse: Callable[[Options], object]) -> frozenset[str]:
    """Parsing asks for every option there is."""
    options = Options(given)
    parse(options)
    return options.names
