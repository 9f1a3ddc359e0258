"""How a broker and its replicas stand."""

from __future__ import annotations

from rocketq.protocol.bodies.json_body import Body, body, member


@body
class ReplicaLink(Body):
    """A replica as its master sees it."""

    addr: str = member("addr", default="")
    confirmed_to: int = member("slaveAckOffset", default=0)
    behind_bytes: int = member("diff", default=0)
    in_sync: bool = member("inSync", default=False)
    bytes_per_second: int = member("transferredByteInSecond", default=0)
    sent_to: int = member("transferFromWhere", default=0)


@body
class MasterLink(Body):
    """The master as a replica sees it; all zeros on a master."""

    last_read_ms: int = member("lastReadTimestamp", default=0)
    last_write_ms: int = member("lastWriteTimestamp", default=0)
    master_flushed_to: int = member("masterFlushOffset", default=0)
    log_end: int = member("maxOffset", default=0)
    bytes_per_second: int = member("transferredByteInSecond", default=0)
    addr: str | None = member("masterAddr", default=None)
    active: bool | None = member("activated", default=None)


@body
class ReplicationState(Body):
    is_master: bool = member("master", default=True)
    log_end: int = member("masterCommitLogMaxOffset", default=0)
    in_sync_count: int = member("inSyncSlaveNums", default=0)
    replicas: tuple[ReplicaLink, ...] = member("haConnectionInfo", default=())
    master: MasterLink = member("haClientRuntimeInfo", factory=MasterLink)
