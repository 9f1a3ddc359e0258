"""How many files this process may have open: sockets and mappings hold a descriptor each."""

from __future__ import annotations

import resource

_ENOUGH = 1 << 20


def file_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> None:
    """Ask for as many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
