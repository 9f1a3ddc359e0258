"""`--watch`: a verb that shows something, again and again."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from rocketq.cli.numbers import FiniteRange

_Command = TypeVar("_Command", bound=Callable[..., Any])


def watchable(command: _Command) -> _Command:
    """Adds `--watch SECONDS`: clear the screen and show it again until Ctrl-C."""

    @click.option("--watch", "watch_s", metavar="SECONDS", type=FiniteRange(0.1), help="Show it again so often.")
    @functools.wraps(command)
    def wrapped(*args: Any, watch_s: float | None, **given: Any) -> Any:
        if watch_s is None:
            return command(*args, **given)
        with suppress(KeyboardInterrupt):
            while True:
                click.clear()
                click.echo(f"{time.strftime('%H:%M:%S')}, every {watch_s:g} s, Ctrl-C ends\n")
                command(*args, **given)
                time.sleep(watch_s)

    return wrapped  # type: ignore[return-value]
