"""Frames of sends and pulls for the kernel and the handlers to agree on: captured ones, made-up ones, damaged ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import Language
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.messages import BatchElement, encode_batch
from tests.contract.broker.kit import JAVA_497, JAVA_533, letters, pull_fields, send_fields

GOLDEN = Path(__file__).parents[2] / "golden" / "frames"
TOPIC, OTHER, GROUP, CLIENT = "GoldenTopic", "Other_Topic", "GoldenConsumer", "127.0.0.1@twin"
QUEUES = 3
UNIQUE = "7F0000010B3A18B4AAC212345678"

NAMES = ["KEYS", "UNIQ_KEY", "TAGS", "WAIT", "a", "__SHARDINGKEY", "PGROUP", "RETRY_TOPIC"]
ODD_NAMES = ["DELAY", "TIMER_DELAY_SEC", "TRAN_MSG", "CLUSTER", "wait", "", "键"]
VALUES = ["TagA", "TagB", "true", "false", "TRUE", "k1 k2", "x", UNIQUE + "0001", "v" * 90, 'say "so" \\ /', "\t", "0"]
ODD_VALUES = ["", "标签", "a\x01b", "1", "\x7f", "\0", "\ud83d"]
ODD_FIELDS = [
    "",
    "-1",
    "0",
    "7",
    "+3",
    "007",
    "x",
    "true",
    "1",
    "2147483647",
    "2147483648",
    "9" * 19,
    " 1",
    "1.5",
    "\n",
]
EXPRESSIONS = ["*", "", "TagA", "TagA || TagB", "TagC", "||", " ", "TagA||", "a'b"]


def captured() -> list[bytes]:
    """Sends and pulls as real clients wrote them."""
    index = json.loads((GOLDEN / "index.json").read_text())["frames"]
    frames = [(GOLDEN / entry["request_file"]).read_bytes() for entry in index if "broker" in entry["to"]]
    return [frame for frame in frames if FrameDecoder().feed(frame)[0].code in (10, 11, 310, 320, 361)]


def beginnings() -> list[bytes]:
    """Topics with messages in them, and a group that subscribes to them."""
    maker = FrameMaker(0, odd=0.0)
    topics = [
        maker.frame(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
             "topicFilterType": filter_type, "topicSysFlag": 0, "order": "false"},
        )
        for topic, filter_type in ((TOPIC, "SINGLE_TAG"), (OTHER, "MULTI_TAG"))
    ]  # fmt: skip
    subscriptions = (
        Subscription(topic=TOPIC, expression="TagA || TagB", tags=("TagA", "TagB"), version=5),
        Subscription(topic=OTHER, version=5),
    )
    beat = Heartbeat(client_id=CLIENT, consumers=(ConsumerData(group=GROUP, subscriptions=subscriptions),))
    sends = [
        maker.frame(310, letters(send_fields(topic, number % QUEUES)), b"first")
        for number in range(3 * QUEUES)
        for topic in (TOPIC, OTHER)
    ]
    pulls = [maker.frame(11, pull_fields(TOPIC, 0, group=group)) for group in ("GoldenPull", "GoldenLite", GROUP, "g")]
    return [*topics, maker.frame(RequestCode.HEART_BEAT, {}, beat.encode()), *sends, *pulls]


class FrameMaker:
    """The same seed makes the same frames; `odd` is how often something unusual is in one. With `others`, which
    makes a code, fields and a body, one request in four is made by it."""

    def __init__(
        self,
        seed: int,
        odd: float = 0.03,
        others: Callable[[random.Random], tuple[int, dict[str, Any], bytes]] | None = None,
    ) -> None:
        self._random = random.Random(seed)
        self._odd = odd
        self._others = others
        self._opaque = 0
        self._captured = captured()

    def frames(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            frame = self._one()
            yield self._damaged(frame) if self._random.random() < self._odd else frame

    def sessions(self, count: int, frames_each: int = 12) -> Iterator[list[bytes]]:
        """The frames of connections as sockets may give them: several at once, cut anywhere."""
        for _ in range(count // frames_each):
            data, chunks = b"".join(self.frames(frames_each)), []
            while data:
                size = self._random.choice((1, 3, 50, 400, 2_000, 9_000))
                chunks.append(data[:size])
                data = data[size:]
            yield chunks

    def frame(self, code: int, fields: dict[str, Any], body: bytes = b"", **members: Any) -> bytes:
        self._opaque += 1
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        given: dict[str, Any] = {"language": Language.JAVA, "version": JAVA_497, "opaque": self._opaque, **members}
        return encode_command(Command(code=int(code), ext_fields=texts, body=body, **given))

    def _one(self) -> bytes:
        if self._others is not None and self._random.random() < 0.25:
            code, fields, body = self._others(self._random)
            return self.frame(code, fields, body, form=self._random.choice((HeaderForm.JSON, HeaderForm.BINARY)))
        pick = self._random.random()
        if pick < 0.15:
            return self._random.choice(self._captured)
        if pick < 0.20:
            return self.frame(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0})
        return self._pull() if pick < 0.55 else self._send()

    def _is_odd(self) -> bool:
        return self._random.random() < self._odd

    def _members(self) -> dict[str, Any]:
        chance = self._random
        return {
            "form": chance.choice((HeaderForm.JSON, HeaderForm.BINARY)),
            "version": chance.choice((JAVA_497, JAVA_533)),
            "flag": chance.choice((1, 3, 4)) if self._is_odd() else chance.choice((0, 0, 0, 0, 0, 2)),
            "opaque": chance.choice((self._opaque, self._opaque, -self._opaque, 0x7FFFFFFF)),
        }

    # sends

    def _send(self) -> bytes:
        chance, code = self._random, self._random.choice((310, 310, 310, 10, 320, 320))
        batch = code == 320 or chance.random() < 0.15
        fields = send_fields(
            chance.choice((TOPIC, TOPIC, OTHER, "Unheard")) if self._is_odd() else chance.choice((TOPIC, OTHER)),
            chance.randrange(QUEUES + 1) if self._is_odd() else chance.randrange(QUEUES),
            properties=self._properties(chance.randrange(2 if batch else 6)),
            sysFlag=chance.choice((0, 0, 1, 0x301, 4, 8, 16, 64)) if self._is_odd() else chance.choice((0, 1)),
            flag=chance.choice((0, 0, 5, -5)),
            batch="true" if batch else "false",
            bname=chance.choice((None, "broker-a")),
            maxReconsumeTimes=chance.choice((None, None, 16, -1)),
            reconsumeTimes=chance.choice((0, 1)) if self._is_odd() else 0,
        )
        self._spoil(fields)
        body = self._batch() if batch else chance.randbytes(chance.choice((1, 7, 64, 200, 3000)))
        if self._is_odd():
            body = chance.choice((b"", body[:-1], b"\0" + body, body + body))
        return self.frame(code, fields if code == 10 else letters(fields), body, **self._members())

    def _spoil(self, fields: dict[str, Any]) -> None:
        if self._is_odd():
            name = self._random.choice(list(fields))
            fields[name] = self._random.choice((None, *ODD_FIELDS))

    def _properties(self, count: int) -> str:
        chance = self._random
        items = []
        for _ in range(count):
            name = chance.choice(ODD_NAMES if self._is_odd() else NAMES)
            items.append(f"{name}\x01{chance.choice(ODD_VALUES if self._is_odd() else VALUES)}")
        text = "\x02".join(items) + chance.choice(("", "\x02"))
        return text.replace("\ud83d", "?")

    def _batch(self) -> bytes:
        chance = self._random
        return encode_batch(
            BatchElement(
                body=chance.randbytes(chance.randrange(200)),
                properties=self._properties(chance.randrange(4)).encode(),
                flag=chance.choice((0, 3)),
            )
            for _ in range(chance.randrange(1, 6))
        )

    # pulls

    def _pull(self) -> bytes:
        chance = self._random
        own = chance.random() < 0.5
        fields = pull_fields(
            chance.choice((TOPIC, TOPIC, OTHER, "Unheard", f"%RETRY%{GROUP}")) if self._is_odd() else TOPIC,
            chance.choice((-1, 0, 100_000, "x")) if self._is_odd() else chance.randrange(8),
            group=chance.choice(("Nobody", "")) if self._is_odd() else chance.choice(("GoldenPull", GROUP, "g")),
            queue_id=chance.choice((-1, QUEUES, 99)) if self._is_odd() else chance.randrange(QUEUES),
            maxMsgNums=chance.choice((-3, 0, 1, 2, 32, 5_000)),
            sysFlag=(4 if own else 0) | chance.choice((0, 0, 1, 16, 8 if self._is_odd() else 0)),
            commitOffset=chance.choice((0, 3, 7, -1)),
            subscription=chance.choice(EXPRESSIONS) if self._is_odd() else chance.choice(("*", "TagA", "TagA || TagB")),
            subVersion=chance.choice((0, 5, 9)) if self._is_odd() else 0,
            expressionType=chance.choice(("SQL92", "", None)) if self._is_odd() else "TAG",
            maxMsgBytes=chance.choice((None, None, 0, 1, 700, 65_536, 2_147_483_647)),
            bname=chance.choice((None, "broker-a")),
            ReqT=chance.choice((None, "0")),
        )
        self._spoil(fields)
        return self.frame(chance.choice((11, 11, 361)), fields, b"x" if self._is_odd() else b"", **self._members())

    # damage

    def _damaged(self, frame: bytes) -> bytes:
        """Bytes of header or body changed; the length stays, so that what follows is still a frame."""
        chance, work = self._random, bytearray(frame)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(8, len(work))
            work[at] = chance.choice((0, 1, 2, 34, 44, 48, 92, 123, 125, 255, work[at] ^ 1, chance.randrange(256)))
        return bytes(work)
