"""Settings as `key=value` lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.config_text import decode_config, format_config, parse_config


def test_lines_as_java_reads_them() -> None:
    text = (
        "# a comment\n! another\n\n  brokerName = broker-a \nlistenPort:10911\nempty=\nblank key\nlast=1\nlast=2\n"
        "long=one \\\n    two\nescaped\\=key=a\\tb\\\\c\\u00e4\nbrokerClusterName=DefaultCluster"
    )
    assert parse_config(text) == {
        "brokerName": "broker-a ",
        "listenPort": "10911",
        "empty": "",
        "blank": "key",
        "last": "2",
        "long": "one two",
        "escaped=key": "a\tb\\cä",
        "brokerClusterName": "DefaultCluster",
    }


@pytest.mark.parametrize("body", [b"a=\\u12", b"\xff\xfe=1"])
def test_what_cannot_be_read_is_an_error(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_config(body)


@given(st.dictionaries(st.text("abcXYZ.09", min_size=1), st.from_regex(r"([a-z0-9/][a-z0-9 /:=,]*)?", fullmatch=True)))
def test_what_is_written_is_read(settings: dict[str, str]) -> None:
    assert parse_config(format_config(settings)) == settings


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_config(text)
    except RemoteProtocolError:
        assert "\\u" in text
