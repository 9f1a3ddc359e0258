"""Write docs/reference/metrics.md from the metric families in the code. A test compares the page with the code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rocketq.broker.stats import families
from rocketq.cli import exporter_names
from rocketq.nameserver import observability
from rocketq.runtime.metrics import Family

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
_HEAD = """\
# Metrics

This page is generated from the code by `tools/metrics_reference.py`.

Every series of a broker has the labels `cluster`, `node_type`, `node_id` (the broker name) and `broker_id`, and those
of the setting `metricsLabel`. Labels without a value are left out. Histograms have `_bucket`, `_count` and `_sum`.
Families of POP have series once the broker serves POP requests.
"""


def page() -> str:
    return "\n".join(
        [
            _HEAD,
            *_table("Families of Apache RocketMQ 5.3.3", families.APACHE),
            *_table("Families of RocketQ", families.OURS),
            *_table("NameServer", observability.FAMILIES),
            *_table("Exporter (`rocketq exporter`)", exporter_names.FAMILIES),
        ]
    )


def _table(title: str, listed: Iterable[Family]) -> list[str]:
    rows = [f"## {title}\n", "| name | type | labels | meaning |", "|---|---|---|---|"]
    for family in listed:
        labels = ", ".join(f"`{label}`" for label in family.labels) or "-"
        bounds = f" Buckets: {', '.join(f'{bound:g}' for bound in family.buckets)}." if family.buckets else ""
        text = family.help.replace("|", "\\|")
        rows.append(f"| `{family.name}` | {family.kind.value} | {labels} | {text}{bounds} |")
    return [*rows, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
