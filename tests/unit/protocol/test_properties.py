"""Message properties as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import LocalProtocolError
from rocketq.protocol.properties import append_missing, decode_properties, encode_properties

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"A\x01b\x02", {"A": "b"}),
        (b"A\x01b", {"A": "b"}),
        (b"A\x01\x02", {}),
        (b"\x01b\x02", {}),
        (b"A\x02B\x01c\x02", {"B": "c"}),
        (b"A\x01b\x01c\x02", {"A": "b\x01c"}),
        (b"A\x01b\x02A\x01c\x02", {"A": "c"}),
        (b"", {}),
        (b"\x02\x02", {}),
        (b"K\x01\xff\x02", {"K": "\ufffd"}),
    ],
)
def test_bytes_read_as_newer_apache_reads_them(data: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(data) == properties


def test_every_property_is_closed_and_order_is_kept() -> None:
    assert encode_properties({"B": "1", "A": "标"}) == b"B\x011\x02A\x01\xe6\xa0\x87\x02"


def test_empty_values_are_left_out() -> None:
    assert encode_properties({"A": "", "B": "1"}) == b"B\x011\x02"


@pytest.mark.parametrize("properties", [{"A\x01": "b"}, {"A": "b\x02"}, {"\x02": "b"}, {"": "b"}])
def test_separators_inside_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties(properties)


def test_appending_keeps_what_is_there() -> None:
    """Goal: batch elements get the batch's properties without any name twice."""
    assert append_missing(b"A\x011", {"A": "2", "B": "3"}) == b"A\x011\x02B\x013\x02"
    assert append_missing(b"A\x011\x02", {"B": "3"}) == b"A\x011\x02B\x013\x02"
    assert append_missing(b"A\x011", {"A": "2"}) == b"A\x011"
    assert append_missing(b"", {"A": "2"}) == b"A\x012\x02"


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_written_reads_back(properties: dict[str, str]) -> None:
    data = encode_properties(properties)
    assert decode_properties(data) == properties
    assert decode_properties(data[:-1]) == properties


@given(st.binary())
def test_any_bytes_can_be_read(data: bytes) -> None:
    decode_properties(data)
