"""Trace records: the text Apache's console reads, and back."""

from __future__ import annotations

from rocketq.client.core.trace_records import (
    ContextCode,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceMessageType,
    TraceRecord,
    decode_trace,
    encode_trace,
    pack,
)

PUB = PubRecord(
    timestamp_ms=17,
    region="r",
    group="g",
    topic="T",
    message_id="M",
    tag=None,
    keys="k1 k2",
    store_host="10.0.0.1:10911",
    body_bytes=5,
    cost_ms=3,
    message_type=TraceMessageType.DELAY,
    offset_message_id="O",
    success=True,
)
PUB_TEXT = "Pub\x0117\x01r\x01g\x01T\x01M\x01null\x01k1 k2\x0110.0.0.1:10911\x015\x013\x013\x01O\x01true\x02"
BEFORE = SubBeforeRecord(timestamp_ms=1, group="g", request_id="R", message_id="M", retry_times=2, keys="k")
AFTER = SubAfterRecord(
    request_id="R",
    message_id="M",
    cost_ms=4,
    success=False,
    keys="k",
    context_code=ContextCode.EXCEPTION,
    timestamp_ms=9,
    group="g",
)
END = EndTransactionRecord(
    timestamp_ms=1, group="g", topic="T", message_id="M", transaction_id="X", state="COMMIT_MESSAGE", from_check=True
)
RECALL = RecallRecord(timestamp_ms=1, group="g", topic="T", message_id="M", success=False)


def test_a_published_message_is_told_in_this_order() -> None:
    assert encode_trace(PUB) == PUB_TEXT
    assert encode_trace(AFTER) == "SubAfter\x01R\x01M\x014\x01false\x01k\x012\x019\x01g\x02"
    assert encode_trace(BEFORE) == "SubBefore\x011\x01DefaultRegion\x01g\x01R\x01M\x012\x01k\x02"


def test_all_kinds_survive_the_way_there_and_back() -> None:
    records: list[TraceRecord] = [PUB, BEFORE, AFTER, END, RECALL]
    assert decode_trace("".join(map(encode_trace, records))) == records


def test_older_and_newer_forms_are_read() -> None:
    fields = PUB_TEXT[:-1].split("\x01")
    old = "\x01".join([*fields[:12], "false"]) + "\x02"
    (read,) = decode_trace(old)
    assert isinstance(read, PubRecord)
    assert (read.offset_message_id, read.success) == (None, False)
    (newer,) = decode_trace(PUB_TEXT[:-1] + "\x0110.0.0.9\x02")
    assert newer == PUB
    (short,) = decode_trace("SubAfter\x01R\x01M\x014\x01true\x01k\x010\x02")
    assert isinstance(short, SubAfterRecord)
    assert short.group == ""
    assert decode_trace("Unknown\x011\x02Pub\x01x\x02\x02") == []


def test_bodies_are_bounded_and_have_the_keys_of_their_records() -> None:
    packed = pack([PUB] * 10, bytes_max=3 * len(PUB_TEXT))
    assert [len(decode_trace(body)) for body, _ in packed] == [3, 3, 3, 1]
    assert packed[0][1] == {"M", "k1", "k2"}
    assert pack([PUB], bytes_max=10) == []


def test_separators_inside_of_values_do_no_harm() -> None:
    odd = PubRecord(timestamp_ms=1, group="g", topic="T", message_id="M", keys="a\x01b\x02c")
    (read,) = decode_trace(encode_trace(odd))
    assert isinstance(read, PubRecord)
    assert read.keys == "a b c"
