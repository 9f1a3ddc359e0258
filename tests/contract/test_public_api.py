"""The public API is the recorded one: no name, method or argument is lost unnoticed.

After an intended change: `.venv/bin/python -m tests.contract.test_public_api` writes the file anew.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rocketq
import rocketq.client
from rocketq.client import public
from rocketq.protocol import failures

RECORDED = Path(__file__).with_name("public_api.txt")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def described() -> str:
    lines = []
    for name in sorted(rocketq.__all__):
        lines += _lines(name, getattr(rocketq, name))
    return "".join(f"{line}\n" for line in lines)


def _lines(name: str, thing: object) -> list[str]:
    if not inspect.isclass(thing):
        return [f"{name}: {type(thing).__name__}"]
    bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
    if issubclass(thing, enum.Enum):
        return [f"{name}({bases}): {', '.join(member.name for member in thing)}"]
    lines = [f"{name}({bases}){_signature(thing)}"]
    for attribute, value in sorted(inspect.getmembers(thing)):
        if attribute.startswith("_") or attribute in dir(Exception):
            continue
        if next(base for base in thing.__mro__ if attribute in vars(base)).__module__.startswith("rocketq.kernel"):
            continue  # inherited members look different in the kernel's two forms
        if callable(value):
            lines.append(f"    {attribute}{_signature(value)}")
        elif isinstance(inspect.getattr_static(thing, attribute), property):
            lines.append(f"    {attribute}")
    return lines


def _signature(thing: object) -> str:
    if inspect.isclass(thing) and dataclasses.is_dataclass(thing):
        return f"({', '.join(field.name for field in dataclasses.fields(thing))})"
    try:
        return _ADDRESS.sub("", str(inspect.signature(thing)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


def test_the_public_api_is_the_recorded_one() -> None:
    recorded, now = RECORDED.read_text().splitlines(), described().splitlines()
    lost = [line for line in recorded if line not in now]
    added = [line for line in now if line not in recorded]
    assert (lost, added) == ([], []), f"if this is intended: python -m {__name__}"


def test_names_are_listed_once_and_are_the_same_everywhere() -> None:
    assert [name for name, count in collections.Counter(dir(rocketq)).items() if count > 1] == []
    assert sorted(rocketq.__all__) == rocketq.__all__ == public.__all__
    for name in rocketq.__all__:
        assert getattr(rocketq, name) is getattr(rocketq.client, name) is getattr(public, name)


def test_errors_end_in_error_and_old_names_are_deprecated() -> None:
    for name in rocketq.__all__:
        thing = getattr(rocketq, name)
        if inspect.isclass(thing) and issubclass(thing, BaseException):
            assert name.endswith("Error"), name
    for kind in failures.BrokerError.by_code.values():
        assert kind.__name__.endswith("Error")
    with pytest.warns(DeprecationWarning, match="use AccessDeniedError"):
        assert rocketq.AclDenied is rocketq.AccessDeniedError
    with pytest.warns(DeprecationWarning, match="use TopicNotFoundError"):
        assert failures.TopicNotFound is rocketq.TopicNotFoundError
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = rocketq.Nothing


def test_the_errors_page_has_every_error_with_code_and_retriable() -> None:
    """Goal: what a user catches can be looked up: its code, whether a retry can help, and what to do."""
    page = (Path(__file__).parents[2] / "docs/reference/errors.md").read_text()
    rows = {cells[1].strip(" `"): [cell.strip() for cell in cells[2:5]] for line in page.splitlines()
            if (cells := line.split("|")) and len(cells) == 6 and cells[1].startswith(" `")}  # fmt: skip
    public = (getattr(rocketq, name) for name in rocketq.__all__)
    expected = {kind for kind in public if inspect.isclass(kind) and issubclass(kind, BaseException)}
    expected |= set(failures.BrokerError.by_code.values())
    assert {kind.__name__ for kind in expected} == set(rows)
    for kind in expected:
        code, retriable, advice = rows[kind.__name__]
        found = next((str(number) for number, one in failures.BrokerError.by_code.items() if one is kind), "")
        assert not found or code == found, kind
        assert retriable in ("varies", "yes" if inspect.getattr_static(kind, "retriable") is True else "no"), kind
        assert advice, kind


def test_importing_the_package_imports_no_client() -> None:
    """Goal: the command line and the broker start without the client."""
    program = "import rocketq, sys; print([name for name in sys.modules if name.startswith('rocketq.')])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


if __name__ == "__main__":
    RECORDED.write_text(described())
