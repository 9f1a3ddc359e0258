from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rocketq.errors import ConfigError, DamagedStateError
from rocketq.nameserver import kv_config
from rocketq.nameserver.kv_config import KvConfig, KvLimits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def test_what_is_put_survives_a_restart_in_apaches_form(path: Path) -> None:
    kv = KvConfig(path)
    asyncio.run(kv.put("ORDER_TOPIC_CONFIG", "TopicTest", "broker-a:4"))
    asyncio.run(kv.put("N", "k", "ä"))
    assert json.loads(path.read_text()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"TopicTest": "broker-a:4"}, "N": {"k": "ä"}}
    }
    again = KvConfig(path)
    assert again.get("N", "k") == "ä"
    assert again.list("ORDER_TOPIC_CONFIG") == {"TopicTest": "broker-a:4"}


def test_an_emptied_namespace_is_an_empty_table(path: Path) -> None:
    kv = KvConfig(path)
    asyncio.run(kv.put("N", "k", "v"))
    asyncio.run(kv.delete("N", "k"))
    asyncio.run(kv.delete("N", "k"))
    asyncio.run(kv.delete("unknown", "k"))
    for table in (kv, KvConfig(path)):
        assert table.list("N") == {}
        assert table.list("unknown") is None
        assert table.get("N", "k") is None


def test_a_file_of_apache_is_read(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{\n\t"configTable":{"N":{"k":"v"\n\t\t}\n\t}\n}')
    assert KvConfig(path).get("N", "k") == "v"


def test_a_damaged_file_is_replaced_by_its_backup(path: Path) -> None:
    kv = KvConfig(path)
    asyncio.run(kv.put("N", "k", "1"))
    asyncio.run(kv.put("N", "k", "2"))
    path.write_text("{")
    assert KvConfig(path).get("N", "k") == "1"
    path.with_name("kvConfig.json.bak").write_text("[]")
    with pytest.raises(DamagedStateError):
        KvConfig(path)


def test_a_change_that_cannot_be_kept_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = KvConfig(path)
    asyncio.run(kv.put("N", "k", "1"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rocketq.nameserver.state_file.os.fsync", full)
    with pytest.raises(OSError):
        asyncio.run(kv.put("N", "k", "2"))
    assert kv.get("N", "k") == "1"
    assert KvConfig(path).get("N", "k") == "1"


def test_changes_that_arrive_during_a_write_share_the_next_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv, writes = KvConfig(path), []
    write = kv_config.write_state
    monkeypatch.setattr(kv_config, "write_state", lambda *args: (writes.append(args), write(*args)))

    async def main() -> None:
        await asyncio.gather(*(kv.put("N", f"k{number}", "v") for number in range(200)))

    asyncio.run(main())
    assert len(writes) <= 2
    assert len(KvConfig(path).list("N") or {}) == 200


def test_limits_of_count_value_and_size_reject_the_change_alone(path: Path) -> None:
    kv = KvConfig(path, KvLimits(value_bytes_max=10, count_max=3, bytes_max=25))

    async def main() -> list[object]:
        puts = [
            kv.put("N", "a", "1" * 10),
            kv.put("N", "b", "1" * 10),
            kv.put("N", "c", "1" * 10),
            kv.put("N", "d", "1"),
        ]
        return await asyncio.gather(*puts, return_exceptions=True)

    results = asyncio.run(main())
    assert [type(result) for result in results] == [type(None), type(None), ConfigError, type(None)]
    assert "kvConfigBytesMax" in str(results[2])
    for namespace, key, value, reason in (
        ("N", "e", "1", "kvConfigCountMax"),
        ("N", "a", "1" * 11, "kvConfigValueBytesMax"),
        ("N", "k" * 256, "1", "256 characters"),
        ("", "k", "1", "0 characters"),
    ):
        with pytest.raises(ConfigError, match=reason):
            asyncio.run(kv.put(namespace, key, value))
    asyncio.run(kv.delete("N", "a"))
    asyncio.run(kv.put("M", "e", "1"))
    assert KvConfig(path).list("N") == {"b": "1" * 10, "d": "1"}
