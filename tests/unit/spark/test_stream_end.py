"""How the process of a stream's reader ends."""

from __future__ import annotations

import sys

import pytest

from rocketq.spark.schema import source_schema
from rocketq.spark.stream import StreamReader


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> StreamReader:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # as it was, afterwards
    return StreamReader(source_schema(properties=False), {"nameServer": "127.0.0.1:1", "subscribe": "T"})


def test_a_line_that_spark_has_closed_is_no_error_to_print(
    reader: StreamReader, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: query.stop() prints nothing; Spark's program fails while it tells its end to nobody."""
    try:
        try:
            raise EOFError  # what reading the next question gives
        finally:
            reader.stop()
    except EOFError as end:
        sys.excepthook(BrokenPipeError, BrokenPipeError("the end told to nobody"), end.__traceback__)
    assert capsys.readouterr().err == ""


def test_other_ends_are_still_told(reader: StreamReader, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        try:
            raise ValueError("a defect")
        finally:
            reader.stop()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    assert "a defect" in capsys.readouterr().err
