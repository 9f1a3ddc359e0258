"""Store directories that real Apache brokers wrote, and what their producers were told."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketq.model import Host
from rocketq.store import StoreConfig

HERE = Path(__file__).parent / "store"
INDEX: dict[str, Any] = json.loads((HERE / "index.json").read_text())
NAMES = [store["name"] for store in INDEX["stores"]]


@dataclass(frozen=True)
class GoldenStore:
    """One captured directory, unpacked."""

    facts: dict[str, Any]
    root: Path
    manifest: list[dict[str, Any]]

    @property
    def config(self) -> StoreConfig:
        conf = self.facts["conf"]
        host = Host.of("127.0.0.1", int(conf["listenPort"]))
        return StoreConfig.from_java(conf, root=self.root, store_host=host, message_bytes_max=1 << 19)


def unpack(name: str, into: Path) -> GoldenStore:
    facts = next(store for store in INDEX["stores"] if store["name"] == name)
    with tarfile.open(HERE / facts["archive"]) as archive:
        archive.extractall(into, filter="data")
    with gzip.open(HERE / facts["manifest"], "rt") as lines:
        manifest = [json.loads(line) for line in lines]
    return GoldenStore(facts, into / name, manifest)


def body_of(entry: dict[str, Any]) -> bytes:
    """The body as it was sent."""
    if "body" in entry:
        return base64.b64decode(entry["body"])
    text: bytes = entry["bodyRepeat"].encode()
    length: int = entry["bodyLength"]
    return (text * (length // len(text) + 1))[:length]
