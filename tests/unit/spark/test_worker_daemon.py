"""The daemon of Spark's Python workers: a reader that leaves is no failure, everything else is."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (it comes with rocketq[spark])")

from rocketq.spark.worker_daemon import quietly


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


def raising(error: Exception) -> object:
    def worker(_sock: socket.socket, _authenticated: bool) -> int:
        raise error

    return worker


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "reset")])
def test_a_worker_that_nobody_reads_any_more_just_ends(error: OSError, sock: socket.socket) -> None:
    assert quietly(raising(error))(sock, True) == 1  # type: ignore[arg-type]


def test_what_else_fails_is_told(sock: socket.socket) -> None:
    with pytest.raises(OSError, match="disk"):
        quietly(raising(OSError("the disk is full")))(sock, True)  # type: ignore[arg-type]


def test_what_a_worker_says_counts(sock: socket.socket) -> None:
    """Goal: 0 is a worker that is used again, and so it must stay."""
    told = []

    def worker(given: socket.socket, authenticated: bool) -> int:
        told.append((given, authenticated))
        return len(told) - 1

    assert [quietly(worker)(sock, True), quietly(worker)(sock, False)] == [0, 1]
    assert told == [(sock, True), (sock, False)]
