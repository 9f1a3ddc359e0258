"""One store directory, taken in turns by Apache brokers and our store: nothing is lost, changed or numbered twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.errors import StoreLockedError
from rocketq.store import Store

from . import apache_recovery, driver, expect, our_messages, ours
from .conftest import StartBroker
from .messages import Acknowledged, Place, Stored, View

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]
STREAMED_COUNT = 2500


@pytest.mark.parametrize("version", VERSIONS)
def test_we_extend_what_apache_wrote_and_apache_goes_on(
    apache: StartBroker, store_dir: Path, broker_port: int, version: str
) -> None:
    """Goal: a directory goes from Apache to us and back, and each side sees all that the other stored."""
    with apache(version) as broker:
        sent = driver.produce(broker, prefix="Interop", seed=1)
        before = driver.verify(broker, sent)

    added = _we_extend(store_dir, broker_port, sent, seen=before)
    at_last = _apache_serves_and_extends(apache, version, [*sent, *added], seen=before)
    expect.delivered_once(at_last, "InteropDelayed")


@pytest.mark.parametrize("version", VERSIONS)
def test_we_extend_what_a_killed_apache_left(
    apache: StartBroker, store_dir: Path, broker_port: int, version: str
) -> None:
    """Goal: we find every acknowledged message after a crash of Apache, make queues and index whole, and go on."""
    with apache(version) as broker:
        sent = driver.produce(broker, prefix="Interop", seed=1)
        with driver.streaming(broker, prefix="Killed") as stream:
            stream.await_count(STREAMED_COUNT)
            broker.kill()
            stream.await_end()
            sent += stream.acknowledged()
    assert (store_dir / "abort").exists()

    added = _we_extend(store_dir, broker_port, sent)
    _apache_serves_and_extends(apache, version, [*sent, *added])


@pytest.mark.parametrize("version", VERSIONS)
def test_apache_serves_what_we_wrote_from_scratch(
    apache: StartBroker, store_dir: Path, broker_port: int, version: str
) -> None:
    """Goal: a directory of ours, with rolled log, queue and index files, is Apache's own to serve and extend."""
    sent, seen = _we_write_from_scratch(store_dir, broker_port)
    at_last = _apache_serves_and_extends(apache, version, sent, seen=seen)
    due = {message.keys for message in sent if message.kind == "due-soon"}
    delivered = [stored for stored in at_last.pulled.values() if stored.topic == "InteropDelayed"]
    assert due <= {stored.properties.get("KEYS") for stored in delivered}
    expect.delivered_once(at_last, "InteropDelayed")


@pytest.mark.parametrize("version", VERSIONS)
def test_apache_serves_what_we_left_when_killed(
    apache: StartBroker, store_dir: Path, broker_port: int, version: str
) -> None:
    """Goal: Apache's own recovery finds every message we acknowledged before we were killed."""
    ours.write_topics(store_dir, ["KilledStream"])
    sent = ours.write_until_killed(store_dir, broker_port, "KilledStream", STREAMED_COUNT)
    assert (store_dir / "abort").exists()

    kept_keys = apache_recovery.indexed_from(store_dir)
    with apache(version) as broker:
        after = driver.verify(broker, sent)
        more = driver.produce(broker, prefix="Interop", seed=2)
    expect.no_problems(after)
    expect.pulls_match(after, sent)
    expect.ids_match(after, sent)
    expect.queues_are_dense(after)
    expect.keys_match(after, [message for message in sent if after.pulled[message.place].log_offset >= kept_keys])
    expect.appends_continue(after, more)

    with Store.open(ours.config(store_dir, broker_port)) as store:
        expect.everything_matches(ours.settled_view(store, [*sent, *more]), [*sent, *more])
    ours.check(store_dir)


@pytest.mark.parametrize("version", VERSIONS)
def test_we_recover_from_our_own_kill_and_apache_serves_it_all(
    apache: StartBroker, store_dir: Path, broker_port: int, version: str
) -> None:
    """Goal: after our recovery even the index is whole: Apache finds every key."""
    ours.write_topics(store_dir, [*our_messages.topics("Interop"), "KilledStream"])
    sent = ours.write_until_killed(store_dir, broker_port, "KilledStream", STREAMED_COUNT)
    added = _we_extend(store_dir, broker_port, sent)
    _apache_serves_and_extends(apache, version, [*sent, *added])


@pytest.mark.parametrize("versions", [("4.9.7", "5.3.3"), ("5.3.3", "4.9.7")], ids="-then-".join)
def test_turns_are_taken_with_both_versions(
    apache: StartBroker, store_dir: Path, broker_port: int, versions: tuple[str, str]
) -> None:
    """Goal: ours, one Apache, ours, the other Apache, ours: everything stays, in order, under its first number."""
    sent, seen = _we_write_from_scratch(store_dir, broker_port)
    for turn, version in enumerate(versions, start=2):
        with apache(version) as broker:
            served = driver.verify(broker, sent)
            expect.everything_matches(served, sent)
            expect.contains(served.pulled, _pulled_from(seen, served))
            sent += driver.produce(broker, prefix="Interop", seed=turn)
            seen = driver.verify(broker, sent)
        expect.everything_matches(seen, sent)
        expect.delivered_once(seen, "InteropDelayed")
        sent += _we_extend(store_dir, broker_port, sent, seen=seen, seed=100 * turn)
    with Store.open(ours.config(store_dir, broker_port)) as store:
        expect.everything_matches(ours.view(store, sent), sent)


def test_only_one_process_has_the_directory(apache: StartBroker, store_dir: Path, broker_port: int) -> None:
    """Goal: Apache's lock keeps us out, ours keeps Apache out."""
    with apache("4.9.7"), pytest.raises(StoreLockedError):
        Store.open(ours.config(store_dir, broker_port))
    with Store.open(ours.config(store_dir, broker_port)), pytest.raises(RuntimeError, match="ended with"):
        apache("4.9.7").__enter__()


def _we_write_from_scratch(store_dir: Path, port: int) -> tuple[list[Acknowledged], View]:
    ours.write_topics(store_dir, our_messages.topics("Interop"))
    with Store.open(ours.config(store_dir, port)) as store:
        sent = our_messages.append_all_kinds(store, "Interop", 1)
        seen = ours.view(store, sent)
    expect.everything_matches(seen, sent)
    ours.check(store_dir)
    assert len(list((store_dir / "commitlog").iterdir())) > 1
    assert len(list((store_dir / "consumequeue" / "InteropOrdered" / "0").iterdir())) > 1
    assert len(list((store_dir / "index").iterdir())) > 1
    return sent, seen


def _we_extend(
    store_dir: Path, port: int, sent: list[Acknowledged], *, seen: View | None = None, seed: int = 50
) -> list[Acknowledged]:
    """Open, find everything, append some, find that too; then again after a close."""
    with Store.open(ours.config(store_dir, port)) as store:
        before = ours.settled_view(store, sent)
        expect.everything_matches(before, sent)
        if seen is not None:
            expect.contains(before.pulled, seen.pulled)
        added = our_messages.append_few(store, "Interop", seed)
        after = ours.view(store, [*sent, *added])
    expect.appends_continue(before, added)
    expect.everything_matches(after, [*sent, *added])
    ours.check(store_dir)
    with Store.open(ours.config(store_dir, port)) as store:
        again = ours.view(store, [*sent, *added])
    expect.everything_matches(again, [*sent, *added])
    expect.contains(again.pulled, after.pulled)
    ours.rewrite_state(store_dir)
    ours.check(store_dir)
    return added


def _apache_serves_and_extends(
    apache: StartBroker, version: str, sent: list[Acknowledged], *, seen: View | None = None
) -> View:
    with apache(version) as broker:
        served = driver.verify(broker, sent)
        more = driver.produce(broker, prefix="Interop", seed=99)
        both = driver.verify(broker, [*sent, *more])
    expect.everything_matches(served, sent)
    if seen is not None:
        expect.contains(served.pulled, _pulled_from(seen, served))
    expect.appends_continue(served, more)
    expect.everything_matches(both, [*sent, *more])
    return both


def _pulled_from(seen: View, served: View) -> dict[Place, Stored]:
    """What one reader saw of the queues that another reader read, too."""
    return {place: stored for place, stored in seen.pulled.items() if place[:2] in served.bounds}
