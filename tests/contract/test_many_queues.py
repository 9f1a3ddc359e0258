"""More queues than a process may have open files."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from rocketq.model import NewMessage
from rocketq.store import Store, StoreConfig

SCRIPT = """
    import resource, sys
    from pathlib import Path
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    from rocketq.model import NewMessage
    from rocketq.store import AppendStatus, Store, StoreConfig

    config = StoreConfig(
        root=Path(sys.argv[1]), segment_bytes=1 << 20, message_bytes_max=1 << 16, index_slots=100, index_units=1000,
        queue_file_bytes=2000,
    )
    for _ in range(2):
        with Store.open(config) as store:
            for number in range(400):
                result = store.append(NewMessage(topic="Many", queue_id=number, body=b"x"))
                assert result.status is AppendStatus.OK, result
            counts = {store.read("Many", number, 0).count for number in range(400)}
            print(counts)
"""


def test_a_store_has_more_queues_than_descriptors(tmp_path: Path) -> None:
    """Goal: a mapping that fails for want of descriptors lets idle ones go; every queue is written and read."""
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["{1}", "{2}"]


def test_a_closed_store_holds_no_descriptor(tmp_path: Path) -> None:
    """Goal: files and mappings go back with close(), whenever the garbage collector comes."""
    config = StoreConfig(
        root=tmp_path / "store", segment_bytes=1 << 16, message_bytes_max=1 << 12, index_slots=100, index_units=300
    )
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with Store.open(config) as store:
                for number in range(20):
                    store.append(NewMessage(topic="Some", queue_id=number, body=b"x"))
                    assert store.read("Some", number, 0).count
        assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        gc.enable()
