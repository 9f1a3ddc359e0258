"""Where Spark is to run, checked before Spark is asked: its own answer to a slip is long and late."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from rocketq.spark.errors import AwayError, OptionError

FORMS: Final = "local[N], local-cluster[N,cores,MB], spark://host:port, yarn or k8s://url"
_LOCAL: Final = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?$")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]$")
_STANDALONE: Final = re.compile(r"spark://([^,/\s]+:\d+(,[^,/\s]+:\d+)*)$")
_CONNECT: Final = re.compile(r"sc://([^:/;\s]+|\[[0-9a-fA-F:]+\])(:\d+)?(/.*)?$")
_CONNECT_PORT: Final = 15002
_YARN_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_SECONDS: Final = 5.0


def is_local(master: str) -> bool:
    return master.startswith("local")


def require_master(master: str) -> None:
    """OptionError for a master URL that Spark does not know, AwayError if it does not answer."""
    if master == "yarn" and not any(os.environ.get(name) for name in _YARN_FOLDERS):
        raise OptionError(f"master yarn needs {' or '.join(_YARN_FOLDERS)}: the folder of the cluster's settings")
    if _LOCAL.match(master) or _LOCAL_CLUSTER.match(master) or master == "yarn" or master.startswith("k8s://"):
        return
    found = _STANDALONE.match(master)
    if found is None:
        raise OptionError(f"master {master!r} is none that Spark knows: {FORMS}")
    addrs = found.group(1).split(",")
    if not any(_answers(addr) for addr in addrs):
        raise AwayError(f"no Spark master answers at {' or '.join(addrs)}")


def require_remote(remote: str) -> None:
    """The same for Spark Connect."""
    if is_local(remote):
        require_master(remote)
        return
    found = _CONNECT.match(remote)
    if found is None:
        raise OptionError(f"remote {remote!r} is no address of Spark Connect: sc://host:port")
    addr = found.group(1) + (found.group(2) or f":{_CONNECT_PORT}")
    if not _answers(addr):
        raise AwayError(f"no Spark Connect server answers at {addr}")


def _answers(addr: str) -> bool:
    host, _, port = addr.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS):
            return True
    except (OSError, OverflowError):
        return False
