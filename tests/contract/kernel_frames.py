"""Random frames of sends, batches and pulls for the kernel's driver, most of them plain, some odd, some damaged, and
signed ones."""

from __future__ import annotations

import random
from typing import Any

from rocketq.protocol.acl import Credentials, sign
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import Language
from rocketq.protocol.frame import encode_command

TOPIC, GROUP, PRODUCER, QUEUES = "TopicTest", "G", "p", 3
TOPICS = (TOPIC, "T", "TopicTest2", "SomewhatLongerTopic")
SEND_FIELDS = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"),
    *("flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname"),
)
LETTERS = dict(zip(SEND_FIELDS, "abcdefghijklmn", strict=True))
NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "A", "A", "DELAY", "CLUSTER", "TIMER_X", "TRAN_MSG", "REAL_QID", "")
NAME_WEIGHTS = (9, 9, 9, 9, 9, 9, 4, 1, 1, 1, 1, 1)
VALUES = ("TagA", "true", "false", "k1 k2", "", "\t", "v" * 60, '"\\/', "\u00e9")
VALUE_WEIGHTS = (9, 9, 9, 9, 2, 2, 9, 2, 1)
LEVELS = ("1", "1", "2", "3", "0", "01", "x", "18", "")


def properties(rng: random.Random, count: int) -> str:
    names = rng.choices(NAMES, NAME_WEIGHTS, k=count)
    values = (rng.choice(LEVELS) if name == "DELAY" else rng.choices(VALUES, VALUE_WEIGHTS)[0] for name in names)
    return "\x02".join(f"{name}\x01{value}" for name, value in zip(names, values, strict=True))


def send(rng: random.Random) -> tuple[int, dict[str, Any], bytes]:
    code = rng.choice((310, 310, 320, 10))
    batch = code == 320 or rng.random() < 0.1
    fields: dict[str, Any] = {
        "producerGroup": rng.choice((PRODUCER, PRODUCER, PRODUCER, PRODUCER, "q")),
        "topic": rng.choice((*TOPICS, *TOPICS, "Unheard")),
        "defaultTopicQueueNums": 4,
        "queueId": rng.choice((0, 1, 2, 2, QUEUES, -1)),
        "sysFlag": rng.choice((0, 0, 0, 1, 4)),
        "bornTimestamp": 1_700_000_000_123,
        "flag": rng.choice((0, 0, 7)),
        "properties": properties(rng, rng.randrange(5)),
        "reconsumeTimes": 0,
        "batch": "true" if batch else "false",
    }
    if code != 10:
        fields = {LETTERS[name]: value for name, value in fields.items()}
    body = packed(rng) if batch else rng.randbytes(rng.choice((0, 1, 64, 300)))
    return code, fields, body


def packed(rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.randrange(1, 4)):
        body, items = rng.randbytes(rng.randrange(90)), properties(rng, rng.randrange(3)).encode()
        head = (22 + len(body) + len(items), 0, 0, rng.randrange(3), len(body))
        parts.append(b"".join(number.to_bytes(4, "big") for number in head) + body)
        parts.append(len(items).to_bytes(2, "big") + items)
    return b"".join(parts)


def pull(rng: random.Random) -> tuple[int, dict[str, Any], bytes]:
    fields = {
        "consumerGroup": rng.choice((GROUP, GROUP, GROUP, "Nobody")),
        "topic": TOPIC,
        "queueId": rng.choice((0, 1, 2, 2, QUEUES, -1)),
        "queueOffset": rng.choice((0, 0, 1, 5, 12, 99, -1)),
        "maxMsgNums": rng.choice((0, 1, 8, 32, 9_999)),
        "sysFlag": rng.choice((0, 1, 4, 5, 6, 16, 8)),
        "commitOffset": rng.choice((0, 3, -1)),
        "suspendTimeoutMillis": 15_000,
        "subscription": rng.choice(("*", "*", "TagA", "")),
        "subVersion": rng.choice((0, 1, 2)),
        "expressionType": rng.choice(("TAG", "TAG", "TAG", "SQL92")),
        "maxMsgBytes": rng.choice((None, 0, 1, 500, 1 << 20)),
    }
    return rng.choice((11, 361)), {name: value for name, value in fields.items() if value is not None}, b""


def frame(rng: random.Random) -> bytes:
    code, fields, body = pull(rng) if rng.random() < 0.4 else send(rng)
    if rng.random() < 0.05:
        fields[rng.choice(list(fields))] = rng.choice(("", "x", "-1", "9" * 19, 7, True))
    return perhaps_damaged(rng, command(rng, code, fields, body), 0.3)


def signed_frame(rng: random.Random, access_keys: list[str], secrets: list[str]) -> bytes:
    """A request with a signature, of fields in any order; some have a field that is not plain."""
    code, fields, body = pull(rng) if rng.random() < 0.4 else send(rng)
    values = rng.choices(VALUES, VALUE_WEIGHTS, k=rng.randrange(14))
    fields |= {rng.choice(NAMES) + str(number): value for number, value in enumerate(values)}
    if rng.random() < 0.1:
        fields[rng.choice(("_UNIQUE_KEY_QUERY", "\u00e9", "z" * 300))] = "true"
    items = rng.sample(list(fields.items()), len(fields))
    credentials = Credentials(rng.choice(access_keys), rng.choice(secrets), rng.choice((None, "token")))
    return perhaps_damaged(rng, sign(command(rng, code, dict(items), body), credentials), 0.2)


def command(rng: random.Random, code: int, fields: dict[str, Any], body: bytes) -> Command:
    return Command(
        code=code,
        opaque=rng.randrange(-99, 1 << 31),
        flag=rng.choice((0, 0, 0, 0, 2, 1)),
        language=Language.JAVA,
        version=rng.choice((407, 479)),
        ext_fields={name: str(value) for name, value in fields.items()},
        body=body,
        form=rng.choice((HeaderForm.JSON, HeaderForm.BINARY)),
    )


def perhaps_damaged(rng: random.Random, request: Command, share: float) -> bytes:
    data = bytearray(encode_command(request))
    if rng.random() < share:
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(8, len(data)) if rng.random() < 0.9 else rng.randrange(8)
            data[at] = rng.choice((0, 34, 44, 48, 92, 123, 125, 255, rng.randrange(256)))
    return bytes(data)


def frames(rng: random.Random) -> bytes:
    """What one read may bring."""
    data = b"".join(frame(rng) for _ in range(rng.choice((1, 2, 3, 4, 5, 40))))
    return data[: len(data) - rng.choice((0, 0, 0, 1, 7, 40))]
