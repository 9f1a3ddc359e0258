"""Apache's operator tool in one JVM for many commands: starting one for each would take most of the time."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from . import processes
from .release import Release

COMMAND_SECONDS_MAX = 60.0
HEAP_MB = 192
BETWEEN_ARGUMENTS = "\x1f"
END_OF_OUTPUT = "\x1e"
_STACK_TRACE = re.compile(r"^(\w+\.)+\w*(Exception|Error)\b", re.MULTILINE)


class ToolFailure(AssertionError):
    """The tool printed an exception, or ended, or did not end."""


class MqAdmin:
    """Commands against one NameServer; an exception in what they print is a failure."""

    def __init__(
        self, release: Release, nameserver_addr: str, work: Path, properties: Mapping[str, str] | None = None
    ) -> None:
        """`properties` are system properties of the JVM."""
        self._properties = [f"-D{key}={value}" for key, value in (properties or {}).items()]
        self.release = release
        self.home = work / f"tools-{release.version}"
        self._nameserver_addr = nameserver_addr
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        (self.home / "conf" / "logback_tools.xml").write_text("<configuration/>", encoding="utf-8")
        command = [*self.release.java(heap_mb=HEAP_MB, home=self.home), *self._properties, "Tools"]
        with (self.home / "tools.log").open("wb") as log:
            self._process = processes.start(
                command,
                log=log,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=self.home,
                env={"ROCKETMQ_HOME": str(self.home)},
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line.decode(errors="replace").rstrip("\r\n"))
        self._lines.put(None)

    def __call__(self, *arguments: str, fails: bool = False) -> str:
        """What the tool prints for a command; with `fails` it must be an exception."""
        self._begin(arguments)
        printed = "\n".join(self._until_end(arguments))
        if (_STACK_TRACE.search(printed) is not None) is not fails:
            raise ToolFailure(f"mqadmin {' '.join(arguments)} printed\n{printed}")
        return printed

    def first_match(self, pattern: str, *arguments: str) -> re.Match[str]:
        """What a command that never ends prints at last; the tool can do nothing else afterwards."""
        self._begin(arguments)
        while True:
            line = self._next_line(arguments, [], time.monotonic() + COMMAND_SECONDS_MAX)
            if (match := re.search(pattern, line)) is not None:
                return match

    def _begin(self, arguments: tuple[str, ...]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        line = BETWEEN_ARGUMENTS.join([*arguments, "-n", self._nameserver_addr])
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def _until_end(self, arguments: tuple[str, ...]) -> list[str]:
        lines: list[str] = []
        deadline = time.monotonic() + COMMAND_SECONDS_MAX
        while (line := self._next_line(arguments, lines, deadline)) != END_OF_OUTPUT:
            lines.append(line)
        return lines

    def _next_line(self, arguments: tuple[str, ...], before: list[str], deadline: float) -> str:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            line = None
        if line is None:
            said = "\n".join(before)
            raise ToolFailure(f"mqadmin {' '.join(arguments)} ended or hangs, and had printed\n{said}")
        return line


def matches(pattern: str, text: str) -> re.Match[str]:
    """The place where it is; a pattern that is nowhere shows the text."""
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, f"{pattern} is not in\n{text}"
    return found


def columns(text: str, *, starting: str) -> list[list[str]]:
    """The words of every printed line that starts with a word."""
    return [line.split() for line in text.splitlines() if line.split()[:1] == [starting]]
