"""Records that a broker has in files of this machine: read there, and over the line as soon as anything is odd."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest
from tests.unit.spark.paper_broker import PaperBroker, record

from rocketq.client.blocking.queue_reader import RecordLocations
from rocketq.columns import arrow_schema
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers.pull import PullRequest
from rocketq.protocol.messages import decode_records, encode_record
from rocketq.runtime.machine import boot_id, file_id
from rocketq.spark import reader
from rocketq.spark.errors import DataLossError, SparkError
from rocketq.spark.log_files import MAPPED_MAX, LogFiles
from rocketq.spark.offsets import QueueKey
from rocketq.spark.options import parse_source
from rocketq.spark.planner import QueueSlice
from rocketq.spark.reader import read_slice

QUEUE = QueueKey("T", "b", 0)
SCHEMA = arrow_schema(["queueOffset", "body"])
USUAL = {"nameServer": "a:1", "subscribe": "T", "fetchOffset.retryIntervalMs": "0"}
SPACING, FILE_BYTES, COUNT = 200, 4_000, 100
BOOT_ID = "of-this-machine"

pytestmark = pytest.mark.usefixtures("_one_machine")


@pytest.fixture
def _one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the tests run."""
    monkeypatch.setattr("rocketq.client.blocking.queue_reader.boot_id", lambda: BOOT_ID)


class PlacedBroker(PaperBroker):
    """Its records lie in files, one every SPACING bytes."""

    is_local = True

    def __init__(self, folder: Path, low: int = 0, high: int = COUNT, **given: object) -> None:
        super().__init__(low, high, **given)  # type: ignore[arg-type]
        self.folder = folder
        folder.mkdir()
        self.folder_id = file_id(folder)
        self.placed = self.records = 0
        self.insists = False
        self.spoil: Callable[[dict[str, str], bytes], tuple[dict[str, str], bytes]] = lambda fields, body: (
            fields,
            body,
        )
        for number in range(high):
            self.write(number, encode_record(replace(record(number), log_offset=number * SPACING)))

    def file_of(self, number: int) -> Path:
        return self.folder / f"{number * SPACING // FILE_BYTES * FILE_BYTES:020d}"

    def write(self, number: int, data: bytes) -> None:
        path = self.file_of(number)
        if not path.exists():
            path.write_bytes(bytes(FILE_BYTES))
        with path.open("r+b") as file:
            file.seek(number * SPACING % FILE_BYTES)
            file.write(data)

    def _answer(self, command: Command, asked: PullRequest) -> Command:
        answer = super()._answer(command, asked)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        if asked.reader_boot_id != BOOT_ID and not self.insists:
            self.records += 1
            return answer
        self.placed += 1
        found = decode_records(answer.body)
        fields = {
            **answer.ext_fields,
            "logFolder": str(self.folder),
            "logFolderId": self.folder_id,
            "logFileBytes": str(FILE_BYTES),
            "placedBytes": str(len(answer.body)),
        }
        places = b"".join(pack(">qqi", each.queue_offset * SPACING, each.queue_offset, each.size) for each in found)
        fields, places = self.spoil(fields, places)
        return replace(answer, ext_fields=fields, body=places)


@pytest.fixture
def broker(tmp_path: Path) -> PlacedBroker:
    return PlacedBroker(tmp_path / "commitlog")


def read(monkeypatch: pytest.MonkeyPatch, broker: PaperBroker, low: int, high: int, **given: str) -> list[int]:
    """The offsets of the rows of [low, high)."""
    monkeypatch.setattr(reader, "client_of", lambda connection: broker)
    options = parse_source({**USUAL, **given}, streaming=False)
    found = []
    for batch in read_slice(QueueSlice(QUEUE, low, high), options, SCHEMA):
        offsets = batch.column("queueOffset").to_pylist()
        assert batch.column("body").to_pylist() == [b"%d" % n for n in offsets]
        found += offsets
    return found


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_records_are_read_where_they_lie(
    monkeypatch: pytest.MonkeyPatch, broker: PlacedBroker, batch_bytes: int, backwards: bool
) -> None:
    """Goal: rows of five files in queue order, and no record came over the line."""
    monkeypatch.setattr(reader, "BATCH_BYTES", batch_bytes)
    broker.answers_backwards = backwards
    assert read(monkeypatch, broker, 5, 77) == list(range(5, 77))
    assert (broker.placed > 5, broker.records) == (True, 0)


def test_a_line_that_breaks_is_read_on(monkeypatch: pytest.MonkeyPatch, broker: PlacedBroker) -> None:
    broker.break_each_pull_once()
    assert read(monkeypatch, broker, 0, COUNT) == list(range(COUNT))
    assert broker.records == 0


def test_holes_are_found_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broker = PlacedBroker(tmp_path / "commitlog", holes=frozenset({7, 49}))
    with pytest.raises(DataLossError, match="T queue 0 of b: offsets 7 to 7; T queue 0 of b: offsets 49 to 49"):
        read(monkeypatch, broker, 0, 60)


def test_who_wants_no_files_asks_for_records(monkeypatch: pytest.MonkeyPatch, broker: PlacedBroker) -> None:
    assert read(monkeypatch, broker, 0, COUNT, readInPlace="false") == list(range(COUNT))
    assert broker.placed == 0


def test_a_broker_elsewhere_is_not_told_who_we_are(monkeypatch: pytest.MonkeyPatch, broker: PlacedBroker) -> None:
    """Goal: what names this machine stays on it."""
    asked: list[str | None] = []
    sound = broker._answer

    def answer(command: Command, request: PullRequest) -> Command:
        asked.append(request.reader_boot_id)
        return sound(command, request)

    monkeypatch.setattr(broker, "_answer", answer)
    monkeypatch.setattr(broker, "is_local", False, raising=False)
    assert read(monkeypatch, broker, 0, COUNT) == list(range(COUNT))
    assert set(asked) == {None}


def _another_folder(broker: PlacedBroker) -> None:
    """What a container's broker calls its folder is another one here."""
    broker.spoil = lambda fields, places: ({**fields, "logFolderId": "1:1"}, places)


def _no_folder(broker: PlacedBroker) -> None:
    shutil.rmtree(broker.folder)


def _no_file(broker: PlacedBroker) -> None:
    broker.file_of(30).unlink()


def _empty_file(broker: PlacedBroker) -> None:
    broker.file_of(30).write_bytes(b"")


def _short_file(broker: PlacedBroker) -> None:
    os.truncate(broker.file_of(30), 2_100)


def _no_regular_file(broker: PlacedBroker) -> None:
    broker.file_of(30).unlink()
    os.mkfifo(broker.file_of(30))


def _zeros(broker: PlacedBroker) -> None:
    broker.file_of(30).write_bytes(bytes(FILE_BYTES))


def _changed_body(broker: PlacedBroker) -> None:
    broker.write(30, encode_record(replace(record(30), log_offset=30 * SPACING)).replace(b"30", b"31", 1))


def _another_message(broker: PlacedBroker) -> None:
    broker.write(30, encode_record(replace(record(30), log_offset=30 * SPACING, topic="U")))


def _another_queue(broker: PlacedBroker) -> None:
    broker.write(30, encode_record(replace(record(30), log_offset=30 * SPACING, queue_id=1)))


def _another_place(broker: PlacedBroker) -> None:
    broker.write(30, encode_record(replace(record(30), log_offset=31 * SPACING)))


def _another_size(broker: PlacedBroker) -> None:
    broker.spoil = lambda fields, places: (fields, places[:19] + bytes([places[19] ^ 1]) + places[20:])


def _the_same_place_again(broker: PlacedBroker) -> None:
    broker.spoil = lambda fields, places: (fields, places[:20] * (len(places) // 20))


def _another_order(broker: PlacedBroker) -> None:
    broker.spoil = lambda fields, places: (fields, places[20:] + places[:20])


def _cut_places(broker: PlacedBroker) -> None:
    broker.spoil = lambda fields, places: (fields, places[:-1])


def _another_message_of_the_queue(broker: PlacedBroker) -> None:
    """What a log has that was cut back and written on."""
    broker.write(30, encode_record(replace(record(29), log_offset=30 * SPACING)))


def _negative_place(broker: PlacedBroker) -> None:
    broker.spoil = lambda fields, places: (fields, pack(">q", -200) + places[8:])


FAULTS = [
    _another_folder,
    _no_folder,
    _no_file,
    _empty_file,
    _short_file,
    _no_regular_file,
    _zeros,
    _changed_body,
    _another_message,
    _another_queue,
    _another_place,
    _another_size,
    _the_same_place_again,
    _another_order,
    _cut_places,
    _another_message_of_the_queue,
    _negative_place,
]


@pytest.mark.parametrize("batch_bytes", [1, 2_000, 1 << 20])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
@pytest.mark.parametrize("expression", ["*", "A"])
def test_what_does_not_fit_comes_over_the_line(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broker: PlacedBroker,
    fault: Callable[[PlacedBroker], None],
    batch_bytes: int,
    expression: str,
) -> None:
    """Goal: every row once and in order, whatever the files are; none is made of what is not that message. Filtered
    answers may pass what was asked for."""
    monkeypatch.setattr(reader, "BATCH_BYTES", batch_bytes)
    fault(broker)
    with caplog.at_level(logging.INFO):
        assert read(monkeypatch, broker, 0, COUNT, subExpression=expression) == list(range(COUNT))
    assert broker.records > 0
    assert "T queue 0: read over the network: " in caplog.text


def test_a_broker_that_insists_on_places_is_told_of(monkeypatch: pytest.MonkeyPatch, broker: PlacedBroker) -> None:
    """Goal: nobody asks it forever."""
    broker.insists = True
    broker.file_of(30).unlink()
    with pytest.raises(SparkError, match="answered with locations instead of records"):
        read(monkeypatch, broker, 0, COUNT)


def test_a_file_that_was_made_anew_is_read_anew(monkeypatch: pytest.MonkeyPatch, broker: PlacedBroker) -> None:
    """Goal: memory of a file that was deleted says nothing about the one that has its name now."""
    assert read(monkeypatch, broker, 0, 20) == list(range(20))
    data = broker.file_of(0).read_bytes()
    broker.file_of(0).unlink()
    broker.file_of(0).write_bytes(bytes(FILE_BYTES))
    assert read(monkeypatch, broker, 0, 20) == list(range(20))
    assert broker.records > 0
    broker.file_of(0).write_bytes(data)
    broker.records = 0
    assert read(monkeypatch, broker, 0, 20) == list(range(20))
    assert broker.records == 0


def test_what_aged_out_meanwhile_is_what_the_broker_says(monkeypatch: pytest.MonkeyPatch, broker: PlacedBroker) -> None:
    """Goal: files go after the broker has said where records are: it is asked again, and nothing else is lost."""

    def age(fields: dict[str, str], places: bytes) -> tuple[dict[str, str], bytes]:
        if fields["nextBeginOffset"] == "32":
            broker.low = 40
            for number in (0, 20):
                broker.file_of(number).unlink(missing_ok=True)
        return fields, places

    broker.spoil = age
    with pytest.raises(DataLossError, match=r"^messages no longer exist: T queue 0 of b: offsets 24 to 39; option"):
        read(monkeypatch, broker, 0, COUNT)
    broker.low = 0
    for number in range(40):
        broker.write(number, encode_record(replace(record(number), log_offset=number * SPACING)))
    assert read(monkeypatch, broker, 0, COUNT, failOnDataLoss="false") == [*range(24), *range(40, COUNT)]


def test_few_files_are_mapped_at_a_time(tmp_path: Path) -> None:
    """Goal: a task over a long log does not keep all of it open."""
    broker, files = PlacedBroker(tmp_path / "commitlog", high=200), LogFiles()
    placed = RecordLocations(
        low=0, high=200, folder=str(broker.folder), folder_id=broker.folder_id, file_bytes=FILE_BYTES, size_bytes=1,
        places=b"",
    )  # fmt: skip
    for number in range(200):
        file = files.of(placed, number * SPACING)
        assert file.base == number * SPACING // FILE_BYTES * FILE_BYTES
    assert len(files._mapped) == MAPPED_MAX


def test_a_file_that_became_shorter_is_not_read_where_it_was(broker: PlacedBroker) -> None:
    """Goal: memory behind a file's end kills who looks at it."""
    files = LogFiles()
    placed = RecordLocations(
        low=0, high=1, folder=str(broker.folder), folder_id=broker.folder_id, file_bytes=FILE_BYTES, size_bytes=1,
        places=b"",
    )  # fmt: skip
    assert files.of(placed, 0).size == FILE_BYTES
    os.truncate(broker.file_of(0), 100)
    assert files.of(placed, 0).size == 100


def test_this_machine_has_a_name_on_linux() -> None:
    assert boot_id() == boot_id()
    if Path("/proc/sys/kernel/random/boot_id").exists():
        assert len(boot_id()) == 36
