"""Requests made of typed headers, names, and a short run of the fuzz target."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import HeaderForm
from rocketq.protocol.flags import Language, Perm
from rocketq.protocol.headers.nameserver import RouteRequest
from rocketq.protocol.headers.offsets import OffsetResponse
from rocketq.protocol.headers.send import SendRequest
from rocketq.protocol.names import dlq_topic, group_fault, is_system_group, is_system_topic, retry_topic, topic_fault
from rocketq.protocol.requests import make_request


def test_a_request_takes_its_code_from_its_header() -> None:
    command = make_request(RouteRequest(topic="T"), opaque=3, extra={"bname": "b"}, oneway=True, form=HeaderForm.BINARY)
    assert (command.code, command.opaque, command.flag, command.form) == (105, 3, 2, HeaderForm.BINARY)
    assert command.language is Language.PYTHON
    assert command.ext_fields == {"topic": "T", "bname": "b"}


def test_a_send_is_written_as_its_code_asks() -> None:
    request = SendRequest(topic="T", queue_id=0, sys_flag=0, born_ms=1, flag=0)
    assert make_request(request, opaque=1).ext_fields["topic"] == "T"
    assert make_request(request, opaque=1, code=RequestCode.SEND_MESSAGE_V2).ext_fields["b"] == "T"


def test_a_request_without_ext_fields_needs_a_code() -> None:
    assert make_request(None, opaque=1, code=RequestCode.HEART_BEAT, body=b"{}").code == 34
    for header in (None, OffsetResponse(queue_offset=1)):
        with pytest.raises(ValueError, match="code"):
            make_request(header, opaque=1)


@pytest.mark.parametrize("name", ["T", "%RETRY%g", "a|b-c_D9", "t" * 127])
def test_legal_names(name: str) -> None:
    assert topic_fault(name) is None
    assert group_fault(name) is None


@pytest.mark.parametrize("name", ["", "  ", "a b", "a.b", "标", "t\n", "t" * 256])
def test_illegal_names_are_explained(name: str) -> None:
    assert "topic" in (topic_fault(name) or "")
    assert "group" in (group_fault(name) or "")


def test_names_with_a_meaning() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_x")
    assert not is_system_topic("Orders")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("g")
    assert [Perm(perm).text for perm in (0, 2, 4, 6, 7)] == ["---", "-W-", "R--", "RW-", "RWX"]


def test_a_short_run_of_the_fuzz_target() -> None:
    path = Path(__file__).parents[3] / "fuzz" / "protocol_frames.py"
    spec = importlib.util.spec_from_file_location("protocol_frames", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.fuzz(seconds=0.5, seed=7) > 0
