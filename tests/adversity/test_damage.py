"""Each kind of damage to a store directory, and the one thing that must come of it: nothing readable is lost.

Every test opens the damaged directory, reads all of it by queue offset, by id and by key, appends, and opens it twice
more, once with no recovery point and with an abort mark. See stores.reopen_again_and_again for what is asked.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.model import Record
from rocketq.protocol.messages import encode_record
from rocketq.store import ReadStatus, Store

from . import raw_store
from .stores import APACHE_VARIANTS, HOST, OUR_VARIANTS, Healthy, reopen_again_and_again

HealthyOf = Callable[[str], Healthy]
every_variant = pytest.mark.parametrize("variant", OUR_VARIANTS + APACHE_VARIANTS)
most_variants = pytest.mark.parametrize("variant", [*OUR_VARIANTS, "apache-4.9.7-clean+abort", "apache-5.3.3-clean"])
our_variants = pytest.mark.parametrize("variant", OUR_VARIANTS)


@every_variant
def test_a_healthy_store_is_served_whole_and_opened_quietly(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the questions of this suite have right answers when nothing is damaged, and opening reports nothing."""
    said = reopen_again_and_again(healthy_of(variant))
    assert said == ""


# Damage to the log


@every_variant
@pytest.mark.parametrize("file_number", [0, -1], ids=["first file", "last file"])
def test_a_flipped_body_byte_costs_that_one_message(
    healthy_of: HealthyOf, variant: str, file_number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: the bad record is skipped and reported, every record behind it stays, its offset is not given again."""
    healthy = healthy_of(variant)
    records = healthy.in_file(file_number)
    victim = next(record for record in records[len(records) // 2 :] if record.body)
    raw_store.flip(healthy.path_of(victim), healthy.position(victim) + victim.body_at + len(victim.body) // 2)
    kept = [record for record in healthy.records if record is not victim]
    with caplog.at_level(logging.WARNING):
        reopen_again_and_again(healthy, kept=kept, lost=[victim])
    assert str(victim.log_offset) in caplog.text, "nobody was told where the damage is"


@most_variants
def test_a_flipped_body_byte_is_counted_when_it_is_read(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the damage shows in what a reader gets told, too: a bad record counted, and the next offset behind it."""
    healthy = healthy_of(variant)
    records = [record for record in healthy.in_file(-1) if record.queued and record.body]
    victim = records[len(records) // 2]
    raw_store.flip(healthy.path_of(victim), healthy.position(victim) + victim.body_at)
    with Store.open(healthy.config) as store:
        result = store.read(*victim.queue, victim.queue_offset, count_max=1)
        assert result.bad_count == 1
        assert result.next_offset > victim.queue_offset
        assert all(one.log_offset != victim.log_offset for one in raw_store.parse_all(result.records))
        assert store.queries.bad_records >= 1


@every_variant
@pytest.mark.parametrize("tail", ["garbage", "half a record", "half a record behind a gap", "zeros first"])
def test_garbage_behind_the_tail_is_cut_with_a_line_about_it(healthy_of: HealthyOf, variant: str, tail: str) -> None:
    """Goal: what lies behind the last good record goes, is zeroed, and one line says how many bytes it was."""
    healthy = healthy_of(variant)
    last = healthy.records[-1]
    half = last.data[: len(last.data) * 2 // 3]
    dirt = {
        "garbage": bytes(range(1, 256)),
        "half a record": half,
        "half a record behind a gap": bytes(100) + half,
        "zeros first": bytes(900) + b"\x01",
    }[tail]
    raw_store.overwrite(healthy.path_of(last), healthy.position(last) + last.size, dirt)
    said = reopen_again_and_again(healthy)
    assert f"{len(dirt)} bytes" in said
    assert "cut" in said


@our_variants
def test_garbage_behind_the_tail_over_several_pages_and_files_is_cut(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: a dirty tail that fills its file and goes on in later ones is cut everywhere; the later files go."""
    healthy = healthy_of(variant)
    last, size = healthy.records[-1], healthy.config.segment_bytes
    path = healthy.path_of(last)
    raw_store.overwrite(path, healthy.position(last) + last.size, b"\xaa" * (size - healthy.position(last) - last.size))
    for number in (1, 2):
        path.with_name(f"{int(path.name) + number * size:020d}").write_bytes(b"\xbb" * size)
    assert "cut" in reopen_again_and_again(healthy)


@most_variants
def test_a_prepared_log_file_of_zeros_is_no_damage(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the next file that a killed broker had prepared neither ends the log early nor counts as data."""
    healthy = healthy_of(variant)
    last, size = healthy.bases[-1], healthy.config.segment_bytes
    (healthy.config.log_dir / f"{last + size:020d}").write_bytes(bytes(size))
    assert reopen_again_and_again(healthy) == ""


@every_variant
def test_a_log_file_missing_in_the_middle_costs_its_own_messages_only(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the rest is served with its offsets, and the lost range is reported."""
    healthy = healthy_of(variant)
    lost, base = healthy.in_file(1), healthy.bases[1]
    assert len(healthy.bases) >= 3
    healthy.path_of(lost[0]).unlink()
    kept = [record for record in healthy.records if record not in lost]
    said = reopen_again_and_again(healthy, kept=kept, lost=lost)
    assert str(base) in said, "nobody was told which range is lost"
    assert str(base + healthy.config.segment_bytes) in said


@every_variant
def test_a_missing_first_log_file_counts_as_expired(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the log starts at the second file; queues start at their first message there is, or at their end."""
    healthy = healthy_of(variant)
    lost = healthy.in_file(0)
    healthy.path_of(lost[0]).unlink()
    kept = [record for record in healthy.records if record not in lost]
    with Store.open(healthy.config) as store:
        assert store.log_start == healthy.bases[1]
        for topic, queue_id in {record.queue for record in healthy.records if record.queued}:
            known = [r.queue_offset for r in healthy.records if r.queue == (topic, queue_id) and r.queued]
            left = [r.queue_offset for r in kept if r.queue == (topic, queue_id) and r.queued]
            assert store.max_offset(topic, queue_id) == max(known) + 1
            assert store.min_offset(topic, queue_id) == (min(left) if left else max(known) + 1)
            result = store.read(topic, queue_id, 0)
            assert result.status in (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.FOUND, ReadStatus.OFFSET_OVERFLOW_ONE)
            assert all(one.log_offset >= store.log_start for one in raw_store.parse_all(result.records))
    reopen_again_and_again(healthy, kept=kept, lost=lost)


@every_variant
@pytest.mark.parametrize("where", ["behind the last record", "inside the last record", "inside an earlier record"])
def test_a_last_log_file_that_is_too_short_keeps_what_it_holds(healthy_of: HealthyOf, variant: str, where: str) -> None:
    """Goal: it is cut at the last good record, brought back to its size, and a line says so."""
    healthy = healthy_of(variant)
    records = healthy.in_file(-1)
    victim = {"behind the last record": None, "inside the last record": records[-1]}.get(
        where, records[len(records) // 2]
    )
    position = healthy.position(records[-1]) + records[-1].size
    cut = []
    if victim is not None:
        position = healthy.position(victim) + victim.size // 2
        cut = [record for record in records if record.log_offset >= victim.log_offset]
    path = healthy.path_of(records[-1])
    with path.open("r+b") as file:
        file.truncate(position)
    kept = [record for record in healthy.records if record not in cut]
    said = reopen_again_and_again(healthy, kept=kept)
    assert path.name in said
    assert path.stat().st_size == healthy.config.segment_bytes


@every_variant
def test_an_empty_extra_log_file_is_removed(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: zero bytes where the next file would be are no reason to refuse."""
    healthy = healthy_of(variant)
    extra = healthy.config.log_dir / f"{healthy.bases[-1] + healthy.config.segment_bytes:020d}"
    extra.unlink(missing_ok=True)
    extra.touch()
    said = reopen_again_and_again(healthy)
    assert extra.name in said
    assert not extra.exists() or extra.stat().st_size == healthy.config.segment_bytes, "it is still empty"


@our_variants
@pytest.mark.parametrize("topic_bytes", [128, 147, 255])
def test_v2_records_are_read(healthy_of: HealthyOf, variant: str, topic_bytes: int) -> None:
    """Goal: a record with the wide topic length, as 5.x writes it, is a record, and so is what lies behind it."""
    healthy = healthy_of(variant)
    at, added = healthy.log_end, []
    for number, topic in enumerate(["%RETRY%" + "g" * (topic_bytes - 7), "Plain", "%RETRY%" + "g" * (topic_bytes - 7)]):
        data = _record(at, topic, queue_offset=number // 2, version=2 if len(topic) > 127 else 1)
        raw_store.overwrite(raw_store.log_file(healthy.config, at), at % healthy.config.segment_bytes, data)
        added.append(raw_store.record_at(healthy.config, at))
        at += len(data)
    reopen_again_and_again(replace(healthy, records=(*healthy.records, *added)))


def _record(log_offset: int, topic: str, *, queue_offset: int, version: int) -> bytes:
    return encode_record(
        Record(
            size=0,
            version=version,
            body_crc=0,
            queue_id=0,
            flag=0,
            queue_offset=queue_offset,
            log_offset=log_offset,
            sys_flag=0,
            born_ms=1,
            born_host=HOST,
            store_ms=1_800_000_000_000,
            store_host=HOST,
            reconsume_times=1,
            prepared_offset=0,
            body=b"body of version %d" % version,
            topic=topic,
            properties=b"UNIQ_KEY\x01v%d-%d\x02" % (version, log_offset),
        )
    )


# Damage to what derives from the log


@every_variant
def test_a_missing_consumequeue_directory_is_rebuilt(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: all of it from the log's start, whatever a checkpoint says; no offset is given twice."""
    healthy = healthy_of(variant)
    shutil.rmtree(healthy.root / "consumequeue")
    reopen_again_and_again(healthy)


@most_variants
@pytest.mark.parametrize("which", ["queue", "first file", "middle file", "last file"])
def test_queue_files_deleted_by_hand_are_rebuilt(healthy_of: HealthyOf, variant: str, which: str) -> None:
    """Goal: one queue, or one of its files, may go: it comes back from the log."""
    healthy = healthy_of(variant)
    queue = healthy.busiest_queue()
    files = raw_store.queue_files(healthy.config, queue)
    assert len(files) >= 2
    if which == "queue":
        shutil.rmtree(files[0].parent)
    else:
        files[{"first file": 0, "middle file": len(files) // 2, "last file": -1}[which]].unlink()
    reopen_again_and_again(healthy)


@every_variant
@pytest.mark.parametrize("unit_count", [10, 10_000])
def test_a_queue_whose_last_units_are_zero_is_completed_from_the_log(
    healthy_of: HealthyOf, variant: str, unit_count: int
) -> None:
    """Goal: a queue that lags behind the log gets what it lacks, although others and the checkpoint are further."""
    healthy = healthy_of(variant)
    queue = healthy.busiest_queue()
    end = max(record.queue_offset for record in healthy.records if record.queued and record.queue == queue) + 1
    units_per_file = healthy.config.queue_file_bytes // 20
    for path in raw_store.queue_files(healthy.config, queue):
        first = int(path.name) // 20
        low = max(end - unit_count - first, 0)
        if low < units_per_file:
            raw_store.overwrite(path, low * 20, bytes((units_per_file - low) * 20))
    reopen_again_and_again(healthy)


@every_variant
@pytest.mark.parametrize("which", [0, -1], ids=["first file", "last file"])
@pytest.mark.parametrize("size", [0, 507])
def test_a_queue_file_shorter_than_configured_is_rebuilt(
    healthy_of: HealthyOf, variant: str, which: int, size: int
) -> None:
    """Goal: that queue comes anew from the log, and a line says so."""
    healthy = healthy_of(variant)
    queue = healthy.busiest_queue()
    with raw_store.queue_files(healthy.config, queue)[which].open("r+b") as file:
        file.truncate(size)
    said = reopen_again_and_again(healthy)
    assert f"{queue[0]}/{queue[1]}" in said


@most_variants
@pytest.mark.parametrize("where", ["at the end", "behind the end", "in the middle", "at the start"])
@pytest.mark.parametrize("kind", ["garbage", "zeros", "units of others"])
def test_garbage_units_in_a_queue_file_are_replaced_from_the_log(
    healthy_of: HealthyOf, variant: str, where: str, kind: str
) -> None:
    """Goal: a queue is only as good as its log: wherever its units are wrong, they are made right, or at least never
    cost a readable message."""
    healthy = healthy_of(variant)
    queue = healthy.busiest_queue()
    mine = [record for record in healthy.records if record.queued and record.queue == queue]
    other = next(record for record in reversed(healthy.records) if record.queue != queue)
    start = {
        "at the end": len(mine) - 3,
        "behind the end": len(mine),
        "in the middle": len(mine) // 2,
        "at the start": 0,
    }[where]
    unit = {
        "garbage": b"\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x63garbage!",
        "zeros": bytes(20),
        "units of others": other.log_offset.to_bytes(8, "big") + other.size.to_bytes(4, "big") + bytes(8),
    }[kind]
    units_per_file = healthy.config.queue_file_bytes // 20
    for queue_offset in range(start, start + 3):
        path = raw_store.queue_files(healthy.config, queue)[0].with_name(
            f"{queue_offset // units_per_file * 1000:020d}"
        )
        if path.exists():
            raw_store.overwrite(path, queue_offset % units_per_file * 20, unit)
    reopen_again_and_again(healthy)


@most_variants
def test_a_queue_that_the_log_does_not_know_goes_away(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: a directory with nothing in it, or units of no record, makes no queue with messages."""
    healthy = healthy_of(variant)
    stray = healthy.root / "consumequeue" / "Stray"
    (stray / "0").mkdir(parents=True)
    (stray / "0" / f"{0:020d}").write_bytes(bytes(healthy.config.queue_file_bytes))
    (stray / "not-a-queue").mkdir()
    (stray / "1").mkdir()
    with Store.open(healthy.config) as store:
        assert store.max_offset("Stray", 0) == 0
        assert store.read("Stray", 0, 0).status in (ReadStatus.NO_MATCHED_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)
    (stray / "not-a-queue").rmdir()
    reopen_again_and_again(healthy)


@every_variant
def test_a_missing_index_directory_is_rebuilt(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: old keys are found again, clean stop or crash."""
    healthy = healthy_of(variant)
    shutil.rmtree(healthy.root / "index")
    reopen_again_and_again(healthy)


@most_variants
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "last"])
def test_index_files_deleted_by_hand_are_rebuilt(healthy_of: HealthyOf, variant: str, which: int) -> None:
    """Goal: any one of the files may go."""
    healthy = healthy_of(variant)
    files = raw_store.index_files(healthy.config)
    assert len(files) >= 3
    files[which].unlink()
    reopen_again_and_again(healthy)


@most_variants
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_an_index_slot_that_runs_ahead_of_the_count_costs_no_key(
    healthy_of: HealthyOf, variant: str, which: int
) -> None:
    """Goal: a kill, or a torn sector, between a key's slot and the file's count leaves a slot that points to a unit
    which was never counted: the older keys of that slot must be found all the same."""
    healthy = healthy_of(variant)
    path = raw_store.index_files(healthy.config)[which]
    data = bytearray(path.read_bytes())
    used = [at for at in range(40, 40 + 4 * healthy.config.index_slots, 4) if any(data[at : at + 4])]
    for at in used[:10]:
        data[at : at + 4] = data[36:40]
    path.write_bytes(data)
    reopen_again_and_again(healthy)


@every_variant
@pytest.mark.parametrize("missing", [True, False], ids=["missing", "zero"])
def test_a_checkpoint_that_is_gone_costs_nothing(healthy_of: HealthyOf, variant: str, missing: bool) -> None:
    """Goal: it is a help, not a truth."""
    healthy = healthy_of(variant)
    checkpoint = healthy.root / "checkpoint"
    checkpoint.unlink(missing_ok=True)
    if not missing:
        checkpoint.write_bytes(bytes(4096))
    assert reopen_again_and_again(healthy) == ""


@most_variants
@pytest.mark.parametrize("content", [b"\xff" * 4096, b"\x7f" * 40, b"short"], ids=["ones", "far", "short"])
def test_a_checkpoint_with_garbage_costs_nothing(healthy_of: HealthyOf, variant: str, content: bytes) -> None:
    """Goal: whatever times it claims, the log decides."""
    healthy = healthy_of(variant)
    (healthy.root / "checkpoint").write_bytes(content)
    reopen_again_and_again(healthy)


@pytest.mark.parametrize("variant", ["ours-clean", "ours-crash-after-point"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "cut", "flipped", "of a longer log"])
def test_a_recovery_point_that_cannot_be_used_costs_nothing(healthy_of: HealthyOf, variant: str, damage: str) -> None:
    """Goal: without it the log is walked, and that finds everything."""
    healthy = healthy_of(variant)
    path = healthy.root / "recovery.rocketq"
    content = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "of a longer log":
            for base in healthy.bases[1:]:
                raw_store.log_file(healthy.config, base).unlink()
            kept = [record for record in healthy.records if record.log_offset < healthy.bases[1]]
            healthy = replace(healthy, records=tuple(kept))
        case _:
            path.write_bytes(
                {"empty": b"", "garbage": b"\xff\x00{", "cut": content[:-20]}.get(
                    damage, content[:30] + b"!" + content[31:]
                )
            )
    reopen_again_and_again(healthy)


@our_variants
def test_everything_derived_may_go_at_once(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: the log alone is the store."""
    healthy = healthy_of(variant)
    for path in list(healthy.root.iterdir()):
        if path != healthy.config.log_dir:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    reopen_again_and_again(healthy)


# What was cut stays cut


@our_variants
def test_units_and_keys_of_a_cut_tail_do_not_come_back(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: half of the last file is gone; its stale units and keys must not serve, nor keep new keys from the index,
    nor meet the messages written over the same log offsets."""
    healthy = healthy_of(variant)
    records = healthy.in_file(-1)
    victim = records[len(records) // 3]
    raw_store.overwrite(
        healthy.path_of(victim),
        healthy.position(victim),
        bytes(healthy.config.segment_bytes - healthy.position(victim)),
    )
    kept = [record for record in healthy.records if record.log_offset < victim.log_offset]
    reopen_again_and_again(healthy, kept=kept)


@our_variants
def test_a_whole_last_log_file_that_is_gone_takes_its_units_and_keys_along(healthy_of: HealthyOf, variant: str) -> None:
    """Goal: as above, for a file instead of a tail."""
    healthy = healthy_of(variant)
    lost = healthy.in_file(-1)
    healthy.path_of(lost[0]).unlink()
    kept = [record for record in healthy.records if record not in lost]
    reopen_again_and_again(healthy, kept=kept)


def test_damage_of_several_kinds_at_once_is_mended(healthy_of: HealthyOf) -> None:
    """Goal: a hole in the log, a queue gone, an index file of garbage and a dirty tail, all in one store."""
    healthy = healthy_of("ours-crash-after-point")
    records = healthy.in_file(1)
    victim, last = records[len(records) // 2], healthy.records[-1]
    raw_store.overwrite(healthy.path_of(victim), healthy.position(victim), b"\xee" * victim.size)
    raw_store.overwrite(healthy.path_of(last), healthy.position(last) + last.size, b"\xdd" * 3000)
    shutil.rmtree(raw_store.queue_files(healthy.config, healthy.busiest_queue())[0].parent)
    raw_store.index_files(healthy.config)[1].write_bytes(b"\xcc" * healthy.config.index_file_bytes)
    kept = [record for record in healthy.records if record is not victim]
    said = reopen_again_and_again(healthy, kept=kept, lost=[victim])
    assert str(victim.log_offset) in said
    assert "3000 bytes" in said


def test_the_original_directory_of_these_tests_is_never_touched(healthy_of: HealthyOf, tmp_path: Path) -> None:
    """Goal: a copy is a copy; otherwise one damage would hide another."""
    assert healthy_of("ours-clean").root != healthy_of("ours-crash").root
    assert not any(tmp_path.iterdir())
