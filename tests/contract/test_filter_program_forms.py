"""The kernel's two forms give the same verdicts, whatever the condition and the properties."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.test_kernel_forms import needs_compiled

ROOT = Path(__file__).parents[2]
DRIVER = """
import random, sys
import rocketq.kernel
from rocketq.filter import BadExpressionError, compile_sql
from tests.unit.filter.conditions import Conditions

print(rocketq.kernel.compiled)
for case in Conditions(random.Random(int(sys.argv[1])), newer=True).cases(1500):
    properties = bytearray(case.properties)
    for _ in range(random.Random(len(properties)).randrange(3)):
        properties[len(properties) // 2 : len(properties) // 2 + 1] = b"\\x01\\x02\\xff5"
    try:
        print(compile_sql(case.condition).verdict(bytes(properties)))
    except BadExpressionError as error:
        print(error)
"""


def run(form: str, seed: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(seed)],
        env={**os.environ, "ROCKETQ_KERNEL": form, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@needs_compiled
@pytest.mark.parametrize("seed", range(4))
def test_both_forms_agree_on_every_condition(seed: int) -> None:
    """Goal: one source, one meaning; each kind of verdict must have been seen."""
    compiled, interpreted = run("compiled", seed), run("interpreted", seed)
    assert (compiled[0], interpreted[0]) == ("True", "False")
    assert compiled[1:] == interpreted[1:]
    assert set("0123") <= set(compiled)
