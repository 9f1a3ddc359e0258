"""A broker on paper, for readers: one queue, what it holds, and what goes wrong. No socket, no clock."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

from rocketq.client.blocking.client import BodyReader
from rocketq.client.errors import NoQueueError
from rocketq.errors import ConnectionClosedError
from rocketq.model import Host, Record
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers.pull import PullRequest
from rocketq.protocol.messages import encode_record
from rocketq.protocol.properties import encode_properties

MASTER, SLAVE = "master:1", "slave:1"
_HOST = Host(bytes([127, 0, 0, 1]), 1)


def record(offset: int, *, tag: str = "A", body: bytes = b"") -> Record:
    properties = encode_properties({"TAGS": tag, "KEYS": f"k{offset}"})
    return Record(
        size=0,
        version=1,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=offset,
        log_offset=offset * 100,
        sys_flag=0,
        born_ms=offset,
        born_host=_HOST,
        store_ms=offset,
        store_host=_HOST,
        reconsume_times=0,
        prepared_offset=0,
        body=body or b"%d" % offset,
        topic="T",
        properties=properties if isinstance(properties, bytes) else properties.encode(),
    )


class PaperBroker:
    """Stands in for a BlockingClient and its links: messages low to high, some of them holes."""

    is_local = False

    def __init__(self, low: int, high: int, *, holes: frozenset[int] = frozenset(), count_max: int = 8) -> None:
        self.low, self.high = low, high
        self.holes = holes
        self.count_max = count_max
        self.slave_high: int | None = None
        self.suggests_slave = False
        self.answers_backwards = False
        self.passes_holes = False
        """Gives other messages for those it cannot read, as brokers do: and so more than was asked for."""
        self.has_master = True
        self.before_answer: Callable[[int], None] = lambda number: None
        """Called with the number of each pull; may change the broker, or raise."""
        self.before_piece: Callable[[int], None] = lambda at: None
        """Called with the place of each piece of an answer that is asked for; may raise."""
        self.pulls: list[tuple[str, int]] = []
        self.dropped: list[str] = []
        self._asked: dict[str, list[Command]] = {}
        self._at = MASTER

    def break_each_pull_once(self) -> None:
        """The line is cut before the first answer to each."""
        failed = set()

        def cut(number: int) -> None:
            at = self.pulls[number - 1]
            if at not in failed:
                failed.add(at)
                raise ConnectionClosedError(MASTER, "cut")

        self.before_answer = cut

    # as a client

    def broker(self, topic: str, broker_name: str, *, broker_id: int = 0, fresh: bool = False) -> str:
        if broker_id == 0 and self.has_master:
            return MASTER
        if self.slave_high is not None:
            return SLAVE
        raise NoQueueError(topic, f"broker {broker_name} is not in the route")

    def master(self, topic: str, broker_name: str) -> str | None:
        return MASTER if self.has_master else None

    def signed(self, command: Command) -> Command:
        return command

    def link(self, addr: str) -> PaperBroker:
        self._at = addr
        return self

    def drop(self, addr: str) -> None:
        self.dropped.append(addr)
        self._asked.pop(addr, None)

    # as a link

    def send(self, command: Command) -> int:
        opaque = len(self.pulls) + 1
        self.pulls.append((self._at, PullRequest.decode(command.ext_fields).queue_offset))
        self._asked.setdefault(self._at, []).append(replace(command, opaque=opaque))
        return opaque

    def receive(self, code: int, timeout_ms: int, take: BodyReader) -> Command:
        waiting = self._asked.get(self._at)
        if not waiting:
            raise ConnectionClosedError(self._at, "nothing was asked here")
        command = waiting.pop(-1 if self.answers_backwards else 0)
        self.before_answer(command.opaque)
        answer = self._answer(command, PullRequest.decode(command.ext_fields))
        body = io.BytesIO(answer.body)
        bare = replace(answer, body=b"")
        is_taken = bool(answer.body) and take(bare, len(answer.body), lambda piece: self._fill(body, piece))
        return bare if is_taken else answer

    def _fill(self, body: io.BytesIO, piece: memoryview) -> None:
        self.before_piece(body.tell())
        assert body.readinto(piece) == len(piece), "more was wanted than there is"

    def _holes_in(self, low: int, high: int) -> int:
        return sum(low <= each < high for each in self.holes)

    def _answer(self, command: Command, asked: PullRequest) -> Command:
        high = self.slave_high if self._at == SLAVE and self.slave_high is not None else self.high
        fields = {
            "suggestWhichBrokerId": "1" if self.suggests_slave else "0",
            "minOffset": str(self.low),
            "maxOffset": str(high),
        }
        at = asked.queue_offset
        if at == high:
            return command.answer(ResponseCode.PULL_NOT_FOUND, ext_fields={**fields, "nextBeginOffset": str(high)})
        if not self.low <= at < high:
            near = self.low if at < self.low else high
            return command.answer(ResponseCode.PULL_OFFSET_MOVED, ext_fields={**fields, "nextBeginOffset": str(near)})
        until = min(at + min(asked.count_max, self.count_max), high)
        while self.passes_holes and until < high and until - at - self._holes_in(at, until) < asked.count_max:
            until += 1
        held = [record(each) for each in range(at, until) if each not in self.holes]
        fields["nextBeginOffset"] = str(until)
        if not held:
            return command.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, ext_fields=fields)
        return command.answer(ResponseCode.SUCCESS, ext_fields=fields, body=b"".join(map(encode_record, held)))
