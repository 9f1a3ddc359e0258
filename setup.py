"""Builds the kernel: each listed module is plain Python, compiled with Cython where a C compiler exists.

The extensions are optional: without a compiler the installation succeeds and the same files are interpreted.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNEL = "src/rocketq/kernel"
COMPILED_MODULES = [
    "buffers",
    "properties",
    "records",
    "queue_units",
    "index_units",
    "batch_properties",
    "appender",
    "filter_program",
    "residency",
    "reader",
    "scanner",
    "frame_header",
    "json_header",
    "binary_header",
    "answers",
    "send_request",
    "frame_ahead",
    "queue_places",
    "send_properties",
    "send_frames",
    "pull_request",
    "pull_frames",
    "hot_frames",
    "hot_link",
    "redeliver",
    "text_column",
    "record_columns",
    "batch_encode",
]

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
        include_dirs=[KERNEL],
        extra_compile_args=["-O3", "-fno-strict-aliasing"],
    )
    for name in COMPILED_MODULES
]

modules = cythonize(extensions, compiler_directives=DIRECTIVES, build_dir="build/cython", annotate=True)
for module in modules:
    module.optional = True  # cythonize() does not carry it over

setup(ext_modules=modules, options={"build_ext": {"parallel": os.cpu_count() or 1}})
