"""What the README shows is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rocketq.testing.embedded import EmbeddedCluster

README = Path(__file__).parents[2] / "README.md"


def test_the_store_of_the_readme_works(tmp_path: Path) -> None:
    printed = _run(_snippet("from rocketq.store").replace("/tmp/my-store", str(tmp_path / "store")))
    assert printed.count("b'hello'") == 2


def test_the_client_of_the_readme_sends_and_receives(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: the first program anybody copies works."""
    printed = _run(_snippet("from rocketq.client").replace("127.0.0.1:9876", rocketq_cluster.name_server_addr))
    assert printed == "SEND_OK\nnew b'a book'\n"


def _snippet(imported: str) -> str:
    (found,) = (text for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.S) if imported in text)
    return str(found)


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_two_commands_stand_at_the_top() -> None:
    lines = README.read_text().splitlines()
    assert lines[3].startswith("make demo")
    assert lines[4].startswith("make test")
