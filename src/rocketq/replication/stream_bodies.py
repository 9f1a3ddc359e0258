"""The JSON bodies of the stream: what master and slave tell each other before the first byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rocketq.errors import RemoteProtocolError, StoreError
from rocketq.replication.epochs import Epoch, EpochList
from rocketq.replication.rejoin import LogShape


@dataclass(frozen=True, slots=True)
class Introduction:
    """HELLO of a slave, WELCOME of a master."""

    cluster: str
    broker_name: str
    broker_id: int
    check_code: str
    segment_bytes: int
    shape: LogShape


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: str


def encode_introduction(one: Introduction) -> bytes:
    return json.dumps(
        {
            "cluster": one.cluster,
            "brokerName": one.broker_name,
            "brokerId": one.broker_id,
            "checkCode": one.check_code,
            "fileSize": one.segment_bytes,
            "logMin": one.shape.start,
            "logEnd": one.shape.end,
            "epochs": [[entry.number, entry.start] for entry in one.shape.epochs],
        }
    ).encode()


def decode_introduction(body: bytes) -> Introduction:
    """RemoteProtocolError for anything else."""
    fields = _object(body)
    try:
        epochs = EpochList(Epoch(int(number), int(start)) for number, start in fields["epochs"])
        shape = LogShape(int(fields["logMin"]), int(fields["logEnd"]), epochs)
        return Introduction(
            str(fields["cluster"]),
            str(fields["brokerName"]),
            int(fields["brokerId"]),
            str(fields.get("checkCode", "")),
            int(fields["fileSize"]),
            shape,
        )
    except (KeyError, TypeError, ValueError, StoreError) as error:
        raise RemoteProtocolError(f"not a replica's introduction: {error!r}") from None


def encode_rejection(rejection: Rejection) -> bytes:
    return json.dumps({"reason": rejection.reason}).encode()


def decode_rejection(body: bytes) -> Rejection:
    return Rejection(str(_object(body).get("reason", "")))


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise RemoteProtocolError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RemoteProtocolError("not a JSON object")
    return fields
