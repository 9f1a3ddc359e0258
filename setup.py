"""Builds the kernel: each listed module is plain Python, compiled with Cython where a C compiler exists.

The extensions are optional: without a compiler the installation succeeds and the same files are interpreted.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNEL = Path("src/rocketq/kernel")
# A kernel module is a .py file with its C types in a .pxd beside it; primitives are C, and Python for the other form.
COMPILED_MODULES = sorted(path.stem for path in KERNEL.glob("*.pxd") if path.stem != "primitives")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "infer_types": False,
    "freethreading_compatible": False,
}

extensions = [
    Extension(
        f"rocketq.kernel.{name}",
        [f"{KERNEL}/{name}.py"],
        include_dirs=[str(KERNEL)],
        extra_compile_args=["-O3", "-fno-strict-aliasing", "-g0"],
    )
    for name in COMPILED_MODULES
]

modules = cythonize(extensions, compiler_directives=DIRECTIVES, build_dir="build/cython", annotate=True)
for module in modules:
    module.optional = True  # cythonize() does not carry it over

setup(ext_modules=modules, options={"build_ext": {"parallel": os.cpu_count() or 1}})
