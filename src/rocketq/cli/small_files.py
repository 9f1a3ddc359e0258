"""Files of a size for development, so that `rocketq up` does not take 1.4 GiB of disk before the first message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_LOG: Final = {"mappedFileSizeCommitLog": 128 << 20}
_INDEX: Final = {"maxHashSlotNum": 500_000, "maxIndexNum": 2_000_000}
_INDEX_BYTES: Final = 40 + 4 * _INDEX["maxHashSlotNum"] + 20 * _INDEX["maxIndexNum"]


def with_small_files(settings: Mapping[str, str], roots: Iterable[Path]) -> dict[str, str]:
    """The settings, with small files where none are set. Stores that have files of another size keep it, and so do
    all replicas when one of them has."""
    stores, small = list(roots), dict[str, int]()
    elsewhere = settings.get("storePathCommitLog")
    logs = [Path(elsewhere)] if elsewhere else [root / "commitlog" for root in stores]
    if all(_may_have(folder, _LOG["mappedFileSizeCommitLog"]) for folder in logs):
        small |= _LOG
    if all(_may_have(root / "index", _INDEX_BYTES) for root in stores):
        small |= _INDEX
    return {**{key: str(value) for key, value in small.items()}, **settings}


def _may_have(folder: Path, size_bytes: int) -> bool:
    """There are no files yet, or they have this size."""
    first = min((path for path in folder.glob("*") if path.name.isdigit()), default=None)
    return first is None or first.stat().st_size == size_bytes
