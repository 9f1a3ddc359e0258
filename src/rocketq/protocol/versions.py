"""The `version` of a header: which release wrote it.

From 4.0.0 on every patch level has two numbers (snapshot, release), a minor ten patch levels, a major ten minors.
"""

from __future__ import annotations

from typing import Final

_MAJOR_BASES: Final = {4: 213, 5: 413}
_OLD_NAMES: Final = {28: "V3_0_7_SNAPSHOT", 37: "V3_0_11", 62: "V3_1_8_SNAPSHOT", 121: "V3_4_9"}

HIGHER_VERSION: Final = 612


def release_version(major: int, minor: int, patch: int) -> int:
    """The number of a release of the 4.x or 5.x line."""
    if major not in _MAJOR_BASES or not 0 <= minor <= 9 or not 0 <= patch <= 9:
        raise ValueError(f"no such release: {major}.{minor}.{patch}")
    return _MAJOR_BASES[major] + 20 * minor + 2 * patch


def version_name(version: int) -> str:
    """The release as operators see it, such as V4_7_1; the number where it has no name."""
    if version in _OLD_NAMES:
        return _OLD_NAMES[version]
    for major, base in sorted(_MAJOR_BASES.items(), reverse=True):
        if base - 1 <= version < base + 199:
            minor, rest = divmod(version - base + 1, 20)
            return f"V{major}_{minor}_{rest // 2}" + ("" if rest % 2 else "_SNAPSHOT")
    return "HIGHER_VERSION" if version >= HIGHER_VERSION else str(version)


V4_7_1: Final = release_version(4, 7, 1)
V4_9_4: Final = release_version(4, 9, 4)
V5_0_0: Final = release_version(5, 0, 0)

OUR_VERSION: Final = V4_7_1
"""What we put into headers: at least 232, or clients with SQL92 subscriptions never pull."""

REGISTER_BODY_SINCE: Final = 37
"""From here on a registration has a RegisterBrokerBody."""
CONSUMER_CALLS_SINCE: Final = 28
"""From here on a client takes offset resets and status calls."""
RETRY_LIMIT_SINCE: Final = 121
"""From here on a request's own maxReconsumeTimes counts."""
RUNNING_INFO_SINCE: Final = 62
"""From here on a client answers running info and direct consumption."""
SQL_SINCE: Final = 232
"""From here on a broker filters by expression."""
STRICT_JSON_SINCE: Final = V4_9_4
"""From here on a client expects routes as strict JSON."""
MAPPINGS_SINCE: Final = V5_0_0
"""From here on a compressed registration ends with queue mappings."""
SIGNS_ALL_FIELDS_SINCE: Final = 400
"""From here on a client signs every ext field, `_UNIQUE_KEY_QUERY` too."""
