"""The offline verifier, as a library and as the command `rocketq store check`."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketq.cli.main import main
from rocketq.model import Host, NewMessage
from rocketq.protocol.messages import BatchElement, encode_batch
from rocketq.protocol.properties import encode_properties
from rocketq.store import AppendStatus, Store, StoreConfig
from rocketq.store.verify import Severity, Verifier
from tests.golden.stores import NAMES, unpack

SHAPE = {
    "segment_bytes": 1 << 15,
    "queue_file_bytes": 400,
    "index_slots": 50,
    "index_units": 120,
    "message_bytes_max": 1 << 14,
}


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(root=root, **SHAPE)


def write_some(store: Store, count: int, seed: int = 1) -> None:
    """Plain, tagged, keyed, delayed and batched messages from IPv4 and IPv6 clients."""
    rng = random.Random(seed)
    for number in range(count):
        host = Host.of("::1", 4711) if number % 7 == 0 else Host.of("127.0.0.1", 4711)
        properties = {"KEYS": f"k{number} shared", "UNIQ_KEY": f"{number:032X}", "TAGS": f"Tag{number % 3}"}
        topic, queue_id = ("SCHEDULE_TOPIC_XXXX", 2) if number % 11 == 0 else (f"Topic{number % 3}", number % 2)
        if number % 11 == 0:
            properties["DELAY"] = "3"
        message = NewMessage(
            topic=topic, queue_id=queue_id, body=rng.randbytes(rng.randrange(300)), born_host=host,
            properties=encode_properties(properties) if number % 5 else b"",
        )  # fmt: skip
        assert store.append(message).status is AppendStatus.OK
        if number % 13 == 0:
            packed = encode_batch(
                [BatchElement(body=b"x" * i, properties=encode_properties({"KEYS": f"b{i}"})) for i in range(5)]
            )
            assert store.append_batch(NewMessage(topic="Batch", queue_id=0, body=packed)).status is AppendStatus.OK


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Store.open(config_of(tmp_path / "store")) as store:
        write_some(store, 300)
    return tmp_path / "store"


def test_what_we_write_is_sound(directory: Path) -> None:
    report = Verifier(directory).run()
    assert report.findings == []
    assert report.ok
    assert report.cleanly_stopped
    assert report.records == report.queue_units == 300 + 24 * 5


@pytest.mark.parametrize("name", NAMES)
def test_directories_of_real_brokers_are_sound(name: str, tmp_path: Path) -> None:
    """Goal: no false alarm; what a killed broker left behind is for the next opening to mend."""
    golden = unpack(name, tmp_path)
    report = Verifier(golden.root).run()
    assert report.ok
    assert report.records == golden.facts["recordsInLog"]
    if golden.facts["state"] == "clean":
        assert report.findings == []
    assert all(finding.severity is Severity.REPAIR for finding in report.findings)


def test_every_random_bit_flip_is_found(directory: Path) -> None:
    """Goal: whatever bit of whatever file turns over, the verifier says so and names a place."""
    files = [p for p in sorted(directory.rglob("*")) if p.is_file() and p.name != "lock" and "config" not in p.parts]
    rng = random.Random(20)
    for _ in range(250):
        path = rng.choices(files, [p.stat().st_size for p in files])[0]
        data = bytearray(path.read_bytes())
        bit = rng.randrange(len(data) * 8)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        report = Verifier(directory).run()
        assert not report.ok, f"bit {bit} of {path.relative_to(directory)} turned over unnoticed"
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    assert Verifier(directory).run().ok


def test_a_flipped_body_bit_in_a_captured_directory_is_found(tmp_path: Path) -> None:
    """Goal: also without our checksums, by the record's own CRC."""
    golden = unpack("apache-4.9.7-clean", tmp_path)
    path = golden.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[177 + 88] ^= 4
    path.write_bytes(data)
    report = Verifier(golden.root).run()
    assert not report.ok
    assert "damaged body" in report.findings[0].what


def test_the_command_prints_json_and_exits_by_what_it_found(directory: Path) -> None:
    runner = CliRunner()
    sound = runner.invoke(main, ["store", "check", str(directory), "--json"])
    assert sound.exit_code == 0
    assert json.loads(sound.output)["ok"] is True
    path = next((directory / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    damaged = runner.invoke(main, ["store", "check", str(directory), "--json"])
    assert damaged.exit_code == 1
    assert json.loads(damaged.output)["findings"][0]["severity"] == "error"
    assert runner.invoke(main, ["store", "check", str(directory)]).exit_code == 1


def test_the_command_says_where_there_is_no_store(tmp_path: Path) -> None:
    runner = CliRunner()
    missing = runner.invoke(main, ["store", "check", str(tmp_path / "nowhere")])
    assert missing.exit_code == 3
    assert "is not a directory" in missing.output
    empty = runner.invoke(main, ["store", "check", str(tmp_path), "--json"])
    assert empty.exit_code == 3
    assert "not a store" in json.loads(empty.output)["error"]
    assert runner.invoke(main, ["store", "check", str(tmp_path), "--index-slots", "5"]).exit_code == 2


def test_a_missing_queue_is_told_once(directory: Path) -> None:
    """Goal: one finding for one queue, with how many messages it should have."""
    shutil.rmtree(directory / "consumequeue" / "Topic1" / "1")
    findings = [item for item in Verifier(directory).run().findings if "Topic1/1" in item.where]
    assert len(findings) == 1
    assert re.fullmatch(r"has \d+ messages in the log and no directory", findings[0].what)
