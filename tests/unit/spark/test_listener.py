"""What a listener has heard, and who waits for it."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rocketq.spark import GroupProgress
from rocketq.spark.errors import SparkError

RUN = SimpleNamespace(runId="run-1")
OFFSETS = '{"Orders":{"broker-a":{"0":7}}}'


@pytest.fixture
def nobody() -> str:
    """An address at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def progress(run: str) -> Any:
    source = SimpleNamespace(description="PythonMicroBatchStream", endOffset=OFFSETS)
    return SimpleNamespace(progress=SimpleNamespace(id="id", name="archive", runId=run, sources=[source]))


def test_a_wait_ends_when_the_listener_has_heard_of_the_end(nobody: str) -> None:
    """Goal: of this run's end, and from another thread."""
    told = GroupProgress("group", {"nameServer": nobody})
    heard: list[str] = []
    waiting = threading.Thread(target=lambda: (told.wait(RUN, timeout_s=60), heard.append("end")))
    waiting.start()
    told.onQueryTerminated(SimpleNamespace(runId="run-0"))  # type: ignore[arg-type]
    waiting.join(0.05)
    assert not heard
    told.onQueryTerminated(RUN)  # type: ignore[arg-type]
    waiting.join(60)
    assert heard == ["end"]


def test_a_wait_for_a_query_that_was_not_heard_of_is_one_clear_line(nobody: str) -> None:
    with pytest.raises(SparkError, match=r"did not hear of an end of query run-1 within 0\.01 s: the query runs still"):
        GroupProgress("group", {"nameServer": nobody}).wait(RUN, timeout_s=0.01)


def test_a_wait_says_what_the_group_was_not_told(nobody: str) -> None:
    """Goal: nobody takes a group for up to date that is not; of other queries there is nothing to say."""
    told = GroupProgress("group", {"nameServer": nobody}, queries={"archive"})
    told.onQueryProgress(progress("run-1"))
    told.onQueryTerminated(RUN)  # type: ignore[arg-type]
    with pytest.raises(SparkError, match=f"group group was not told of the last batch: .*{nobody}"):
        told.wait(RUN)
    other = GroupProgress("group", {"nameServer": nobody}, queries={"another"})
    other.onQueryProgress(progress("run-1"))
    other.onQueryTerminated(RUN)  # type: ignore[arg-type]
    other.wait(RUN)
