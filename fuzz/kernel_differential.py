"""Fuzz the kernel's two forms against each other: `python fuzz/kernel_differential.py --seconds 60 [--seed 1]`.

tests/contract/kernel_driver.py runs with the compiled and with the interpreted kernel on the same seeds. For every seed
both live to the end and print the same lines: a digest of each result and of all memory after it. The first difference
is printed with its seed, which is enough to see it again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

DRIVER = Path(__file__).parent.parent / "tests" / "contract" / "kernel_driver.py"


def start(form: str, seed: int, operations: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "ROCKETQ_KERNEL": form}
    arguments = [sys.executable, str(DRIVER), str(seed), str(operations)]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def difference(seed: int, operations: int) -> str | None:
    """What differs for a seed, or None."""
    forms = ("compiled", "interpreted")
    running = [start(form, seed, operations) for form in forms]
    outputs = [process.communicate() for process in running]
    lines = [output.splitlines() for output, _ in outputs]
    for form, process, printed, (_, errors) in zip(forms, running, lines, outputs, strict=True):
        if printed[:1] != [f"kernel {form}"]:
            return f"{form} was not loaded: {errors}"
        if process.returncode != 0:
            return f"{form} died with {process.returncode} after: {printed[-1]}\n{errors}"
    for compiled, interpreted in itertools.zip_longest(lines[0][1:], lines[1][1:]):
        if compiled != interpreted:
            return f"compiled    {compiled}\ninterpreted {interpreted}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: by the clock)")
    parser.add_argument("--operations", type=int, default=3000, help="operations per seed")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000_000
    until, first = time.monotonic() + options.seconds, seed
    while True:
        found = difference(seed, options.operations)
        if found is not None:
            print(f"seed {seed}, {options.operations} operations:\n{found}")
            return 1
        seed += 1
        if time.monotonic() >= until:
            break
    print(f"seeds {first}..{seed - 1}, {options.operations} operations each: the two forms agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
