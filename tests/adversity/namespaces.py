"""A network for each process: namespaces on one bridge, made as root; ways between them can be cut, one by one.

A cut is silent, as a broken cable is: the neighbour's hardware address is made a wrong one, so packets go to nobody.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

CLIENTS = "clients"
"""The test itself, on the bridge."""
NOBODY = "02:00:00:00:00:ff"
_numbers = itertools.count()


def why_not() -> str | None:
    """None where networks can be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "networks are made with `ip`, by root"
    name = f"rq{os.getpid():x}try"
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("netns", "add", name)
        _ip("link", "add", name, "type", "bridge")
        _ip("link", "del", name)
        _ip("netns", "del", name)
        return None
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return "network namespaces and bridges are not allowed here"


class Namespaces:
    """One for each of `names`; the test, on the bridge, reaches all of them."""

    def __init__(self, *names: str) -> None:
        number = os.getpid() + 7 * next(_numbers)
        self._prefix = f"rq{number:x}"
        self._net = f"198.{18 + number // 256 % 2}.{number % 256}"  # addresses for the tests of networks
        self._at = {name: at for at, name in enumerate(names, 1)}
        self._cuts: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        bridge = self._prefix
        try:
            _ip("link", "add", bridge, "type", "bridge")
            _ip("addr", "add", f"{self.addr(CLIENTS)}/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            for name, at in self._at.items():
                space, port = self._space(name), f"{self._prefix}v{at}"
                _ip("netns", "add", space)
                _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
                _ip("link", "set", port, "master", bridge, "up")
                _ip("-n", space, "addr", "add", f"{self.addr(name)}/24", "dev", "eth0")
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for at, name in enumerate(self._at, 1):
            subprocess.run(["ip", "link", "del", f"{self._prefix}v{at}"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._prefix], capture_output=True, check=False)

    def addr(self, name: str) -> str:
        return f"{self._net}.{self._at.get(name, 254)}"

    def command(self, name: str) -> list[str]:
        """What to put before a command so that it runs there; the process stays the one that is started."""
        return ["ip", "netns", "exec", self._space(name)]

    def cut_way(self, source: str, target: str) -> None:
        """What `source` says does not come to `target`; the other way stays open."""
        if (source, target) not in self._cuts:
            self._cuts.add((source, target))
            where, device = self._device(source)
            _ip(*where, "neigh", "replace", self.addr(target), "lladdr", NOBODY, "dev", device, "nud", "permanent")

    def cut(self, one: str, *others: str) -> None:
        """Between `one` and each of `others`, both ways."""
        for other in others:
            self.cut_way(one, other)
            self.cut_way(other, one)

    def heal(self) -> None:
        for source, target in self._cuts:
            where, device = self._device(source)
            _ip(*where, "neigh", "del", self.addr(target), "dev", device)
        self._cuts.clear()

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _device(self, name: str) -> tuple[list[str], str]:
        return ([], self._prefix) if name == CLIENTS else (["-n", self._space(name)], "eth0")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True)
