"""NameServer addresses from an HTTP address server, as Apache's brokers and clients get them.

    GET http://<domain>[:8080]/rocketmq/<subgroup>[-<unit>?nofix=1]

The first line of the answer is the list, `host:port;host:port`. It is fetched before the first use and again every two
minutes. A failed fetch keeps the last list.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketq.errors import ConfigError, UnreachableError
from rocketq.remoting.address import split_addr

log = logging.getLogger(__name__)

DEFAULT_DOMAIN: Final = "jmenv.tbsite.net"
DEFAULT_SUBGROUP: Final = "nsaddr"
DOMAIN_VARIABLES: Final = ("rocketmq.namesrv.domain", "ROCKETMQ_NAMESRV_DOMAIN")
SUBGROUP_VARIABLES: Final = ("rocketmq.namesrv.domain.subgroup", "ROCKETMQ_NAMESRV_SUBGROUP")
REFRESH_S: Final = 120.0
_PORT: Final = 8080
_TIMEOUT_S: Final = 3.0
_ANSWER_BYTES_MAX: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class AddressServer:
    """Where the list is."""

    domain: str
    """Host, or host:port."""
    subgroup: str = DEFAULT_SUBGROUP
    unit_name: str | None = None

    def __post_init__(self) -> None:
        for what, text in (("domain", self.domain), ("subgroup", self.subgroup), ("unit name", self.unit_name or "-")):
            if not text or set(text) & set(" /?#@\\\r\n\t"):
                raise ConfigError(f"{text!r} is not a {what} of an address server")

    @classmethod
    def of_environment(cls, unit_name: str | None = None) -> AddressServer | None:
        """From the names of Apache's system properties as environment variables; None when no domain is set."""
        domain = next((os.environ[name] for name in DOMAIN_VARIABLES if os.environ.get(name)), None)
        subgroup = next((os.environ[name] for name in SUBGROUP_VARIABLES if os.environ.get(name)), DEFAULT_SUBGROUP)
        return None if domain is None else cls(domain, subgroup, unit_name)

    @property
    def url(self) -> str:
        host = self.domain if ":" in self.domain else f"{self.domain}:{_PORT}"
        unit = f"-{self.unit_name}?nofix=1" if self.unit_name else ""
        return f"http://{host}/rocketmq/{self.subgroup}{unit}"


def parse_answer(text: str) -> tuple[str, ...]:
    """The addresses in the first line; ConfigError when one is malformed or there is none."""
    line = text.lstrip().partition("\n")[0]
    addrs = [part.strip() for part in line.replace(",", ";").split(";") if part.strip()]
    for addr in addrs:
        split_addr(addr)
    if not addrs:
        raise ConfigError("the answer of the address server has no address")
    return tuple(dict.fromkeys(addrs))


def fetch_addrs(url: str) -> tuple[str, ...]:
    """Fetch the list; blocks for up to 3 s. UnreachableError when there is no usable answer."""
    import http.client  # noqa: PLC0415  few clients need an address server, and these modules are slow to import
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            return parse_answer(response.read(_ANSWER_BYTES_MAX).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        raise UnreachableError(url, f"the address server answered HTTP status {error.code}") from None
    except urllib.error.URLError as error:
        raise UnreachableError(url, f"the address server cannot be reached: {error.reason}") from None
    except (OSError, http.client.HTTPException, ConfigError) as error:
        raise UnreachableError(url, f"the address server gave no list: {error}") from None


class AddressList:
    """The current list. `addrs` fetches it again after two minutes, in the background."""

    def __init__(
        self,
        server: AddressServer,
        *,
        fetch: Callable[[str], tuple[str, ...]] = fetch_addrs,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = server.url
        self._fetch = fetch
        self._now_s = now_s
        self._fetched_s = -REFRESH_S
        self._refreshing: asyncio.Task[None] | None = None
        self.current: tuple[str, ...] = ()

    async def addrs(self) -> tuple[str, ...]:
        """The list; UnreachableError when none was ever fetched."""
        if not self.current:
            await self._refresh(raises=True)
        elif self._is_due() and (self._refreshing is None or self._refreshing.done()):
            self._fetched_s = self._now_s()
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh(raises=False))
        return self.current

    def addrs_blocking(self) -> tuple[str, ...]:
        """As `addrs`, for clients without an event loop."""
        if self._is_due() or not self.current:
            self._fetched_s = self._now_s()
            try:
                self._take(self._fetch(self.url))
            except UnreachableError as error:
                self._keep(error)
                if not self.current:
                    raise
        return self.current

    async def refresh(self) -> bool:
        """Fetch now; returns whether the list changed. A failure is logged."""
        before = self.current
        await self._refresh(raises=False)
        return self.current != before

    async def _refresh(self, *, raises: bool) -> None:
        self._fetched_s = self._now_s()
        try:
            self._take(await asyncio.to_thread(self._fetch, self.url))
        except UnreachableError as error:
            if raises:
                raise
            self._keep(error)

    def _is_due(self) -> bool:
        return self._now_s() - self._fetched_s >= REFRESH_S

    def _take(self, addrs: tuple[str, ...]) -> None:
        if addrs != self.current:
            log.info("NameServer addresses from %s: %s", self.url, ";".join(addrs))
            self.current = addrs

    def _keep(self, error: UnreachableError) -> None:
        log.warning("NameServer addresses were not fetched, keeping %s: %s", ";".join(self.current) or "none", error)
