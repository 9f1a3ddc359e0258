"""What the README shows is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_python_snippet_of_the_readme_runs(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    code = snippet.replace("/tmp/my-store", str(tmp_path / "store"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("b'hello'") == 2


def test_the_two_commands_stand_at_the_top() -> None:
    lines = README.read_text().splitlines()
    assert lines[3].startswith("make demo")
    assert lines[4].startswith("make test")
