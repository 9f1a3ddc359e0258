"""Schedules of faults from a seed: what happens to a group of replicas under load, and what must hold at its end."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass

from rocketq.replication.agent import AgentSettings, Role
from rocketq.replication.confirm import SyncRules
from rocketq.replication.control import ChangeRejectedError
from rocketq.replication.election import LeaseMode, LeaseTimes

from .impostor import Impostor
from .replica_disk import ReplicaDisk
from .replica_history import History, Violation
from .replica_node import Node
from .replica_world import CONTROL, GROUP, World

TIMES = LeaseTimes(keep_alive_ms=500, valid_ms=2_000, ttl_ms=4_000)
FAULTS_MS = 20_000
REST_MS = 40_000
FAULTS = [
    *["kill", "kill", "double", "pause", "pause", "cut", "one-way", "one-way", "control", "etcd"],
    *["isolate", "isolate", "isolate", "switch", "stop"],
    *["servers", "servers-one-way", "full", "impostor", "impostor", "usurper"],
]


@dataclass
class Cluster:
    world: World
    nodes: list[Node]
    history: History
    next_id: int = 1

    @classmethod
    def make(cls, seed: int, *, count: int, mode: LeaseMode, sync_flush: bool, min_in_sync: int) -> Cluster:
        history = History()
        world = World(seed, history)
        rules = SyncRules(min_in_sync=min_in_sync, sync_flush=sync_flush, behind_ms_max=3_000, gone_ms_max=1_000)
        nodes = []
        for number in range(1, count + 1):
            settings = AgentSettings(
                addr=f"node{number}", ha_addr=str(number), times=TIMES, lease_mode=mode, rules=rules,
                new_secret=bytes([number]) * 32, poll_ms=2_000, answer_ms_max=2_000, retire_ms_max=2_000,
            )  # fmt: skip
            nodes.append(Node(number, world, settings, ReplicaDisk.new(number)))
        impostor = Impostor(world, random.Random(seed))
        for node in nodes:
            node.nodes, node.impostor = nodes, impostor
        return cls(world, nodes, history)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        self._watch(0)

    def _watch(self, revision: int) -> None:
        """Changes are told soon, mostly."""
        world = self.world
        world.table.expire(int(world.now_ms))
        if world.table.revision != revision and world.control_up:
            revision = world.table.revision
            state = world.table.view(GROUP, int(world.now_ms)).state
            if state is not None:
                self.history.decides(state.value)
            self.history.logs_match([node.disk for node in self.nodes])
            for node in self.nodes:
                if node.up and (CONTROL, node.number) not in world.cuts and world.rng.random() < 0.9:
                    world.after(world.latency_ms(), node.watched, node)
        world.after(100, lambda: self._watch(revision))

    def run(self, span_ms: float) -> None:
        self.world.run_to(self.world.now_ms + span_ms)

    def load(self, until_ms: float) -> None:
        """Clients that send to whoever takes it, and readers everywhere, until then."""
        rng = self.world.rng
        if self.world.now_ms >= until_ms:
            return
        node = rng.choice(self.nodes)
        leading = [each for each in self.nodes if each.up and each.leading_epoch]
        if leading and rng.random() < 0.9:
            node = rng.choice(leading)
        for _ in range(rng.randint(1, 3)):
            if node.send(self.next_id):
                self.next_id += 1
        self.look(rng.choice(self.nodes))
        self.world.after(rng.uniform(20, 150), lambda: self.load(until_ms))

    def look(self, node: Node) -> None:
        """A reader is told what it may see there, and must never be told otherwise."""
        end = node.visible_to()
        if end is not None and end >= node.disk.start:
            self.history.told(node.disk, end, f"a reader at node {node.number}")

    def heal(self) -> None:
        self.world.cuts.clear()
        self.world.control_up = True
        for node in self.nodes:
            node.crash_chance, node.full, node.usurped_to_ms = 0, False, 0
            node.restart_stopped()
            node.restart()

    @property
    def leaders(self) -> list[Node]:
        return [node for node in self.nodes if node.up and node.agent.role is Role.LEADING]

    def rest(self) -> None:
        """Healed, the group finds a master, takes messages again, and comes to equal logs with all in sync."""
        self.heal()
        self.world.run_to(max([self.world.now_ms, *(node.paused_to_ms for node in self.nodes)]))
        deadline_ms = self.world.now_ms + REST_MS
        before = len(self.history.acked)
        while not (self._settled() and len(self.history.acked) > before):
            if self.world.now_ms > deadline_ms:
                raise Violation(f"no peace {REST_MS} ms after all was healed: {self.describe()}")
            if self._settled() and self.leaders[0].send(self.next_id):
                self.next_id += 1
            self.run(1_000)
        self.run(1_000)
        for node in self.nodes:
            self.look(node)
        self.history.at_rest([node.disk for node in self.nodes])

    def _settled(self) -> bool:
        leaders = self.leaders
        if len(leaders) != 1 or leaders[0].agent.term is None:
            return False
        term = leaders[0].agent.term
        everyone = {node.agent.broker_id for node in self.nodes}
        return set(term.in_sync) == everyone and leaders[0].agent.may_write(leaders[0].clock_ms) is None

    def describe(self) -> str:
        state = self.world.table.view(GROUP, int(self.world.now_ms))
        nodes = [
            f"{node.number}: {node.agent.role.value} id {node.agent.broker_id} epoch {node.agent.state.epoch} "
            f"log [{node.disk.start}, {node.disk.log_end}) {node.disk.load_epochs()} {node.refused or ''}"
            for node in self.nodes
        ]
        return f"{state.state} {state.master}; " + "; ".join(nodes)


def run_schedule(seed: int) -> History:
    """One schedule: everything about it follows from the seed."""
    shape = seed % 8
    sync_flush, strict = shape % 2 == 0, shape // 2 % 2 == 1
    cluster = Cluster.make(
        seed,
        count=2 if shape == 7 else 3,
        mode=LeaseMode.STRICT if strict else LeaseMode.AVAILABLE,
        sync_flush=sync_flush,
        min_in_sync=1 if shape in (3, 6) else 2,
    )
    world = cluster.world
    for node in cluster.nodes:
        node.encodes = seed % 16 == 0
        node.crash_chance = 0.1
    cluster.start()
    cluster.load(FAULTS_MS)
    world.after(world.rng.uniform(2_000, 6_000), lambda: _fault(cluster, sync_flush))
    try:
        world.run_to(FAULTS_MS)
        cluster.rest()
    except AssertionError as error:
        trace = "\n".join(cluster.history.trace[-60:])
        raise Violation(f"seed {seed}: {error}\n{trace}") from error
    return cluster.history


def _fault(cluster: Cluster, sync_flush: bool) -> None:
    """One fault, and the next one some time later."""
    world = cluster.world
    rng = world.rng
    if world.now_ms >= FAULTS_MS:
        return
    leaders = cluster.leaders
    victim = rng.choice(leaders) if leaders and rng.random() < 0.6 else rng.choice(cluster.nodes)
    span_ms = rng.choice([300, 1_500, 3_000, 6_000, 9_000]) * rng.uniform(0.5, 1.5)
    kind = rng.choice(FAULTS)
    world.history.note(f"{world.now_ms:.0f} fault {kind} at node {victim.number} for {span_ms:.0f} ms")
    if kind in ("kill", "double"):
        others = [node for node in cluster.nodes if node is not victim]
        for node in [victim, *([rng.choice(others)] if kind == "double" else [])]:
            node.kill(power=sync_flush and rng.random() < 0.8)
            world.after(span_ms * rng.choice([0.05, 1]) * rng.uniform(0.5, 1), node.restart)
    elif kind == "pause":
        victim.paused_to_ms = world.now_ms + span_ms
    elif kind in ("cut", "one-way", "control", "isolate", "servers", "servers-one-way"):
        _cut(cluster, victim, kind, span_ms)
    elif kind == "etcd":
        world.control_up = False
        world.after(span_ms, lambda: setattr(world, "control_up", True))
    elif kind == "full":
        victim.full = True
        world.after(span_ms, lambda: setattr(victim, "full", False))
    elif kind == "impostor":
        _attack(cluster, world.now_ms + span_ms)
    elif kind == "usurper":
        victim.usurped_to_ms = world.now_ms + span_ms
        for node in cluster.nodes:
            if node is not victim and node.up:
                node._hang_up()
    elif kind == "switch" and leaders and leaders[0].is_awake:
        _switch(leaders[0])
    elif kind == "stop" and victim.is_awake and not victim.stopping:
        victim.stop()
        world.after(span_ms, victim.restart_stopped)
    world.after(rng.choice([200, 800, 2_500, 6_000]) * rng.uniform(0.5, 1.5), lambda: _fault(cluster, sync_flush))


def _attack(cluster: Cluster, until_ms: float) -> None:
    """Impostors of every slave connect to every master, again and again."""
    if cluster.world.now_ms >= until_ms:
        return
    for master in cluster.leaders:
        for slave in cluster.nodes:
            if slave is not master and slave.impostor is not None and hasattr(slave, "agent"):
                slave.impostor.call(master, slave)
    cluster.world.after(cluster.world.rng.uniform(50, 1_000), lambda: _attack(cluster, until_ms))


def _switch(leader: Node) -> None:
    with contextlib.suppress(ChangeRejectedError):
        leader._do(leader.agent.on_switch(0, leader.clock_ms))


def _cut(cluster: Cluster, victim: Node, kind: str, span_ms: float) -> None:
    world = cluster.world
    others = [node.number for node in cluster.nodes if node is not victim]
    peers = {
        "cut": [world.rng.choice(others)],
        "control": [CONTROL],
        "isolate": [*others, CONTROL],
        "servers": others,
        "servers-one-way": others,
    }.get(kind, [world.rng.choice([*others, CONTROL])])
    cuts = {(victim.number, peer) for peer in peers} | {(peer, victim.number) for peer in peers}
    if kind == "servers-one-way":
        inwards = world.rng.random() < 0.5
        cuts = {(peer, victim.number) if inwards else (victim.number, peer) for peer in peers}
    if kind == "one-way":
        cuts = {world.rng.choice(sorted(cuts))}
    world.cuts |= cuts
    world.after(span_ms, lambda: world.cuts.difference_update(cuts))
