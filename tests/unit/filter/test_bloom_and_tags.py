"""The bloom filter's bits, and tag expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.filter import BadExpressionError, BloomGeometry, parse_tags, tag_code
from rocketq.filter.bloom import murmur3


def test_default_geometry_and_positions_are_apaches() -> None:
    """Goal: bitmaps that Apache wrote can be judged, and ours by Apache."""
    geometry = BloomGeometry.of()
    assert (geometry.bits, geometry.hashes) == (112, 3)
    assert murmur3(b"GID_demo#TopicTest") == 0x52359FA43BC0E876
    assert geometry.positions("GID_demo", "TopicTest") == (53, 17, 18)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", 0x0000000000000000),
        (b"a", 0x85555565F6597889),
        (b"0123456789abcdef", 0x4BE06D94CF4AD1A7),
        (b"0123456789abcdef0", 0xEB24AE8785A5C075),
        ("中文组#Топик-0123456789".encode(), 0x31E5E4675CB2A1F9),
    ],
)
def test_murmur3_of_known_texts(data: bytes, wanted: int) -> None:
    """Goal: whole blocks and tails, as Guava hashes them."""
    assert murmur3(data) == wanted


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=40))
def test_whoever_is_in_a_bitmap_may_match(groups: list[tuple[str, str]]) -> None:
    """Goal: never a wrong no."""
    geometry = BloomGeometry.of(20, 32)
    bitmap = geometry.bitmap(geometry.positions(*each) for each in groups)
    assert len(bitmap) == 14
    assert all(geometry.may_match(bitmap, geometry.positions(*each)) for each in groups)


def test_an_empty_bitmap_excludes_and_one_of_another_size_says_nothing() -> None:
    """Goal: a changed geometry costs a look at the record, not a message."""
    geometry = BloomGeometry.of()
    positions = geometry.positions("g", "t")
    assert not geometry.may_match(bytes(14), positions)
    assert geometry.may_match(bytes(13), positions)
    assert geometry.may_match(b"", positions)


@pytest.mark.parametrize(("percent", "groups"), [(0, 32), (100, 32), (-1, 1), (20, 0)])
def test_impossible_geometries_are_refused(percent: int, groups: int) -> None:
    with pytest.raises(ValueError):
        BloomGeometry.of(percent, groups)


def test_tag_expressions() -> None:
    """Goal: all, some, none, nonsense."""
    assert parse_tags(None) is parse_tags("") is parse_tags("*") is None
    assert parse_tags(" a ||b|| a") == ("a", "b")
    assert parse_tags("  ") == ()
    with pytest.raises(BadExpressionError, match="no tag"):
        parse_tags(" || ")
    assert tag_code("TagA") == 2598919
