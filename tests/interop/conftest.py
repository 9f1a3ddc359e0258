"""Apache releases and NameServers for the tests: fetched and started once, skipped with a reason where that fails.

What servers and clients wrote into their logs during a test that failed is kept under build/interop-logs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .cache import Unavailable
from .kept_logs import keep_logs
from .release import obtain

StartBroker = Callable[[str], ApacheBroker]
KEPT_LOGS = Path(__file__).parents[2] / "build" / "interop-logs"
_work_folder = pytest.StashKey[Path]()


@pytest.fixture(scope="session", autouse=True)
def _remember_work_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    request.session.stash[_work_folder] = tmp_path_factory.getbasetemp()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    work = item.session.stash.get(_work_folder, None)
    if report.failed and work is not None:
        kept = keep_logs(work, KEPT_LOGS / item.name, since=call.start)
        if kept:
            report.sections.append(("logs", "\n".join(map(str, kept))))
    return report


@pytest.fixture(scope="session")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ApacheNameServer]]:
    """A running NameServer of a version; one of each serves the whole session."""
    running: dict[str, ApacheNameServer] = {}
    with ExitStack() as stack:

        def get(version: str) -> ApacheNameServer:
            if version not in running:
                try:
                    release = obtain(version)
                except Unavailable as reason:
                    pytest.skip(str(reason))
                server = ApacheNameServer(release, work=tmp_path_factory.mktemp(f"nameserver-{version}-"))
                running[version] = stack.enter_context(server)
            return running[version]

        yield get


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def broker_port() -> int:
    """One port for all brokers of a test, ours and theirs: message ids hold it."""
    return free_broker_port()


@pytest.fixture
def apache(
    nameserver: Callable[[str], ApacheNameServer], broker_port: int, store_dir: Path, tmp_path: Path
) -> StartBroker:
    """A broker of a version on the test's store directory, to be used in a `with`. One at a time."""
    count = iter(range(100))

    def broker(version: str) -> ApacheBroker:
        work = tmp_path / f"apache-{next(count)}-{version}"
        return ApacheBroker(nameserver(version), port=broker_port, store=store_dir, work=work)

    return broker
