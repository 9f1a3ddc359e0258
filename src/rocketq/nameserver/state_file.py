"""Small state files, replaced atomically, with the previous content kept as a backup."""

from __future__ import annotations

import os
from pathlib import Path


def write_state(path: Path, data: bytes) -> None:
    """Replace a file atomically; its previous content is kept as `<name>.bak`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _replace(backup_of(path), path.read_bytes())
    _replace(path, data)


def read_text(path: Path) -> str | None:
    """The text of a file; None when it does not exist."""
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
        os.fsync(folder)  # else a power failure may undo the rename
    finally:
        os.close(folder)
