"""Small files that are replaced whole: either the old or the new content is there, and the old one beside it."""

from __future__ import annotations

import os
from pathlib import Path


def write_state(path: Path, data: bytes) -> None:
    """Replace a file; what it held stays as `<name>.bak`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _replace(backup_of(path), path.read_bytes())
    _replace(path, data)


def read_text(path: Path) -> str | None:
    """None when there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _replace(path: Path, data: bytes) -> None:
    scratch = path.with_name(path.name + ".tmp")
    with scratch.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # or a power cut may bring the old name back
    finally:
        os.close(folder)
