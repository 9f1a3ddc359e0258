"""What is loaded when something starts: nothing that it may never need. Which modules, not how long they take."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FAILOVER = (
    "rocketq.broker.ha.fenced_replicas",
    "rocketq.replication.agent",
    "rocketq.replication.etcd_gateway",
    "httpx",
)
_PARSERS = ("lark", "rocketq.filter.parser", "tomllib")
_WEB = ("urllib.request", "http.client", "email")
_OTHERS = ("numpy", "pandas", "pyarrow", "pyspark", "rich", "multiprocessing")
_SERVERS = ("rocketq.broker", "rocketq.nameserver", "rocketq.store")

NOT_NEEDED = {
    "rocketq.cli.main": ("asyncio", "ssl", "rocketq.protocol", *_SERVERS, *_PARSERS, *_WEB, *_OTHERS),
    "rocketq.cli.commands.up": ("rocketq.client", "rocketq.testing.etcd", *_FAILOVER, *_PARSERS, *_WEB, *_OTHERS),
    "rocketq.cli.commands.broker": ("rocketq.client", "rocketq.nameserver", *_FAILOVER, *_PARSERS, *_WEB, *_OTHERS),
    "rocketq.cli.commands.namesrv": ("rocketq.client", "rocketq.broker", *_FAILOVER, *_PARSERS, *_WEB, *_OTHERS),
    "rocketq.broker.app": ("click", "rocketq.client", "rocketq.nameserver", *_FAILOVER, *_PARSERS, *_WEB, *_OTHERS),
    "rocketq.client.public": (*_SERVERS, *_PARSERS, *_WEB, *_OTHERS),
    "rocketq.client.blocking": (
        "asyncio",
        "rocketq.client.session",
        "rocketq.client.public",
        *_SERVERS,
        *_PARSERS,
        *_WEB,
    ),
}


@pytest.mark.parametrize("module", NOT_NEEDED)
def test_a_start_loads_nothing_it_may_never_need(module: str) -> None:
    """Goal: a broker acknowledges its first message soon, and every worker of Spark begins at once."""
    command = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=120, check=True)
    loaded = set(done.stdout.split())
    assert module in loaded
    assert [name for name in NOT_NEEDED[module] if name in loaded] == []


@pytest.mark.parametrize("package", ["rocketq.client", "rocketq.remoting"])
def test_a_package_gives_its_public_names_when_they_are_asked_for(package: str) -> None:
    """Goal: names, `import *` and modules beside them are found as if all had been loaded at once."""
    command = f"""
import importlib, sys
package = importlib.import_module("{package}")
assert "{package}.public" not in sys.modules
try:
    package.nothing_of_that_name
except AttributeError as error:
    assert "nothing_of_that_name" in str(error)
else:
    raise AssertionError("a name that nobody has")
public = importlib.import_module("{package}.public")
for name in public.__all__:
    assert getattr(package, name) is getattr(public, name), name
assert set(public.__all__) <= set(dir(package))
found = dict()
exec("from {package} import *", found)
assert set(public.__all__) <= set(found)
"""
    subprocess.run([sys.executable, "-c", command], timeout=120, check=True)


def test_a_module_of_a_package_is_loaded_without_the_others() -> None:
    """Goal: modules that name their neighbours do not load everything around themselves."""
    command = "import sys, rocketq.client.session; assert 'rocketq.client.public' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], timeout=120, check=True)
