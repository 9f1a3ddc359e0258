"""Reading ahead: every offset once, in order, whatever answers look like."""

from __future__ import annotations

import random

import pytest

from rocketq.client.blocking.queue_reader import ReadAhead


def serve(ahead: ReadAhead, chance: random.Random, count_max: int, sizes: int = 10) -> list[int]:
    """A broker that answers in any order, as much as it likes; offsets as they come out."""
    waiting, out = [], []
    while not ahead.is_done:
        waiting += ahead.due()
        step = waiting.pop(chance.randrange(len(waiting)))
        if chance.random() < 0.2:
            ahead.failed(step)
        else:
            count = min(step.high - step.low, chance.randint(1, count_max))
            body = b"".join(n.to_bytes(4, "big") * sizes for n in range(step.low, step.low + count))
            ahead.answered(step, body, step.low + count)
        for body in ahead.ready():
            out += [int.from_bytes(body[at : at + 4], "big") for at in range(0, len(body), 4 * sizes)]
    return out


@pytest.mark.parametrize("seed", range(30))
def test_every_offset_comes_out_once_and_in_order(seed: int) -> None:
    """Goal: short answers, failures and answers out of order lose and repeat nothing."""
    chance = random.Random(seed)
    low, count, depth = chance.randrange(1000), chance.randrange(400), chance.randint(1, 8)
    ahead = ReadAhead(low, low + count, depth=depth, count_max=chance.randint(1, 64), bytes_max=4096)
    assert serve(ahead, chance, chance.randint(1, 64)) == list(range(low, low + count))


def test_no_more_pulls_than_allowed_are_in_flight() -> None:
    """Goal: memory is bounded by depth, and a finished step makes room for the next."""
    ahead = ReadAhead(0, 10_000, depth=3, count_max=100, bytes_max=1 << 20)
    first = ahead.due()
    assert [(step.low, step.high) for step in first] == [(0, 100), (100, 200), (200, 300)]
    assert ahead.due() == []
    ahead.answered(first[1], b"x", 200)
    assert (ahead.ready(), ahead.due()) == ([], [])  # the first step is what everybody waits for
    ahead.answered(first[0], b"w", 100)
    assert ahead.ready() == [b"w", b"x"]
    assert [step.low for step in ahead.due()] == [300, 400]


def test_steps_grow_and_shrink_with_the_size_of_messages() -> None:
    """Goal: an answer is filled, whatever messages weigh, and a broker's own smaller limit is learnt."""
    ahead = ReadAhead(0, 100_000, depth=1, count_max=4096, bytes_max=1 << 20)
    (step,) = ahead.due()
    ahead.answered(step, bytes(256 * 300), step.high)  # 300 bytes each
    ahead.ready()
    (step,) = ahead.due()
    assert 2800 < step.high - step.low < 3500
    ahead.answered(step, bytes(32 * 300), step.low + 32)  # no more than 32, far below the bytes
    (same,) = ahead.due()
    assert same is step
    ahead.answered(step, b"", step.high)
    ahead.ready()
    (step,) = ahead.due()
    assert step.high - step.low == 32


def test_an_answer_without_messages_passes_what_no_filter_wants() -> None:
    """Goal: a stretch that matches nothing ends."""
    ahead = ReadAhead(0, 10, depth=1, count_max=100, bytes_max=1000)
    (step,) = ahead.due()
    ahead.answered(step, b"", 10)
    assert ahead.ready() == []
    assert ahead.is_done
