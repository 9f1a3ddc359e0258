"""The kernel's two forms, compiled and interpreted, are one kernel; and which one runs is what was asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import rocketq
import rocketq.kernel
from rocketq.kernel.loading import CHOICE_VARIABLE, MODULES

PACKAGE = Path(rocketq.__file__).parent
DRIVER = Path(__file__).parent / "kernel_driver.py"
HAVE_COMPILED = all(
    any((PACKAGE / "kernel" / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES) for name in MODULES
)
needs_compiled = pytest.mark.skipif(not HAVE_COMPILED, reason="no compiled kernel: no C compiler was found at install")

OPERATIONS = 600


def run(*arguments: str, form: str | None, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, with ROCKETQ_KERNEL set to `form` (None: not set)."""
    environment = {name: value for name, value in os.environ.items() if name != CHOICE_VARIABLE}
    if form is not None:
        environment[CHOICE_VARIABLE] = form
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def drive(form: str, seed: int) -> list[str]:
    """What the driver printed with one form, after it said that this form was loaded."""
    done = run(str(DRIVER), str(seed), str(OPERATIONS), form=form)
    lines = done.stdout.splitlines()
    assert lines[:1] == [f"kernel {form}"], done.stderr
    assert done.returncode == 0, f"{form}, seed {seed}: died with {done.returncode} after {lines[-1]!r}\n{done.stderr}"
    return lines[1:]


@needs_compiled
@pytest.mark.parametrize("seed", range(1, 7))
def test_both_forms_do_the_same_to_the_last_byte(seed: int) -> None:
    """Goal: every result and all memory after every random operation are equal, on sound and on damaged bytes."""
    compiled, interpreted = drive("compiled", seed), drive("interpreted", seed)
    for ours, theirs in zip(compiled, interpreted, strict=True):
        assert ours == theirs
    assert len(compiled) == OPERATIONS


def copy_without_extensions(target: Path) -> None:
    shutil.copytree(PACKAGE, target / "rocketq", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))


def test_asking_for_the_compiled_kernel_without_one_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Goal: a build that silently fell back to the slow form is noticed at import."""
    copy_without_extensions(tmp_path)
    done = run("-c", "import rocketq.kernel", form="compiled", path=tmp_path)
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "were not compiled: admission, answers" in done.stderr
    assert "C compiler" in done.stderr


@pytest.mark.parametrize("form", [None, "", "interpreted"])
def test_without_compiled_modules_the_interpreted_kernel_is_loaded(tmp_path: Path, form: str | None) -> None:
    """Goal: an installation without a C compiler works, all of it."""
    copy_without_extensions(tmp_path)
    code = "import rocketq.kernel, rocketq.store; print(rocketq.kernel.compiled, rocketq.__file__)"
    done = run("-c", code, form=form, path=tmp_path)
    assert done.stdout.split() == ["False", str(tmp_path / "rocketq" / "__init__.py")], done.stderr


@needs_compiled
def test_one_missing_compiled_module_means_none_is_used(tmp_path: Path) -> None:
    """Goal: forms are never mixed, since compiled classes cannot work on interpreted ones."""
    shutil.copytree(PACKAGE, tmp_path / "rocketq", ignore=shutil.ignore_patterns("scanner.*.so", "__pycache__"))
    code = "import rocketq.kernel as k, rocketq.kernel.records as r; print(k.compiled, r.__file__.endswith('.py'))"
    assert run("-c", code, form=None, path=tmp_path).stdout.split() == ["False", "True"]
    done = run("-c", "import rocketq.kernel", form="compiled", path=tmp_path)
    assert "were not compiled: scanner" in done.stderr


def test_unknown_form_is_an_error_that_names_the_choices() -> None:
    """Goal: a typing mistake in the environment does not choose a form by accident."""
    done = run("-c", "import rocketq.kernel", form="nonsense")
    assert done.returncode == 1
    assert "ROCKETQ_KERNEL=nonsense: say compiled or interpreted" in done.stderr


@needs_compiled
@pytest.mark.parametrize(("form", "compiled"), [(None, True), ("compiled", True), ("interpreted", False)])
def test_the_form_asked_for_is_loaded_in_every_module(form: str | None, compiled: bool) -> None:
    """Goal: `compiled` tells the truth about each module, not only about the wish."""
    code = (
        "import importlib, rocketq.kernel as k; from rocketq.kernel.loading import MODULES; "
        "print(k.compiled, *{importlib.import_module(f'rocketq.kernel.{m}').__file__.endswith('.py') for m in MODULES})"
    )
    assert run("-c", code, form=form).stdout.split() == [str(compiled), str(not compiled)]


def test_interpreted_kernel_leaves_the_users_cython_alone() -> None:
    """Goal: the stand-in for `import cython` lives only while the kernel is imported; nor does the finder stay."""
    before = "import sys, types; mine = sys.modules['cython'] = types.ModuleType('cython'); "
    code = "import sys; hooks = list(sys.meta_path); import rocketq.kernel; assert sys.meta_path == hooks; "
    untouched = run("-c", before + code + "print(sys.modules['cython'] is mine)", form="interpreted")
    assert untouched.stdout == "True\n", untouched.stderr
    absent = run("-c", code + "print('cython' in sys.modules)", form="interpreted")
    assert absent.stdout == "False\n", absent.stderr


def test_real_cython_can_be_imported_after_the_interpreted_kernel() -> None:
    """Goal: a user's own `import cython` gets the real module, not our stand-in."""
    pytest.importorskip("Cython", reason="Cython is not installed")
    code = "import rocketq.kernel, cython; print(hasattr(cython, 'declare'), hasattr(cython, 'inline'))"
    done = run("-W", "error", "-c", code, form="interpreted")
    assert done.stdout == "True True\n", done.stderr


def test_this_run_uses_the_form_its_environment_names() -> None:
    """Goal: a suite run for one form proves that it ran with that form."""
    wanted = os.environ.get(CHOICE_VARIABLE, "")
    expected = {"compiled": True, "interpreted": False, "": HAVE_COMPILED}[wanted]
    assert rocketq.kernel.compiled is expected
