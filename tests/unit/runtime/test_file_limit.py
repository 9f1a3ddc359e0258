"""How many files a process may have open. In processes of their own: a limit is the whole process's."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _limits_after(soft: int, hard: int, action: str) -> list[str]:
    program = f"""
import resource
from rocketq.runtime.file_limit import file_limit, raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
{action}
print(file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
"""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()


@pytest.mark.parametrize("soft", [256, 4_096])
def test_as_many_as_the_process_may_have(soft: int) -> None:
    """Goal: a server started under a desktop's limit of 256 or 1,024 takes the connections the machine allows."""
    assert _limits_after(soft, 4_096, "raise_file_limit()") == ["4096", "4096"]


def test_a_name_server_raises_its_own() -> None:
    """Goal: it opens no store, which would do it."""
    action = """
import asyncio
from rocketq.nameserver.app import NameServer
from rocketq.nameserver.config import NameServerConfig
async def run():
    server = NameServer(NameServerConfig(host="127.0.0.1", port=0))
    await server.start()
    await server.stop(0)
asyncio.run(run())
"""
    assert _limits_after(256, 4_096, action) == ["4096", "4096"]
