"""An attacker in the simulated network: it knows everything about the group but the secret, and replays frames."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rocketq.replication.fenced_auth import AuthRequest, encode_auth_request
from rocketq.replication.fenced_frames import (
    Frame,
    FrameDecoder,
    FrameType,
    ack,
    data_frame,
    encode_introduction,
    heartbeat,
)

from .replica_disk import RECORD_BYTES
from .replica_world import GROUP, Line, World

if TYPE_CHECKING:
    from .replica_node import Node

EPOCH_MAX = (1 << 31) - 1
RECORDED_MAX = 200
FORGED = b"\xee" * RECORD_BYTES


@dataclass
class Impostor:
    """A process that the fence does not know: always up, never paused."""

    world: World
    rng: random.Random
    number: int = 99
    life: int = 0
    up: bool = True
    paused_to_ms: float = 0.0
    recorded: list[Frame] = field(default_factory=list)
    """Frames of genuine connections, as a tap of the network sees them."""
    attacks: int = 0

    def record(self, item: Any) -> None:
        if len(self.recorded) < RECORDED_MAX or self.rng.random() < 0.1:
            frame = item if isinstance(item, Frame) else next(FrameDecoder().feed(item))
            self.recorded = [*self.recorded[-RECORDED_MAX:], frame]

    def call(self, master: Node, slave: Node) -> None:
        """Connect to a master as one of its slaves, and acknowledge everything."""
        line: Line
        line = Line(self.world, (self, master), (lambda item: None, lambda item: master.from_slave(line, item)))
        if not master.accept(line):
            return
        self.attacks += 1
        epoch = self.rng.choice([master.leading_epoch, master.leading_epoch + 1, EPOCH_MAX])
        own, end = slave.agent.state, master.disk.log_end
        request = AuthRequest(
            GROUP.cluster, GROUP.broker_name, master.agent.broker_id, own.broker_id, self.rng.randbytes(32)
        )
        claim = encode_introduction(replace(slave._introduction(), shape=master.disk.shape))
        frames = [
            Frame(type=FrameType.AUTH_REQUEST, master_epoch=epoch, body=encode_auth_request(request)),
            Frame(type=FrameType.AUTH_PROOF, master_epoch=epoch, body=self.rng.randbytes(32)),
            Frame(type=FrameType.HELLO, master_epoch=epoch, body=claim),
            ack(epoch, end, end, body=master._digest(())),
            ack(epoch, end, end),
        ]
        replayed = [self.rng.choice(self.recorded) for _ in range(5) if self.recorded]
        for frame in [*frames, *replayed] if self.rng.random() < 0.5 else [*replayed, *frames]:
            line.send(1, master._wire(frame))
        self.world.after(3_000, line.close)

    def answer(self, slave: Node, line: Line, epoch: int) -> None:
        """Answer a slave in place of its master, with recorded and forged frames."""
        self.attacks += 1
        end = slave.disk.log_end
        frames = [
            Frame(type=FrameType.AUTH_CHALLENGE, master_epoch=epoch, body=self.rng.randbytes(64)),
            Frame(
                type=FrameType.WELCOME,
                master_epoch=epoch,
                offset=end,
                body=encode_introduction(slave._introduction()),
            ),
            data_frame(epoch, epoch, end, end, end + RECORD_BYTES, FORGED),
            heartbeat(EPOCH_MAX, end, end + RECORD_BYTES),
        ]
        replayed = [self.rng.choice(self.recorded) for _ in range(5) if self.recorded]
        for frame in [*replayed, *frames]:
            line.send(0, slave._wire(frame))
        self.world.after(3_000, line.close)
