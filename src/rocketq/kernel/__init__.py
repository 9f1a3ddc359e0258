"""The hot loops: byte formats, addresses and counters. Python owns files, threads and policy.

Each module is one plain Python file in Cython's pure mode, with its C types in the .pxd beside it. Where a C compiler
was found at install the modules are compiled, otherwise the same files are interpreted. ROCKETQ_KERNEL=compiled or
interpreted chooses; `compiled` is True where the compiled form was loaded.
"""

from rocketq.kernel.loading import load_kernel

compiled: bool = load_kernel()
