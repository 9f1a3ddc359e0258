"""Registrations that approach the frame limit are split; those that are impossible are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.broker.admin import registration
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection
from tests.contract.broker.kit import connected, eventually, make_topic, over_loopback
from tests.contract.broker.test_lifecycle import broker, is_routed, name_server

TOPICS = [f"topic-{number:03}-{'x' * 80}" for number in range(60)]


@pytest.mark.parametrize("compressed", [False, True])
@over_loopback
async def test_a_large_topic_table_is_registered_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    """Goal: every topic is routed, the version is that of the broker, and an unchanged table is not sent again."""
    monkeypatch.setattr(registration, "PART_BYTES_MAX", 2_000)
    monkeypatch.setattr(registration, "FIRST_PERIOD_MS", 50)
    names = name_server(tmp_path)
    await names.start()
    codes: list[int] = []

    def note(request: Command, connection: Connection) -> None:
        codes.append(request.code)

    names.dispatcher.checks.append(note)
    one = broker(tmp_path, names.addr, compressed_register=compressed)
    await one.start()
    try:
        async with connected(one.addr) as (peer,):
            for topic in TOPICS:
                await make_topic(peer, topic)
        for topic in (TOPICS[0], TOPICS[30], TOPICS[-1], "TBW102"):
            await eventually(lambda topic=topic: is_routed(names.addr, topic))  # type: ignore[misc]

        async def is_current() -> bool:
            live = next(iter(names._routes.live.values()))
            return live.data_version == one.parts.registrar._requests._version

        await eventually(is_current)
        assert one.parts.registrar.check_registered() is None
        assert codes.count(RequestCode.REGISTER_BROKER) >= 10
    finally:
        await one.stop()
        await names.stop()


@over_loopback
async def test_an_impossible_registration_is_an_error_and_fails_readiness(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RETRY_MS", 50)
    names = name_server(tmp_path)
    await names.start()

    def reject(request: Command, connection: Connection) -> Command | None:
        return request.answer(1, remark="no") if request.code == RequestCode.REGISTER_BROKER else None

    names.dispatcher.checks.append(reject)
    one = broker(tmp_path, names.addr)
    await one.start()
    try:
        assert "code 1: no" in (one.parts.registrar.check_registered() or "")
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 1
        assert "registration is impossible" in errors[0]
        names.dispatcher.checks.remove(reject)

        async def is_registered() -> bool:
            return one.parts.registrar.check_registered() is None

        await eventually(is_registered)
    finally:
        await one.stop()
        await names.stop()
