"""Columns equal what the protocol's own decoder reads, record by record, in both forms of the kernel."""

from __future__ import annotations

import zlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed (it comes with rocketq[spark])")

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketq.columns import COLUMN_TYPES, BatchBuilder, UnknownColumnError, arrow_schema, decode
from rocketq.errors import ProtocolError
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.record_columns import RecordRows
from rocketq.kernel.records import MESSAGE, whole_records
from rocketq.model import Host, Record, SysFlag
from rocketq.protocol.messages import decode_records, encode_record
from rocketq.protocol.properties import decode_properties, encode_properties

names = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=6)
hosts = st.one_of(
    st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65535)),
    st.builds(Host, st.binary(min_size=16, max_size=16), st.integers(0, 65535)),
)
times = st.integers(0, 4_000_000_000_000)


@st.composite
def records(draw: st.DrawFn) -> Record:
    properties = draw(st.dictionaries(st.one_of(names, st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"])), names))
    body = draw(st.binary(max_size=40))
    compressed = draw(st.booleans())
    return Record(
        size=0,
        version=draw(st.sampled_from([1, 2])),
        body_crc=0,
        queue_id=draw(st.integers(0, 2**31 - 1)),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**63 - 2)),
        log_offset=draw(st.integers(0, 2**63 - 1)),
        sys_flag=SysFlag.COMPRESSED if compressed else 0,
        born_ms=draw(times),
        born_host=draw(hosts),
        store_ms=draw(times),
        store_host=draw(hosts),
        reconsume_times=draw(st.integers(0, 2**31 - 1)),
        prepared_offset=0,
        body=zlib.compress(body) if compressed else body,
        topic=draw(st.text("abcÄ%_", min_size=1, max_size=20)),
        properties=encode_properties(properties),
    )


def expected(record: Record) -> dict[str, object]:
    """A row as the protocol's decoder and plain Python see it."""
    properties = decode_properties(record.properties)
    body = zlib.decompress(record.body) if record.sys_flag & SysFlag.COMPRESSED else record.body
    return {
        "topic": record.topic,
        "brokerName": "broker-a",
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "logOffset": record.log_offset,
        "msgId": properties.get("UNIQ_KEY", record.message_id),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "body": body,
        "bornTimestamp": record.born_ms,
        "storeTimestamp": record.store_ms,
        "reconsumeTimes": record.reconsume_times,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bornHost": str(record.born_host),
        "storeHost": str(record.store_host),
        "properties": properties,
    }


def rows_of(batch: object) -> list[dict[str, object]]:
    rows = batch.to_pylist()  # type: ignore[attr-defined]
    for row in rows:
        row["properties"] = dict(row["properties"])
        for name in ("bornTimestamp", "storeTimestamp"):
            row[name] = round((row[name] - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return rows


@settings(max_examples=60, deadline=None)
@given(st.lists(records(), max_size=12))
def test_every_column_of_every_record_is_what_the_decoder_reads(given_records: list[Record]) -> None:
    """Goal: no kind of record (V1, V2, IPv6, compressed, any property) comes out as something else."""
    data = b"".join(map(encode_record, given_records))
    builder = BatchBuilder(arrow_schema(COLUMN_TYPES), {"brokerName": "broker-a"})
    batch = decode(data, builder)
    batch.validate(full=True)
    assert rows_of(batch) == [expected(record) for record in decode_records(data)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(records(), max_size=5), max_size=6), st.integers(1, 9))
def test_buffer_by_buffer_is_the_same_as_all_at_once(given_records: list[list[Record]], times: int) -> None:
    """Goal: whatever comes together, and however much was expected, the batch is the same; the next one begins anew."""
    builder, rows = BatchBuilder(arrow_schema(COLUMN_TYPES), {"brokerName": "broker-a"}), RecordRows()
    rows.in_place = False
    for _ in range(2):
        for each in given_records:
            data = bytearray(b"".join(map(encode_record, each)))
            assert rows.collect(MappedBuffer(data, 0), 0, len(data), 1 << 30) == MESSAGE
            builder.add(rows, times=times)
            data[:] = bytes(len(data))
        batch = builder.finish(rows)
        batch.validate(full=True)
        every = b"".join(encode_record(record) for each in given_records for record in each)
        assert rows_of(batch) == [expected(record) for record in decode_records(every)]


def test_many_small_buffers_copy_little() -> None:
    """Goal: a broker that answers with a few messages at a time costs no copy of the batch with every answer."""
    builder, rows = BatchBuilder(arrow_schema(COLUMN_TYPES), {"brokerName": "broker-a"}), RecordRows()
    rows.in_place, sizes = False, set()
    for number in range(1000):
        data = encode_record(make(number, properties=b"KEYS\1k\2a\1b\2"))
        rows.collect(MappedBuffer(data, 0), 0, len(data), 1 << 20)
        builder.add(rows)
        columns = (rows.body, rows.keys, rows.names, rows.values)
        sizes |= {(at, len(held)) for at, each in enumerate(columns) for held in (each.ends, each.data)}
        sizes |= {("numbers", rows.number_room), ("map", len(rows.map_ends))}
    assert len(sizes) < 150
    assert builder.finish(rows).column("queueOffset").to_pylist() == list(range(1000))


def make(queue_offset: int, **changes: object) -> Record:
    record = Record(
        size=0, version=1, body_crc=0, queue_id=0, flag=0, queue_offset=queue_offset, log_offset=0, sys_flag=0,
        born_ms=1, born_host=Host(b"\x7f\0\0\1", 1), store_ms=queue_offset * 10, store_host=Host(b"\x7f\0\0\1", 10911),
        reconsume_times=0, prepared_offset=0, body=b"b%d" % queue_offset, topic="T", properties=b"",
    )  # fmt: skip
    return replace(record, **changes)  # type: ignore[arg-type]


def test_any_columns_in_any_order() -> None:
    """Goal: a reader pays for what it asks for, and gets it as it asked."""
    data = b"".join(encode_record(make(n)) for n in range(3))
    batch = decode(data, BatchBuilder(arrow_schema(["body", "queueOffset"])))
    assert batch.schema.names == ["body", "queueOffset"]
    assert batch.to_pydict() == {"body": [b"b0", b"b1", b"b2"], "queueOffset": [0, 1, 2]}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["KEYS", "UNIQ_KEY", "a", "bb", "KEY", "WAIT", "region"]), names), max_size=80)
)
def test_hidden_properties_are_in_no_map_and_the_last_of_a_name_wins(items: list[tuple[str, str]]) -> None:
    """Goal: what an application set is all there is, however often it was said and however many there are."""
    data = encode_record(make(0, properties="".join(f"{name}\1{value}\2" for name, value in items).encode()))
    rows = RecordRows()
    rows.in_place = False
    rows.hide([b"KEYS", b"UNIQ_KEY", b"WAIT"])
    rows.collect(MappedBuffer(data, 0), 0, len(data), 1 << 20)
    batch = BatchBuilder(arrow_schema(["keys", "properties"])).build(rows)
    batch.validate(full=True)
    own = dict(batch.column("properties").to_pylist()[0])
    assert own == {name: value for name, value in items if name not in ("KEYS", "UNIQ_KEY", "WAIT")}
    assert batch.column("keys").to_pylist() == [dict(items).get("KEYS")]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["\1", "\2", "KEYS", "TAGS", "UNIQ_KEY", "a", "seventeen letters"]), max_size=40))
def test_items_of_any_shape_and_length_read_as_the_decoder_has_them(pieces: list[str]) -> None:
    """Goal: no value, no name, a 0x01 in a value, no end: whether 16 bytes are looked at together or each alone."""
    properties = "".join(pieces).encode()
    builder = BatchBuilder(arrow_schema(["msgId", "tags", "keys", "properties"]))
    batch = decode(encode_record(make(0, properties=properties)), builder)
    batch.validate(full=True)
    wanted = decode_properties(properties)
    assert dict(batch.column("properties").to_pylist()[0]) == wanted
    alone = decode(encode_record(make(0, properties=properties)), BatchBuilder(arrow_schema(["msgId", "tags", "keys"])))
    assert alone.to_pylist() == batch.select(["msgId", "tags", "keys"]).to_pylist()
    assert batch.column("tags").to_pylist() == [wanted.get("TAGS")]
    assert batch.column("keys").to_pylist() == [wanted.get("KEYS")]
    if "UNIQ_KEY" in wanted:
        assert batch.column("msgId").to_pylist() == [wanted["UNIQ_KEY"]]


def test_a_name_too_long_to_be_hidden_is_refused() -> None:
    """Goal: nobody believes that something is hidden which is not."""
    rows = RecordRows()
    rows.hide([b"n" * 63])
    for name in (b"", b"n" * 64):
        with pytest.raises(ValueError, match="1 to 63 bytes"):
            rows.hide([name])


def test_unknown_columns_and_wrong_types_are_named() -> None:
    """Goal: a typo in a schema is told by its name before anything is read."""
    with pytest.raises(UnknownColumnError, match="no column 'bdy'"):
        arrow_schema(["bdy"])
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(UnknownColumnError, match="queueId is int32, not string"):
        BatchBuilder(pa.schema([("queueId", pa.string())]))


def test_rows_are_chosen_by_topic_queue_offset_and_time() -> None:
    """Goal: what is filtered costs no column space and is not returned."""
    data = b"".join(encode_record(make(n, topic="TU"[n % 2], queue_id=n % 3)) for n in range(24))
    rows = RecordRows()
    rows.in_place = False
    rows.topics, rows.queue_ids = {b"U"}, {0, 1}
    rows.queue_offset_low, rows.store_ms_high = 3, 200
    assert rows.collect(MappedBuffer(data, 0), 0, len(data), 1 << 20) == MESSAGE
    assert rows.seen == 24
    batch = BatchBuilder(arrow_schema(["queueOffset"])).build(rows)
    wanted = [n for n in range(24) if n % 2 == 1 and n % 3 < 2 and n >= 3 and n * 10 < 200]
    assert batch.to_pydict() == {"queueOffset": wanted}


def test_a_batch_ends_at_its_bytes_and_goes_on_where_it_ended() -> None:
    """Goal: a long stretch is read in pieces without a loss or a repetition."""
    data = b"".join(encode_record(make(n)) for n in range(50))
    buffer, at, seen = MappedBuffer(data, 0), 0, []
    rows, builder = RecordRows(), BatchBuilder(arrow_schema(["queueOffset"]))
    rows.in_place = False
    while at < len(data):
        assert rows.collect(buffer, at, len(data), 500) == MESSAGE
        seen += builder.build(rows).to_pydict()["queueOffset"]
        at = rows.at
    assert seen == list(range(50))


@pytest.mark.parametrize("cut", [1, 7, 35, 60, 90])
def test_a_cut_body_is_an_error_that_says_where(cut: int) -> None:
    """Goal: half a record is never half a row."""
    data = encode_record(make(0)) + encode_record(make(1))
    with pytest.raises(ProtocolError, match="damaged at byte"):
        decode(data[:-cut], BatchBuilder(arrow_schema(["body"])))


def test_text_that_is_not_utf8_reads_as_replacement_characters() -> None:
    """Goal: one producer's broken tag does not stop a reader."""
    data = encode_record(make(0, properties=b"TAGS\x01\xff\xfe\x02KEYS\x01ok"))
    batch = decode(data, BatchBuilder(arrow_schema(["tags", "keys"])))
    batch.validate(full=True)
    assert batch.to_pydict() == {"tags": ["��"], "keys": ["ok"]}


def test_a_body_that_does_not_inflate_is_told_of_and_left_as_it_is() -> None:
    """Goal: one bad body is one row's trouble when the caller bears with it, else an error."""
    data = encode_record(make(0, sys_flag=SysFlag.COMPRESSED, body=b"no zlib")) + encode_record(make(1))
    builder, rows, told = BatchBuilder(arrow_schema(["body"])), RecordRows(), []
    rows.in_place = False
    rows.collect(MappedBuffer(data, 0), 0, len(data), 1 << 20)
    batch = builder.build(rows, lambda row, reason: told.append(row))
    assert (told, batch.to_pydict()) == ([0], {"body": [b"no zlib", b"b1"]})
    with pytest.raises(ProtocolError):
        decode(data, builder)


def test_only_whole_records_are_counted() -> None:
    """Goal: a piece of an answer may end anywhere; what no size can be is left to who parses it."""
    first, second = encode_record(make(0)), encode_record(make(1, body=b"x" * 300))
    buffer = MappedBuffer(first + second, 0)
    found = [whole_records(buffer, end) for end in range(len(first) + len(second) + 1)]
    assert found == [0] * len(first) + [len(first)] * len(second) + [len(first) + len(second)]
    assert whole_records(MappedBuffer(first + bytes(8), 0), len(first) + 8) == len(first) + 8
    with pytest.raises(IndexError):
        whole_records(buffer, buffer.size + 1)
