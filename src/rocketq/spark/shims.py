"""Small scripts that stand in for programs, kept in the user's cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def write_script(target: Path, content: str) -> None:
    """An executable file of these lines. Concurrent writers are safe: each renames a complete file."""
    if target.is_file() and target.read_text() == content and os.access(target, os.X_OK):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=target.parent)
    with open(handle, "w") as file:
        file.write(content)
    os.chmod(fresh, 0o755)
    os.replace(fresh, target)


def cache_dir(environ: Mapping[str, str], name: str) -> Path:
    """The user's cache folder, otherwise a private temporary folder."""
    own = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    folder = Path(own or tempfile.gettempdir()) / f"rocketq-{os.getuid()}" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix=f"rocketq-{name}-"))


def quoted(text: str) -> str:
    """As one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"
