"""Frames captured from live Apache RocketMQ 4.9.7 and 5.3.3: clients, brokers and NameServers talking to each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder, encode_command

FOLDER = Path(__file__).parent / "frames"
INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())["frames"]
SIDES = [
    pytest.param(FOLDER / entry[f"{side}_file"], entry[side], id=f"{entry['name']}-{side}")
    for entry in INDEX
    for side in ("request", "response")
    if f"{side}_file" in entry
]


def decode(frame: bytes, chunk_bytes: int) -> Command:
    decoder = FrameDecoder()
    chunks = [frame[at : at + chunk_bytes] for at in range(0, len(frame), chunk_bytes)]
    (command,) = [command for chunk in chunks for command in decoder.feed(chunk)]
    return command


@pytest.mark.parametrize(("path", "expected"), SIDES)
def test_captured_frame_reads_as_listed_and_writes_back(path: Path, expected: dict[str, Any]) -> None:
    """Goal: every captured header means what the list says, and encoding gives the captured bytes again."""
    frame = path.read_bytes()
    command = decode(frame, len(frame))
    assert (command.form, command.code, command.flag, command.opaque, command.version, command.language.name) == (
        expected["type_byte"],
        expected["code"],
        expected["flag"],
        expected["opaque"],
        expected["version"],
        expected["language"],
    )
    fields = expected.get("ext", {})
    assert command.ext_fields.keys() == fields.keys()
    for name, value in fields.items():  # the list shortens long texts
        assert command.ext_fields[name].startswith(value.removesuffix("...")), name
    assert (command.remark or "")[:200] == expected.get("remark", "")
    assert encode_command(command) == frame


@pytest.mark.parametrize("chunk_bytes", [1, 3, 1000])
def test_chunking_does_not_matter(chunk_bytes: int) -> None:
    """Goal: where TCP splits a frame must not matter."""
    for parameter in SIDES:
        frame = parameter.values[0].read_bytes()
        assert decode(frame, chunk_bytes) == decode(frame, len(frame))


def test_all_frames_in_one_stream() -> None:
    frames = [parameter.values[0].read_bytes() for parameter in SIDES]
    commands = FrameDecoder().feed(b"".join(frames))
    assert [encode_command(command) for command in commands] == frames


def test_an_answer_has_the_opaque_of_its_request() -> None:
    for entry in (entry for entry in INDEX if "response_file" in entry):
        request, response = (
            decode((FOLDER / entry[f"{side}_file"]).read_bytes(), 4096) for side in ("request", "response")
        )
        assert response.is_response
        assert response.opaque == request.opaque, entry["name"]
