"""Bodies that are encoded in pieces: the same bytes as at once, whatever is in them and whatever changes meanwhile."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketq.protocol.bodies import Body
from rocketq.protocol.bodies.clients import ConsumerConnections, ProducerTable
from rocketq.protocol.bodies.groups import ConsumerFilterTable, GroupConfigTable
from rocketq.protocol.bodies.offsets import ConsumerOffsets, ConsumerStatus, ResetOffsets, TimeSpans
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.bodies.registration import Registration
from rocketq.protocol.bodies.routes import ClusterTable, TopicRoute
from rocketq.protocol.bodies.stats import ConsumeStatsList
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable, TopicList, TopicStats
from rocketq.protocol.fastjson import dumps, to_bytes

TABLES = (
    ClusterTable,
    ConsumeStatsList,
    ConsumerConnections,
    ConsumerFilterTable,
    ConsumerOffsets,
    ConsumerStatus,
    GroupConfigTable,
    KeyValues,
    ProducerTable,
    Registration,
    ResetOffsets,
    TimeSpans,
    TopicConfigTable,
    TopicList,
    TopicRoute,
    TopicStats,
)
TEXTS = st.text(max_size=6) | st.sampled_from(['"', "\\", "\n\t", "é\U0001f600", "\ud800"])
ANYTHING = st.none() | st.integers() | TEXTS | st.lists(st.integers(), max_size=2) | st.dictionaries(TEXTS, TEXTS)


def values_of(hint: Any, size_max: int) -> st.SearchStrategy[Any]:
    """Values of a member's type; containers up to a size that makes some of them long."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return st.none() | values_of(next(part for part in get_args(hint) if part is not type(None)), size_max)
    if origin is tuple:
        return st.lists(values_of(get_args(hint)[0], 2), max_size=size_max).map(tuple)
    if origin in (Mapping, dict):
        key, item = get_args(hint)
        return st.dictionaries(values_of(key, 0), values_of(item, 2), max_size=size_max)
    if hint is Any:
        return ANYTHING
    if issubclass(hint, Body):
        return bodies_of(hint, size_max)
    if issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    plain = {str: TEXTS, bool: st.booleans(), int: st.integers(-(2**63), 2**63 - 1), float: st.floats(-1e9, 1e9)}
    return plain[hint]


def bodies_of(kind: type[Body], size_max: int) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    members = {item.name: values_of(hints[item.name], size_max) for item in fields(kind)}  # type: ignore[arg-type]
    return st.fixed_dictionaries(members).map(lambda given: kind(**given))


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_pieces_are_what_is_encoded_at_once(kind: type[Body], data: st.DataObject) -> None:
    """Goal: byte for byte the same in both forms, whether a part of it is long or not."""
    body = data.draw(bodies_of(kind, 40))
    assert to_bytes("".join(body.pieces())) == body.encode()
    assert to_bytes("".join(body.pieces("\n"))) == dumps(body.to_json(), pretty=True)


def test_long_tables_come_in_short_pieces() -> None:
    """Goal: no piece grows with a table; what is short is known to be."""
    topics = {f"T{number}": TopicConfig(topic=f"T{number}") for number in range(2_000)}
    table = TopicConfigTable(topics=topics)
    assert not table.is_short()
    assert TopicConfigTable(topics={"T0": topics["T0"]}).is_short()
    assert max(map(len, Registration(topics=table).pieces())) < 300
    offsets = ConsumerOffsets(offsets={"T@g": dict.fromkeys(range(5_000), 7)})
    assert not offsets.is_short()
    assert max(map(len, offsets.pieces())) < 100


def test_a_table_may_change_while_it_is_encoded() -> None:
    """Goal: never an error; an entry is as it was at some moment since the first piece."""
    live = {"A@g": {0: 1}, "B@g": {0: 1}, **{f"T{number}@g": {0: 1} for number in range(50)}}
    pieces = ConsumerOffsets(offsets=live).pieces()
    text = next(pieces) + next(pieces)
    live["B@g"][0] = 2
    live["New@g"] = {0: 3}
    del live["T7@g"]
    live["T8@g"].update(dict.fromkeys(range(100), 9))
    read = ConsumerOffsets.decode((text + "".join(pieces)).encode()).offsets
    assert read["B@g"] in ({0: 1}, {0: 2})
    assert len(read["T8@g"]) in (1, 100)


def test_what_cannot_be_written_is_an_error_in_both_ways() -> None:
    body = ConsumeStatsList.decode(b'{"consumeStatsList":[{"g":[{"consumeTps":1.5}]}]}')
    assert body.encode() == "".join(body.pieces()).encode()
    bad = TopicStats(put_tps=math.inf)
    for encode in (bad.encode, lambda: "".join(bad.pieces())):
        with pytest.raises(Exception, match="not writable as JSON"):
            encode()
