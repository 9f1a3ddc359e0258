"""The Python of Spark's workers on this machine: the one that runs, with PySpark as pip installed it.

Spark puts an archive of PySpark's sources first on the path, and each process compiles them again: half of its start
time, and every streaming query starts one. So workers are started by a script that drops those archives; PySpark is
installed anyway.

The daemon that forks them is ours, see worker_daemon.py. A setting names it too, but not for the planning of tasks.

The process of a streaming query only asks brokers for offsets, but Arrow loads numpy, which starts a thread per core:
a third of the process's start time. Spark limits its tasks to one thread; this script does it for queries.

Workers allocate and free batches of several megabytes. The C library would return the memory each time and the kernel
would clear it again, so a setting makes it keep some.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SCRIPT: Final = """\
#!/bin/sh
# Python for Spark's workers: PySpark as it is installed, not from Spark's archive of its sources.
set -f
kept=
IFS=:
for each in $PYTHONPATH; do
  case $each in
    {home}/python/lib/*.zip | {home}/jars/*.jar) ;;
    *) kept=${{kept:+$kept:}}$each ;;
  esac
done
unset IFS
set +f
PYTHONPATH=$kept
export PYTHONPATH
case "$1 $2" in
  "-m pyspark.daemon")
    shift 2
    set -- -m rocketq.spark.worker_daemon "$@"
    export MALLOC_MMAP_THRESHOLD_="${{MALLOC_MMAP_THRESHOLD_:-33554432}}"
    export MALLOC_TRIM_THRESHOLD_="${{MALLOC_TRIM_THRESHOLD_:-67108864}}"
    ;;
  "-m pyspark.sql.streaming.python_streaming_source_runner")
    export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"
    ;;
esac
exec {python} "$@"
"""


def worker_python(environ: Mapping[str, str], *, folder: Path | None = None) -> str:
    """The value for PYSPARK_PYTHON; the interpreter itself if PySpark is not part of this Spark."""
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec is not None and spec.origin else None
    own = environ.get("SPARK_HOME")
    if os.name != "posix" or home is None or (own and Path(own).resolve() != home.resolve()):
        return sys.executable
    named = hashlib.sha256(f"{sys.executable}:{home}".encode()).hexdigest()[:12]
    target = (folder or cache_dir(environ, "python")) / named / "python"
    write_script(target, _SCRIPT.format(home=quoted(str(home)), python=quoted(sys.executable)))
    return str(target)


_NAME_BYTES: Final = 48
"""Of a socket in its folder: a UUID with a little around it."""
_PATH_BYTES_MAX: Final = 103
"""On macOS; Linux has four more."""


def worker_conf(folder: Path) -> dict[str, str]:
    """Use Unix sockets, which save a sixth of all CPU time compared with TCP. `folder` must be private to this user,
    because the sockets do not authenticate. Not used if the platform lacks them or the path is too long.
    """
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(folder)) + _NAME_BYTES > _PATH_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


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
