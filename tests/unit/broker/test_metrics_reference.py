"""The reference page of metrics is generated from the code."""

from __future__ import annotations

from tools.metrics_reference import PAGE, page


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run tools/metrics_reference.py"
