"""Print how many modules each package has and how long they are.

python tools/module_counts.py
"""

from __future__ import annotations

import statistics
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "rocketq"


def main() -> None:
    lengths: dict[str, list[int]] = {}
    for path in PACKAGE.rglob("*.py"):
        package = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "(top level)"
        lengths.setdefault(package, []).append(path.read_text(encoding="utf-8").count("\n"))
    print(f"{'package':<14}{'modules':>8}{'median':>8}{'longest':>9}{'under 40':>10}{'lines':>8}")
    for package, counts in sorted(lengths.items()):
        print_row(package, counts)
    print_row("total", [count for counts in lengths.values() for count in counts])


def print_row(package: str, counts: list[int]) -> None:
    short = sum(1 for count in counts if count < 40)
    print(f"{package:<14}{len(counts):>8}{statistics.median(counts):>8.0f}{max(counts):>9}{short:>10}{sum(counts):>8}")


if __name__ == "__main__":
    main()
