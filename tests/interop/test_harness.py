"""The judge judged: Apache's own restart must serve everything the driver wrote, or no other verdict counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from . import driver, expect
from .conftest import StartBroker
from .release import ApacheUnavailable, obtain

pytestmark = pytest.mark.interop

ALL_KINDS = {
    "plain",
    "tagged",
    "keyed",
    "multi-key",
    "no-wait",
    "ordered",
    "batch",
    "compressed",
    "raw",
    "delayed",
    "delay-delivered",
    "half-commit_message",
    "half-rollback_message",
    "half-unknow",
    "tx-delivered",
}


@pytest.mark.parametrize("version", ["4.7.1", "4.9.7", "5.3.3"])
def test_apache_serves_everything_after_its_own_clean_restart(apache: StartBroker, version: str) -> None:
    """Goal: the driver's manifest is true, its reading complete, and a restart changes no message."""
    with apache(version) as broker:
        sent = driver.produce(broker, prefix="Interop", seed=1)
        before = driver.verify(broker, sent)
    assert set(Counter(message.kind for message in sent)) == ALL_KINDS
    expect.everything_matches(before, sent)

    with apache(version) as broker:
        after = driver.verify(broker, sent)
        more = driver.produce(broker, prefix="Interop", seed=2)
        both = driver.verify(broker, [*sent, *more])
    expect.everything_matches(after, sent)
    expect.contains(after.pulled, before.pulled)
    expect.appends_continue(after, more)
    expect.everything_matches(both, [*sent, *more])


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_apache_serves_every_acknowledged_message_after_a_kill(apache: StartBroker, version: str) -> None:
    """Goal: what a streaming client counts as acknowledged when the broker is killed really is in the log."""
    with apache(version) as broker, driver.streaming(broker, prefix="Killed") as stream:
        stream.await_count(3000)
        broker.kill()
        stream.await_end()
        sent = stream.acknowledged()
    with apache(version) as broker:
        after = driver.verify(broker, sent)
    expect.no_problems(after)
    expect.pulls_match(after, sent)
    expect.ids_match(after, sent)
    expect.queues_are_dense(after)


def test_a_missing_jdk_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ApacheUnavailable, match="no javac was found"):
        obtain.__wrapped__("4.9.7")


def test_a_failing_maven_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] no route to the registry'\nexit 1\n", encoding="utf-8")
    maven.chmod(0o755)
    (tmp_path / "javac").write_text("#!/bin/sh\necho javac 17.0.1\n", encoding="utf-8")
    (tmp_path / "javac").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("ROCKETQ_APACHE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ApacheUnavailable, match=r"Maven could not fetch 4\.9\.7: .*no route"):
        obtain.__wrapped__("4.9.7")
