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
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocketq.spark.shims import cache_dir, quoted, write_script

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
