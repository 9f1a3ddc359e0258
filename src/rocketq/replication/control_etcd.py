"""Control store in etcd v3 (3.4 or newer) through its JSON gateway."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64decode, b64encode
from typing import Any

from rocketq.replication.control import ControlError, Entry, Group, GroupView, LeaseLostError, Transaction, view_of
from rocketq.replication.etcd_gateway import EtcdConfig, EtcdGateway


class EtcdControl:
    """Keys are `<prefix>/<cluster>/<brokerName>/<key>`; reads are linearizable, changes are transactions."""

    def __init__(self, config: EtcdConfig) -> None:
        self._gateway = EtcdGateway(config)
        self._prefix = config.prefix + "/"

    async def close(self) -> None:
        await self._gateway.close()

    async def read(self, group: Group) -> GroupView:
        own = self._prefix + group.prefix
        answer = await self._gateway.call("kv/range", _range(own))
        entries = {}
        for item in answer.get("kvs", ()):
            key = b64decode(item["key"]).decode()
            entry = Entry(b64decode(item.get("value", "")), int(item["mod_revision"]), int(item.get("lease", 0)))
            entries[key.removeprefix(own)] = entry
        return view_of(entries, _revision(answer))

    async def commit(self, group: Group, change: Transaction) -> int | None:
        own = self._prefix + group.prefix
        compares = [
            {"key": _text(own + key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
            for key, revision in change.compares
        ]
        puts = [
            {"request_put": {"key": _text(own + put.key), "value": _bytes(put.value), "lease": str(put.lease_id)}}
            for put in change.puts
        ]
        deletes = [{"request_delete_range": {"key": _text(own + key)}} for key in change.deletes]
        body = {"compare": compares, "success": puts + deletes, "failure": []}
        answer = await self._gateway.call("kv/txn", body, again=False)
        return _revision(answer) if answer.get("succeeded") else None

    async def grant(self, ttl_ms: int) -> int:
        answer = await self._gateway.call("lease/grant", {"TTL": str(-(-ttl_ms // 1000))})
        return int(answer["ID"])

    async def keep_alive(self, lease_id: int) -> None:
        answer = await self._gateway.call("lease/keepalive", {"ID": str(lease_id)})
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            raise LeaseLostError("the lease has expired")

    async def revoke(self, lease_id: int) -> None:
        with contextlib.suppress(LeaseLostError):
            await self._gateway.call("lease/revoke", {"ID": str(lease_id)})

    async def wait_for_change(self, group: Group, after_revision: int, timeout_ms: int) -> bool:
        request = _range(self._prefix + group.prefix) | {"start_revision": str(after_revision + 1)}
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(timeout_ms / 1000),
                self._gateway.stream("watch", {"create_request": request}, timeout_ms) as results,
            ):
                async for result in results:
                    if result.get("events") or result.get("canceled"):  # canceled: compacted, so it has changed
                        return True
                raise ControlError("etcd ended a watch")
        return False


def _range(prefix: str) -> dict[str, Any]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"key": _text(prefix), "range_end": _text(end)}


def _revision(answer: dict[str, Any]) -> int:
    try:
        return int(answer["header"]["revision"])
    except (KeyError, TypeError, ValueError):
        raise ControlError("an answer of etcd has no revision") from None


def _text(text: str) -> str:
    return _bytes(text.encode())


def _bytes(data: bytes) -> str:
    return b64encode(data).decode()
