"""Sockets of the file system for Spark's Python workers, where they fit."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rocketq.spark.worker_python import worker_conf


def test_rows_come_through_sockets_of_the_file_system() -> None:
    assert worker_conf(Path("/tmp/own")) == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": "/tmp/own",
    }


def test_not_where_their_names_would_be_too_long() -> None:
    """Goal: a deep temporary folder leaves Spark as it is, instead of failing with every task."""
    assert worker_conf(Path("/" + "x" * 54))
    assert worker_conf(Path("/" + "x" * 55)) == {}
    assert worker_conf(Path("/" + "ä" * 30)) == {}, "bytes count, not letters"


def test_not_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    assert worker_conf(Path("/tmp/own")) == {}
