"""Log lines: form, identity, repeated lines, and levels at run time."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketq.cli.logs import REPEATS_MAX, AddIdentity, JsonFormatter, RepeatFilter, set_up_logs
from rocketq.errors import ConfigError
from rocketq.runtime.log_levels import apply_levels, parse_levels


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def logger_to(out: io.StringIO, now_s: list[float]) -> logging.Logger:
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(AddIdentity(lambda: ("broker-0", "master")))
    handler.addFilter(RepeatFilter(lambda: now_s[0]))
    logger = logging.getLogger("rocketq.test-logs")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    return logger


def test_a_json_line_has_server_role_and_error() -> None:
    out = io.StringIO()
    logger = logger_to(out, [0.0])
    try:
        raise ValueError("torn")
    except ValueError:
        logger.exception("reading %s failed", "a\nb")
    line = json.loads(out.getvalue())
    assert (line["level"], line["broker"], line["role"], line["msg"]) == (
        "ERROR", "broker-0", "master", "reading a\nb failed"
    )  # fmt: skip
    assert line["error"].endswith("ValueError: torn")
    assert line["ts"].endswith("Z")


def test_repeated_lines_are_suppressed_and_counted() -> None:
    out, now_s = io.StringIO(), [0.0]
    logger = logger_to(out, now_s)
    for number in range(REPEATS_MAX + 25):
        logger.warning("dropping %d", number)
    logger.warning("another line")
    assert len(out.getvalue().splitlines()) == REPEATS_MAX + 1
    now_s[0] = 1.5
    logger.warning("dropping %d", 99)
    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["msg"], last["suppressed"]) == ("dropping 99 (suppressed: 25)", 25)


def test_a_file_gets_text_lines_with_the_server(root: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "broker.log"
    set_up_logs("info", path, "text", lambda: ("broker-1", "slave"))
    logging.getLogger("rocketq.broker").info("started")
    logging.getLogger("rocketq.nameserver.app").info("started")
    first, second = path.read_text().splitlines()
    assert first.endswith("INFO    broker-1 slave rocketq.broker: started")
    assert " namesrv namesrv rocketq.nameserver.app: started" in second
    with pytest.raises(ConfigError, match="--log-file"):
        set_up_logs("info", path / "below-a-file.log")


def test_levels_change_and_go_back() -> None:
    store = logging.getLogger("rocketq.store")
    apply_levels("", "rocketq.store=debug")
    assert store.level == logging.DEBUG
    apply_levels("rocketq.store=DEBUG", "rocketq.remoting=ERROR")
    assert (store.level, logging.getLogger("rocketq.remoting").level) == (logging.NOTSET, logging.ERROR)
    apply_levels("rocketq.remoting=ERROR", "")
    assert parse_levels("warning") == {"rocketq": "WARNING"}


@pytest.mark.parametrize("text", ["rocketq.store=LOUD", "root=INFO", "rocketq.=INFO", "x"])
def test_bad_levels_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="logLevel"):
        parse_levels(text)
