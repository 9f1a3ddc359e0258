"""PySpark's own daemon, which its workers are forked from, but for one thing: who has read enough is no error.

`limit`, `take` and `show` leave a worker while it writes, and a plan is done when all of it was read. PySpark prints a
traceback of the broken pipe then, for every task; here the worker just ends, as it would anyhow.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from pyspark import daemon

Worker = Callable[[socket.socket, bool], int]


def quietly(worker: Worker) -> Worker:
    """The same; 1, as for each worker that is not reused, when the reader is gone."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


def main() -> None:
    daemon.worker = quietly(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


if __name__ == "__main__":
    main()
