"""Secrets among options, kept out of what Spark Connect shows.

A server of Spark Connect puts the text of every plan, options and all, into its pages and event logs. Spark redacts
there what a setting of the session matches, which is empty by default. (Without Spark Connect options are not shown.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.redaction.string.regex"
SECRETS: Final = (
    r"(?i)(?:accessKey|secretKey|securityToken|keyPassword)"
    r"""(?:"\s+value: "(?:[^"\\]|\\.)*"|[`"'\\]*[\s=]*\\?['"][^'"\\]*\\?['"])"""
)
"""As an option of a plan's text, and in SQL."""


def hide_secrets(session: SparkSession) -> None:
    """Unless the session or its server sets another pattern."""
    if not session.conf.get(SETTING, ""):
        session.conf.set(SETTING, SECRETS)
