"""Grants are made for what clients choose, groups and expressions: what one costs does not grow with its topic."""

from __future__ import annotations

from pathlib import Path

from rocketq.protocol.codes import RequestCode
from tests.contract.broker.kit import connected, make_topic, over_loopback, running_broker
from tests.contract.broker.test_guards import codes_of, prepare, pulls, sends, stored

QUEUES = 65_535


@over_loopback
async def test_all_grants_of_a_topic_share_its_queues(tmp_path: Path) -> None:
    """Goal: a group or an expression more costs no list of all queues, and finds the same ones."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=QUEUES)
        groups, expressions = ("p1", "p2", "p3"), ("TagA", "TagA || TagB", "*")
        for group in groups:
            assert await codes_of(peer, *sends(peer, "T", 2, producerGroup=group)) == [0, 0]
        assert await codes_of(peer, *pulls(peer, "T", 1)) == [0], "makes the group"
        fast = broker.fast_paths[0]
        before = fast.pulls_taken
        for expression in expressions:
            assert await codes_of(peer, *pulls(peer, "T", 2, subscription=expression)) == [0, 0]
        assert fast.pulls_taken - before == 2 * len(expressions)
        of_sends = [fast._sends.grant_of((0, None, b"T", group.encode())) for group in groups]
        of_pulls = [fast._pulls.grant_of((0, None, f"g\0T\0{each}".encode())) for each in expressions]
        lists = [grant.queues for grant in (*of_sends, *of_pulls) if grant is not None]
        assert len(lists) == len(groups) + len(expressions)
        assert all(queues is lists[0] for queues in lists)
        assert sum(queue is not None for queue in lists[0]) == 1


@over_loopback
async def test_queues_of_a_topic_that_was_made_again_are_its_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        for _ in range(2):
            await make_topic(peer, "T", queues=1)
            assert await codes_of(peer, *sends(peer, "T", 3)) == [0] * 3
            assert stored(broker) == 3
            assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0


@over_loopback
async def test_very_long_groups_and_expressions_are_executed_and_not_kept(tmp_path: Path) -> None:
    """Goal: tens of thousands of grants are kept, a header may have 128 KiB."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T")
        fast, before = broker.fast_paths[0], stored(broker)
        for length, kept in ((255, True), (256, False), (1 << 15, False)):
            group = "g" * length
            assert await codes_of(peer, *sends(peer, "T", 2, producerGroup=group)) == [0, 0]
            assert (fast._sends.grant_of((0, None, b"T", group.encode())) is not None) is kept
        assert stored(broker) - before == 6
        for length, kept in ((1_024, True), (1_025, False), (1 << 16, False)):
            expression = "TagA||" + "t" * (length - 6)
            assert await codes_of(peer, *pulls(peer, "T", 2, subscription=expression)) == [0, 0]
            assert (fast._pulls.grant_of((0, None, f"g\0T\0{expression}".encode())) is not None) is kept
