"""Rows become exactly the elements that the protocol's own decoder reads, in both forms of the kernel."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketq.kernel import batch_encode as codes
from rocketq.kernel.batch_encode import BatchEncoder
from rocketq.protocol.messages import decode_batch
from rocketq.protocol.properties import decode_properties
from rocketq.spark.batch_rows import LEFT_OUT, set_columns

SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("shardingKey", pa.string()),
        ("delayTimeLevel", pa.int32()),
        ("deliverTimestamp", pa.int64()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)
texts = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=8)
names = st.sampled_from(["a", "Ä", "TAGS", "KEYS", "UNIQ_KEY", "TRAN_MSG", "WAIT", "DELAY", "long" * 9]) | st.text(
    "abc", min_size=1, max_size=3
)
rows = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=30),
        "tags": texts,
        "keys": texts,
        "shardingKey": texts,
        "delayTimeLevel": st.none() | st.integers(0, 30),
        "deliverTimestamp": st.none() | st.integers(0, 2**45),
        "properties": st.none() | st.dictionaries(names, texts, max_size=40).map(lambda found: list(found.items())),
    }
)
ID_HEAD = b"0123456789ABCDEF0123"


def make_encoder(origin: bytes = b"", constant: bytes = b"", *, body_max: int = 1000, props_max: int = 32767) -> object:
    return BatchEncoder(ID_HEAD, origin, constant, LEFT_OUT, body_max, props_max)


def expected(row: dict[str, object], number: int) -> dict[str, str]:
    found = {"UNIQ_KEY": f"{ID_HEAD.decode()}{number:012X}"}
    for column, name in (("tags", "TAGS"), ("keys", "KEYS"), ("shardingKey", "__SHARDINGKEY")):
        if row[column]:
            found[name] = str(row[column])
    if row["delayTimeLevel"]:
        found["DELAY"] = str(row["delayTimeLevel"])
    if row["deliverTimestamp"] is not None:
        found["TIMER_DELIVER_MS"] = str(row["deliverTimestamp"])
    found["SPARK_TX"] = f"q/7/1/{1000 + number}"
    for name, value in row["properties"] or []:  # type: ignore[attr-defined]
        if value and name.encode() not in LEFT_OUT:
            found.setdefault(name, value)
    return found | {"TRAN_MSG": "true"}


@settings(max_examples=150, deadline=None)
@given(st.lists(rows, min_size=1, max_size=20), st.integers(0, 3), st.integers(40, 4000))
def test_elements_say_what_the_rows_say(found: list[dict[str, object]], skip: int, bytes_max: int) -> None:
    """Goal: every body and property of every row, in order, whatever is missing and wherever a request ends."""
    batch = pa.RecordBatch.from_pylist([*found[:1] * skip, *found], SCHEMA).slice(skip)
    encoder = make_encoder(b"q/7/1/", b"TRAN_MSG\x01true\x02")
    set_columns(encoder, batch)
    encoder.ordinal_first = 1000
    at, elements = 0, []
    while at < len(found):
        before = at
        at = encoder.encode(at, len(found), bytes_max, 50)
        assert at > before
        assert not encoder.faults
        data = bytes(encoder.out[: encoder.used])
        pieces = list(decode_batch(data))
        assert len(pieces) == encoder.count == at - before
        assert encoder.count == 1 or len(data) + 50 * encoder.count <= bytes_max
        elements += pieces
    assert [element.body for element in elements] == [row["body"] for row in found]
    for number, (element, row) in enumerate(zip(elements, found, strict=True)):
        assert decode_properties(element.properties) == expected(row, number)


def faults_of(batch: dict[str, object], **limits: int) -> list[tuple[int, int]]:
    encoder = make_encoder(**limits)  # type: ignore[arg-type]
    made = pa.RecordBatch.from_pydict(
        {name: pa.array(column, SCHEMA.field(name).type) for name, column in batch.items()}
    )
    set_columns(encoder, made)
    assert encoder.encode(0, made.num_rows, 1 << 20, 0) == made.num_rows
    assert encoder.count + len(encoder.faults) == made.num_rows
    return list(encoder.faults)


def test_rows_that_cannot_be_sent_are_left_out_and_told_of() -> None:
    """Goal: one bad row does not spoil its neighbours, and its fault has a name."""
    assert faults_of({"body": [b"a", None, b"", b"b" * 9, b"c"]}, body_max=8) == [
        (1, codes.NO_BODY),
        (2, codes.EMPTY_BODY),
        (3, codes.BODY_TOO_LARGE),
    ]
    good = [b"x"] * 3
    assert faults_of({"body": good, "tags": ["a", "\x02", None]}) == [(1, codes.TAGS_SEPARATOR)]
    assert faults_of({"body": good, "keys": ["a", "b\x02", None]}) == [(1, codes.KEYS_SEPARATOR)]
    assert faults_of({"body": good, "shardingKey": ["\x02c", "b", None]}) == [(0, codes.SHARDING_SEPARATOR)]
    maps = [[("a", "1")], [("", "1")], [("a", "1\x02")]]
    assert faults_of({"body": good, "properties": maps}) == [(1, codes.PROPERTY_NAME), (2, codes.PROPERTY_SEPARATOR)]
    assert faults_of({"body": good, "properties": [[("a\x01", "1")], [], None]}) == [(0, codes.PROPERTY_NAME)]
    assert faults_of({"body": good, "tags": ["a", "b" * 200, "c"]}, props_max=100) == [(1, codes.PROPERTIES_TOO_LONG)]


def test_a_row_larger_than_a_request_stands_alone() -> None:
    """Goal: the limit of requests cuts between rows, never through one."""
    encoder = make_encoder(body_max=1 << 20)
    set_columns(encoder, pa.RecordBatch.from_pydict({"body": [b"a", b"b" * 5000, b"c"]}))
    counts = []
    at = 0
    while at < 3:
        at = encoder.encode(at, 3, 1024, 0)
        counts.append((encoder.count, len(next(iter(decode_batch(bytes(encoder.out[: encoder.used])))).body)))
    assert counts == [(1, 1), (1, 5000), (1, 1)]


def test_strings_and_large_types_are_bodies_too() -> None:
    """Goal: what Spark may hand over with its setting for large types."""
    for kind in (pa.string(), pa.large_string(), pa.large_binary()):
        encoder = make_encoder()
        set_columns(encoder, pa.RecordBatch.from_arrays([pa.array(["ä", "b"]).cast(kind)], names=["body"]))
        encoder.encode(0, 2, 1000, 0)
        assert [each.body for each in decode_batch(bytes(encoder.out[: encoder.used]))] == ["ä".encode(), b"b"]
