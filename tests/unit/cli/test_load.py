"""Loads without a broker: requests that say what they should, answers told apart, figures that add up."""

from __future__ import annotations

import os
import random
import socket

import pytest

from rocketq.cli.load.figures import CpuUse, Latencies, Tally, figures_of
from rocketq.cli.load.processes import cpu_seconds, listeners
from rocketq.cli.load.requests import (
    QueueStretch,
    SendShape,
    count_records,
    frames_in,
    header_text,
    is_success,
    pull_requests,
    send_requests,
)
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import FrameDecoder, encode_command


def test_sends_are_plain_requests_to_the_queues_in_turn() -> None:
    """Goal: every frame decodes to a send with its body and a key of its own."""
    frames = send_requests(SendShape("T", 100), [3, 5], 4, 1_700_000_000_000, 1)
    found = FrameDecoder().feed(b"".join(frames))
    assert [command.ext_fields["e"] for command in found] == ["3", "5", "3", "5"]
    assert {(command.code, command.ext_fields["b"], len(command.body)) for command in found} == {
        (RequestCode.SEND_MESSAGE_V2, "T", 100)
    }
    assert len({command.ext_fields["i"] for command in found}) == 4


def test_a_batch_holds_so_many_messages() -> None:
    """Goal: the inner messages follow one another exactly to the end of the body."""
    (frame,) = send_requests(SendShape("T", 10, 3), [0], 1, 0, 1)
    (command,) = FrameDecoder().feed(frame)
    sizes, at = [], 0
    while at < len(command.body):
        sizes.append(int.from_bytes(command.body[at : at + 4], "big"))
        at += sizes[-1]
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert (len(sizes), at) == (3, len(command.body))


def test_pulls_cover_a_stretch() -> None:
    """Goal: offsets from the start to the end in steps, no more requests than asked for."""
    stretch = QueueStretch("T", 2, 100, 165)
    offsets = [
        command.ext_fields["queueOffset"] for command in FrameDecoder().feed(b"".join(pull_requests(stretch, 32, 9)))
    ]
    assert offsets == ["100", "132", "164"]
    assert len(pull_requests(stretch, 32, 2)) == 2


@pytest.mark.parametrize("form", list(HeaderForm))
@pytest.mark.parametrize(("code", "good"), [(0, True), (1, False), (10, False)])
def test_answers_are_told_apart_in_both_forms(form: HeaderForm, code: int, good: bool) -> None:
    """Goal: only code 0 is a success, wherever the frame lies."""
    frame = encode_command(Command(code=code, flag=1, remark="why", form=form))
    data = b"\0\0\0\5abcde" + frame + frame[:7]
    (_, (at, stop)) = list(frames_in(data))
    assert data[at:stop] == frame
    assert is_success(data, at, stop) is good
    if form is HeaderForm.JSON:
        assert "why" in header_text(data, at)


def test_records_are_counted_to_the_end_of_a_body() -> None:
    """Goal: as many as there are, and no endless walk through bytes that are no records."""
    record = (20).to_bytes(4, "big") + bytes(16)
    for body, count in [(b"", 0), (record * 3, 3), (bytes(40), 0)]:
        frame = encode_command(Command(code=0, flag=1, body=body))
        assert count_records(frame, 0, len(frame)) == count


def test_percentiles_are_right_to_a_few_percent() -> None:
    """Goal: a histogram of bounded size tells what a sorted list would."""
    dice = random.Random(7)
    spans = sorted(dice.lognormvariate(6, 1.5) for _ in range(2_000))
    latencies = Latencies()
    for span in spans:
        latencies.add(span)
    for part in (0.5, 0.9, 0.99):
        assert latencies.percentile_us(part) == pytest.approx(spans[int(part * len(spans))], rel=0.05)
    assert latencies.percentile_us(1.0) == pytest.approx(latencies.max_us, rel=0.03)
    assert Latencies().percentile_us(0.5) == 0


def test_figures_add_up() -> None:
    """Goal: rates are counts by time; CPU only where it was measured."""
    latencies = Latencies()
    latencies.add(100, times=4)
    tally = Tally(requests=4, messages=8, size_bytes=4_000_000)
    figures = figures_of(tally, latencies, 2.0, CpuUse(1.002, 0.004).since(CpuUse(1.0, 0.0)))
    assert (figures.messages_per_s, figures.requests_per_s, figures.mb_per_s) == (4.0, 2.0, 2.0)
    assert (figures.client_cpu_us_per_message, figures.broker_cpu_us_per_message) == (250.0, 500.0)
    assert figures_of(tally, latencies, 2.0, CpuUse(0.0, None)).broker_cpu_us_per_message is None
    assert CpuUse(2.0, 1.0).since(CpuUse(1.0, 3.0)).broker_s is None, "a process that was replaced has no negative cost"


def test_the_cpu_of_this_process_is_seen() -> None:
    """Goal: a process that is here has used some; one that is not is an error, none is None."""
    assert cpu_seconds((os.getpid(),)) > 0  # type: ignore[operator]
    assert cpu_seconds(()) is None
    with pytest.raises(OSError):
        cpu_seconds((2**22 + 1,))


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="processes are found by Linux's /proc only")
def test_who_listens_here_is_found() -> None:
    """Goal: a broker of this host needs no --pid; one address that cannot be told makes the whole sum unknown."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        addr = f"127.0.0.1:{server.getsockname()[1]}"
        assert listeners({addr}) == (os.getpid(),)
        assert listeners({addr, "192.0.2.1:10911"}) == ()
    assert listeners({addr}) == ()
