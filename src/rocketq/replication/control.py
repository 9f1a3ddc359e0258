"""The shared state of the replicas of one brokerName: values, keys and transactions. Pure.

A change is computed from a view of the group: it compares the revisions of that view and puts new values. The control
store applies it completely or not at all. A change that was computed from old values is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Generic, Protocol, TypeVar

from rocketq.errors import ProtocolError, RocketQError
from rocketq.replication.fenced_auth import SECRET_BYTES_MIN

Value = TypeVar("Value")


class ControlError(RocketQError):
    """A request to the control store failed; the outcome of a change is unknown."""

    retriable = True


class LeaseLostError(ControlError):
    """The lease has expired."""


class ChangeRejectedError(RocketQError):
    """The change is not allowed in the current state of the group."""


@dataclass(frozen=True, slots=True)
class Group:
    """The replicas of one brokerName in one cluster."""

    cluster: str
    broker_name: str

    @property
    def prefix(self) -> str:
        return f"{self.cluster}/{self.broker_name}/"


@dataclass(frozen=True, slots=True)
class GroupState:
    """The master, its epoch, and the replicas that have every acknowledged message."""

    master_id: int
    """0: no master (retired)."""
    epoch: int
    in_sync: frozenset[int]
    version: int
    preferred_id: int = 0
    """The replica that a planned switch prefers; a hint."""


@dataclass(frozen=True, slots=True)
class MasterKey:
    """Attached to the master's lease."""

    broker_id: int
    epoch: int
    ha_addr: str
    addr: str = ""
    boot_id: str = ""
    """Identifies the boot of the master's machine, so that a restarted process recognizes its own key."""


@dataclass(frozen=True, slots=True)
class Replica:
    addr: str
    check_code: str


@dataclass(frozen=True, slots=True)
class AliveReport:
    """Attached to each replica's lease: its log end."""

    ha_addr: str
    log_end: int
    last_epoch: int
    slaves: tuple[tuple[int, int, int], ...] = ()
    """Set by a master: id, log end and duration of the lag in ms of each slave."""
    isolated_epoch: int = 0
    """Set by a slave that does not hear the master of this epoch."""
    reaches: tuple[int, ...] = ()
    """Set with it: the other replicas that it can connect to."""
    has_room: bool = True
    """False: its disk is too full to accept messages."""


@dataclass(frozen=True, slots=True)
class Versioned(Generic[Value]):
    value: Value
    revision: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """The raw value of a key."""

    value: bytes
    revision: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class GroupView:
    """All of a group at one revision of the control store."""

    revision: int = 0
    state: Versioned[GroupState] | None = None
    master: Versioned[MasterKey] | None = None
    last_id: Versioned[int] | None = None
    switch_to: Versioned[int] | None = None
    """The replica that an operator asks the master to hand over to."""
    secret: Versioned[bytes] | None = field(default=None, repr=False)
    """Shared by the replicas, which authenticate each other with it."""
    replicas: Mapping[int, Versioned[Replica]] = field(default_factory=dict)
    alive: Mapping[int, Versioned[AliveReport]] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        return self.state.value.epoch if self.state else 0


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes = field(repr=False)
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """Applied only when every key in `compares` has the given revision (0: absent)."""

    compares: tuple[tuple[str, int], ...]
    puts: tuple[Put, ...] = ()
    deletes: tuple[str, ...] = ()


class ControlStore(Protocol):
    """Keys with revisions and leases; linearizable. ControlError when it is unreachable: the outcome is unknown."""

    async def read(self, group: Group) -> GroupView: ...

    async def commit(self, group: Group, change: Transaction) -> int | None:
        """The revision of the change, or None when a comparison failed."""
        ...

    async def grant(self, ttl_ms: int) -> int: ...

    async def keep_alive(self, lease_id: int) -> None:
        """LeaseLostError when it has expired."""
        ...

    async def revoke(self, lease_id: int) -> None: ...

    async def wait_for_change(self, group: Group, after_revision: int, timeout_ms: int) -> bool:
        """Return when a key of the group has changed after that revision (True), or when the time is over."""
        ...

    async def close(self) -> None: ...


# Reading


def view_of(entries: Mapping[str, Entry], revision: int) -> GroupView:
    """Decode the keys of a group (without its prefix). Unknown keys are ignored."""
    replicas: dict[int, Versioned[Replica]] = {}
    alive: dict[int, Versioned[AliveReport]] = {}
    state: Versioned[GroupState] | None = None
    master: Versioned[MasterKey] | None = None
    last_id: Versioned[int] | None = None
    switch_to: Versioned[int] | None = None
    secret: Versioned[bytes] | None = None
    for key, entry in entries.items():
        kind, _, number = key.partition("/")
        if key == "state":
            state = _versioned(_decode_state(entry.value), entry)
        elif key == "master":
            master = _versioned(_decode(MasterKey, entry.value), entry)
        elif key == "last_id":
            last_id = _versioned(int(entry.value), entry)
        elif key == "secret":
            secret = _versioned(_decode_secret(entry.value), entry)
        elif key == "switch":
            switch_to = _versioned(int(entry.value), entry)
        elif kind == "replica" and number.isdigit():
            replicas[int(number)] = _versioned(_decode(Replica, entry.value), entry)
        elif kind == "alive" and number.isdigit():
            alive[int(number)] = _versioned(_decode_report(entry.value), entry)
    return GroupView(revision, state, master, last_id, switch_to, secret, replicas, alive)


def _versioned(value: Value, entry: Entry) -> Versioned[Value]:
    return Versioned(value, entry.revision, entry.lease_id)


def _decode(kind: type[Value], data: bytes) -> Value:
    """Fields of newer versions are ignored."""
    try:
        members = json.loads(data)
        known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
        return kind(**{name: value for name, value in members.items() if name in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise ProtocolError(f"the control store holds no {kind.__name__}: {error}") from None


def _decode_state(data: bytes) -> GroupState:
    state = _decode(GroupState, data)
    return replace(state, in_sync=frozenset(state.in_sync))


def _decode_secret(data: bytes) -> bytes:
    try:
        secret = bytes.fromhex(data.decode("ascii"))
    except ValueError:
        raise ProtocolError("the control store holds no secret in hexadecimal form") from None
    if len(secret) < SECRET_BYTES_MIN:
        raise ProtocolError(f"the secret in the control store is shorter than {SECRET_BYTES_MIN} bytes")
    return secret


def _decode_report(data: bytes) -> AliveReport:
    report = _decode(AliveReport, data)
    try:
        return replace(
            report,
            slaves=tuple((int(number), int(end), int(ms)) for number, end, ms in report.slaves),
            reaches=tuple(map(int, report.reaches)),
        )
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the control store holds no AliveReport: {error}") from None


def _encode(value: Any) -> bytes:
    def plain(item: object) -> list[int]:
        assert isinstance(item, frozenset)
        return sorted(item)

    return json.dumps(asdict(value), sort_keys=True, default=plain).encode()


# Changing


def create_secret(secret: bytes) -> Transaction:
    """Create the group's secret unless it exists; one of several replicas that start at once succeeds."""
    return Transaction(compares=(("secret", 0),), puts=(Put("secret", secret.hex().encode()),))


def apply_for_id(view: GroupView, replica: Replica) -> tuple[int, Transaction]:
    """The next unused id, for a store without one."""
    number = max([view.last_id.value if view.last_id else 0, *view.replicas]) + 1
    key = f"replica/{number}"
    change = Transaction(
        compares=(("last_id", _revision(view.last_id)), (key, 0)),
        puts=(Put("last_id", str(number).encode()), Put(key, _encode(replica))),
    )
    return number, change


def elect(view: GroupView, caller: MasterKey, lease_id: int, *, dead_epoch: int = 0) -> tuple[GroupState, Transaction]:
    """The caller becomes master of the next epoch and the only member of S. A restarted master may replace its own
    `master` key before the old lease expires, and any member that of a master of `dead_epoch`, whose process ended."""
    own = caller.broker_id
    if view.master is not None and view.master.value.broker_id != own and view.master.value.epoch != dead_epoch:
        raise ChangeRejectedError(f"replica {view.master.value.broker_id} is master")
    if own not in view.replicas:
        raise ChangeRejectedError(f"replica {own} is not registered")
    if view.state is not None and own not in view.state.value.in_sync:
        raise ChangeRejectedError(f"replica {own} is not in sync")
    version = view.state.value.version if view.state else 0
    state = GroupState(own, view.epoch + 1, frozenset({own}), version + 1)
    master = replace(caller, epoch=state.epoch)
    change = Transaction(
        compares=(
            ("state", _revision(view.state)),
            ("master", _revision(view.master)),
            (f"replica/{own}", view.replicas[own].revision),
        ),
        puts=(Put("state", _encode(state)), Put("master", _encode(master), lease_id)),
    )
    return state, change


def alter_set(
    view: GroupView, caller_id: int, lease_id: int, in_sync: frozenset[int]
) -> tuple[GroupState, Transaction]:
    """Replace the in-sync set; only the master may."""
    state = _own_state(view, caller_id, lease_id)
    if caller_id not in in_sync:
        raise ChangeRejectedError("the master is always in sync")
    unknown = in_sync - set(view.replicas)
    if unknown:
        raise ChangeRejectedError(f"replicas {sorted(unknown)} are not registered")
    altered = replace(state, in_sync=in_sync, version=state.version + 1)
    members = tuple((f"replica/{member}", view.replicas[member].revision) for member in sorted(in_sync))
    return altered, Transaction(_held(view) + members, (Put("state", _encode(altered)),))


def retire(view: GroupView, caller_id: int, lease_id: int, preferred_id: int = 0) -> tuple[GroupState, Transaction]:
    """The master resigns; in-sync replicas may be elected immediately."""
    state = _own_state(view, caller_id, lease_id)
    if preferred_id and preferred_id not in state.in_sync:
        raise ChangeRejectedError(f"replica {preferred_id} is not in sync")
    left = replace(state, master_id=0, epoch=state.epoch + 1, version=state.version + 1, preferred_id=preferred_id)
    return left, Transaction(_held(view), (Put("state", _encode(left)),), ("master",))


def clean(view: GroupView, broker_id: int) -> Transaction:
    """Remove a replica permanently."""
    if broker_id not in view.replicas:
        raise ChangeRejectedError(f"replica {broker_id} is not registered")
    if view.state is not None and broker_id in view.state.value.in_sync | {view.state.value.master_id}:
        raise ChangeRejectedError(f"replica {broker_id} is in sync")
    return Transaction(
        compares=(("state", _revision(view.state)), (f"replica/{broker_id}", view.replicas[broker_id].revision)),
        deletes=(f"replica/{broker_id}", f"alive/{broker_id}"),
    )


def ask_switch(view: GroupView, broker_id: int, lease_id: int) -> Transaction:
    """Ask the master of this view to hand over; the request expires with the caller's lease."""
    if view.state is None or view.master is None:
        raise ChangeRejectedError("there is no master")
    if broker_id not in view.state.value.in_sync or broker_id == view.master.value.broker_id:
        raise ChangeRejectedError(
            f"replica {broker_id} is not an in-sync slave (in sync: {sorted(view.state.value.in_sync)})"
        )
    return Transaction(_held(view), (Put("switch", str(broker_id).encode(), lease_id),))


def report_alive(broker_id: int, report: AliveReport, lease_id: int) -> Transaction:
    return Transaction((), (Put(f"alive/{broker_id}", _encode(report), lease_id),))


def _own_state(view: GroupView, caller_id: int, lease_id: int) -> GroupState:
    if view.state is None or view.state.value.master_id != caller_id:
        raise ChangeRejectedError(f"replica {caller_id} is not master")
    if view.master is None or view.master.lease_id != lease_id or view.master.value.epoch != view.epoch:
        raise ChangeRejectedError(f"replica {caller_id} does not hold the master's lease")
    return view.state.value


def _held(view: GroupView) -> tuple[tuple[str, int], ...]:
    return ("state", _revision(view.state)), ("master", _revision(view.master))


def _revision(item: Versioned[Any] | None) -> int:
    return item.revision if item else 0
