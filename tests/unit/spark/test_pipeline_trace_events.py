"""Trace messages become rows: every kind of record, of every age, and nothing of what is broken."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from rocketq.client.core.trace_records import (
    ContextCode,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceMessageType,
    encode_trace,
)
from rocketq.spark.pipelines.trace import decode_bodies, event_rows

SENT = PubRecord(
    timestamp_ms=1_700_000_000_123,
    group="shop",
    topic="Orders",
    message_id="A1",
    tag="paid",
    keys="k1 k2",
    store_host="10.0.0.1:10911",
    body_bytes=17,
    cost_ms=3,
    message_type=TraceMessageType.DELAY,
    offset_message_id="B1",
)


def body(*texts: str) -> bytes:
    return "".join(texts).encode()


def test_a_send_has_all_its_columns() -> None:
    (row,) = event_rows(body(encode_trace(SENT)))
    assert {name: value for name, value in row.items() if value is not None} == {
        "kind": "Pub",
        "time": 1_700_000_000_123_000,
        "region": "DefaultRegion",
        "group": "shop",
        "topic": "Orders",
        "msgId": "A1",
        "tags": "paid",
        "keys": "k1 k2",
        "storeHost": "10.0.0.1:10911",
        "bodyBytes": 17,
        "costMs": 3,
        "messageType": "delay",
        "offsetMsgId": "B1",
        "success": True,
    }


def test_a_batch_sent_as_one_is_a_row_per_message() -> None:
    """Goal: consumers tell of each message of a batch, so its send must be found for each."""
    text = encode_trace(SENT).replace("\x01A1\x01", "\x01A1,A2,A3\x01")
    assert [row["msgId"] for row in event_rows(body(text))] == ["A1", "A2", "A3"]


def test_begin_and_end_of_a_consumption_share_request_and_message() -> None:
    begun = SubBeforeRecord(timestamp_ms=5_000, group="mail", request_id="R", message_id="A1", retry_times=2, keys="k")
    ended = SubAfterRecord(
        request_id="R", message_id="A1", cost_ms=40, success=False, context_code=ContextCode.EXCEPTION, group="mail"
    )
    first, second = event_rows(body(encode_trace(begun), encode_trace(ended)))
    assert (first["kind"], first["requestId"], first["retryTimes"], first["group"]) == ("SubBefore", "R", 2, "mail")
    assert (second["kind"], second["requestId"], second["costMs"], second["success"], second["outcome"]) == (
        "SubAfter",
        "R",
        40,
        False,
        "exception",
    )
    assert second["time"] is None, "0 is no time"


def test_the_end_of_a_consumption_by_a_4x_client_has_no_time_and_no_group() -> None:
    text = "\x01".join(["SubAfter", "R", "A1", "7", "true", "null", "0"]) + "\x02"
    (row,) = event_rows(body(text))
    assert (row["time"], row["group"], row["keys"], row["costMs"]) == (None, None, None, 7)


def test_transactions_and_recalls_are_rows_too() -> None:
    ended = EndTransactionRecord(
        timestamp_ms=1,
        group="g",
        topic="T",
        message_id="A",
        transaction_id="X",
        state="COMMIT",
        from_check=True,
    )
    recalled = RecallRecord(timestamp_ms=2, group="g", topic="T", message_id="B", success=False)
    first, second = event_rows(body(encode_trace(ended), encode_trace(recalled)))
    assert (first["transactionId"], first["state"], first["fromCheck"]) == ("X", "COMMIT", True)
    assert (second["kind"], second["msgId"], second["success"]) == ("Recall", "B", False)


@pytest.mark.parametrize("junk", [b"", b"\x02\x02", b"Pub\x01x\x02", b"\xff\xfe\x01\x02", b"Nonsense\x01a\x01b\x02"])
def test_what_cannot_be_read_is_left_out_and_the_rest_is_not(junk: bytes) -> None:
    assert event_rows(junk) == []
    assert [row["msgId"] for row in event_rows(junk + b"\x02" + body(encode_trace(SENT)))] == ["A1"]


def test_figures_beyond_what_a_column_holds_do_not_end_the_query() -> None:
    """Goal: anybody may write to the trace topic."""
    huge = PubRecord(timestamp_ms=10**18, group="g", topic="T", message_id="A", body_bytes=10**12, cost_ms=-(10**12))
    (row,), nothing = decode_bodies(pa.array([body(encode_trace(huge)), None], pa.binary())).to_pylist()
    assert (row["time"], row["bodyBytes"], row["costMs"]) == (None, 2**31 - 1, -(2**31 - 1))
    assert nothing == []


def test_moments_and_numbers_have_their_types() -> None:
    made = decode_bodies(pa.array([body(encode_trace(SENT))], pa.binary()))
    assert made.to_pylist()[0][0]["time"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert made.type.value_type.field("costMs").type == pa.int32()
