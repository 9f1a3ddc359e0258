"""The facade without await: the same names, usable anywhere, no logic of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketq.client import Admin, AsyncAdmin, ClientClosedError, ResetTo
from rocketq.client.admin.topics import TopicKind
from rocketq.errors import ConfigError, UnreachableError
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.testing.embedded import EmbeddedCluster

from .kit import closed_port

PARTS = ("topics", "groups", "offsets", "messages", "brokers", "access")


@pytest.mark.parametrize("part", PARTS)
def test_every_name_is_there_without_await(part: str) -> None:
    with Admin("127.0.0.1:1") as admin:
        theirs = getattr(AsyncAdmin("127.0.0.1:1"), part)
        for name, method in inspect.getmembers(type(theirs), inspect.iscoroutinefunction):
            if name.startswith("_"):
                continue
            ours = getattr(type(getattr(admin, part)), name)
            assert inspect.signature(ours) == inspect.signature(method), name
            assert ours.__doc__ == method.__doc__


def test_a_script_without_a_loop(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    with Admin(cluster.name_server_addr) as admin:
        admin.topics.create(topic, queues=1)
        assert admin.topics.list()[topic] is TopicKind.NORMAL
        admin.groups.set(group, retry_max=2)
        assert admin.groups.list()[group]["broker-0"].retry_max == 2
        assert len(admin.offsets.reset(group, topic, ResetTo.latest(), preview=True)) == 2
        assert admin.messages.by_key(topic, "k") == ()
        assert "broker-1" in admin.brokers.cluster().brokers
        with pytest.raises(TopicNotFoundError):
            admin.topics.route("no-such-topic")


def test_it_works_while_a_loop_runs(cluster: EmbeddedCluster) -> None:
    """Goal: notebooks have a loop running in the very thread that calls."""

    async def cell() -> int:
        with Admin(cluster.name_server_addr) as admin:
            return len(admin.brokers.cluster().brokers)

    assert asyncio.run(cell()) == 2


def test_several_threads_share_one(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.name_server_addr) as admin, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: len(admin.brokers.cluster().brokers), range(32)))
    assert found == [2] * 32


def test_nothing_runs_before_the_first_call_or_after_the_last(cluster: EmbeddedCluster) -> None:
    admin = Admin(cluster.name_server_addr)
    assert _threads() == 0
    admin.brokers.cluster()
    assert _threads() == 1
    admin.close()
    admin.close()
    assert _threads() == 0
    with pytest.raises(ClientClosedError):
        admin.brokers.cluster()


def _threads() -> int:
    return sum(thread.name == "rocketq-client" for thread in threading.enumerate())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of 3.12: what is below is why it works here
def test_a_forked_child_has_a_session_of_its_own(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.name_server_addr) as admin:
        admin.brokers.cluster()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if len(admin.brokers.cluster().brokers) == 2 else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert len(admin.brokers.cluster().brokers) == 2


def test_errors_come_through(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ConfigError):
        Admin("nonsense")
    with Admin(closed_port()) as admin, pytest.raises(UnreachableError):
        admin.topics.list()
