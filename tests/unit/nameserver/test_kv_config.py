from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketq.errors import DamagedStateError
from rocketq.nameserver.kv_config import KvConfig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def test_what_is_put_survives_a_restart_in_apaches_form(path: Path) -> None:
    kv = KvConfig(path)
    kv.put("ORDER_TOPIC_CONFIG", "TopicTest", "broker-a:4")
    kv.put("N", "k", "ä")
    assert json.loads(path.read_text()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"TopicTest": "broker-a:4"}, "N": {"k": "ä"}}
    }
    again = KvConfig(path)
    assert again.get("N", "k") == "ä"
    assert again.list("ORDER_TOPIC_CONFIG") == {"TopicTest": "broker-a:4"}


def test_an_emptied_namespace_is_an_empty_table(path: Path) -> None:
    kv = KvConfig(path)
    kv.put("N", "k", "v")
    kv.delete("N", "k")
    kv.delete("N", "k")
    kv.delete("unknown", "k")
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
    kv.put("N", "k", "1")
    kv.put("N", "k", "2")
    path.write_text("{")
    assert KvConfig(path).get("N", "k") == "1"
    path.with_name("kvConfig.json.bak").write_text("[]")
    with pytest.raises(DamagedStateError):
        KvConfig(path)


def test_a_change_that_cannot_be_kept_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = KvConfig(path)
    kv.put("N", "k", "1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rocketq.nameserver.state_file.os.fsync", full)
    with pytest.raises(OSError):
        kv.put("N", "k", "2")
    assert kv.get("N", "k") == "1"
    assert KvConfig(path).get("N", "k") == "1"
