"""Constants of the kernel stand in the .pxd files only; the interpreted form reads them there."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from rocketq.kernel import loading
from rocketq.kernel.cython_shim import enum_values
from rocketq.kernel.loading import MODULES

KERNEL = Path(loading.__file__).parent


@pytest.mark.parametrize("name", MODULES)
def test_public_constants_have_the_values_of_their_pxd(name: str) -> None:
    """Goal: one declaration, the same names and values in both forms."""
    module = importlib.import_module(f"rocketq.kernel.{name}")
    text = (KERNEL / f"{name}.pxd").read_text().replace("\ncdef enum:", "\nprivate:")
    for constant, value in enum_values(text).items():
        assert getattr(module, constant) == value, constant


def test_numbers_and_shifts_are_read() -> None:
    text = (
        "cimport x\n\ncpdef enum:\n    A = -3\n    B = 8 << 20  # bytes\n    C = 50_000\n\ncdef enum:\n    D = 0x10\n"
    )
    assert enum_values(text) == {"A": -3, "B": 8 << 20, "C": 50_000, "D": 16}


@pytest.mark.parametrize("value", ["A | 1", "sizeof(int)", "", "1 << B"])
def test_other_expressions_are_errors(value: str) -> None:
    """Goal: a constant that only C understands is noticed at import, not as a missing name later."""
    with pytest.raises(ValueError, match="an enum value"):
        enum_values(f"cpdef enum:\n    X = {value}\n")
