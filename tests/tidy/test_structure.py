"""Structure rules that a program can check: import direction, purity of modules, names, broad catches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "rocketq"

# From the top down. A package imports only packages of lower layers; packages of one layer never import each other.
LAYERS = [
    {"cli"},
    {"testing"},
    {"spark", "console"},
    {"broker", "nameserver", "client"},
    {"replication"},
    {"store", "remoting", "columns"},
    {"access"},
    {"protocol", "filter"},
    {"kernel", "runtime"},
    {"model"},
    {"errors"},
]
HEIGHT = {name: len(LAYERS) - at for at, layer in enumerate(LAYERS) for name in layer}

PURE_PACKAGES = {"model", "kernel", "protocol", "filter", "access"}
PURE_EXCEPT = {
    "kernel/loading.py",
    "kernel/primitives.py",
    "kernel/cython_shim.py",
    *(f"access/{name}.py" for name in ("plain_files", "sealing", "user_file", "audit", "service")),
}
IMPURE = {"asyncio", "socket", "threading", "time", "os", "random"}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc"}

STORE_INTERNALS = {
    "announcer",
    "disk",
    "dispatcher",
    "flusher",
    "health",
    "index",
    "log",
    "points",
    "queries",
    "queues",
    "retention",
    "upkeep",
    "warmer",
    "writer",
}
FAST_PATH = "broker/fastpath/"
"""Works with the store's internals, which Store.fast_path_access() hands out."""
KNOWS_THE_STORE = {"broker/app.py", "broker/composition.py"}
"""Open or pass on the store itself; everything else in these packages has one of its interfaces."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def inside(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def package_of(path: Path) -> str:
    """The package (or top-level module) that a file belongs to; "" for the top-level package itself."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first.startswith("__") else first


every_module = pytest.mark.parametrize("path", MODULES, ids=inside)
every_placed_module = pytest.mark.parametrize("path", [path for path in MODULES if package_of(path)], ids=inside)
every_user_of_the_store = pytest.mark.parametrize(
    "path",
    [path for path in MODULES if package_of(path) != "store" and not inside(path).startswith(FAST_PATH)],
    ids=inside,
)
every_pure_module = pytest.mark.parametrize(
    "path",
    [path for path in MODULES if package_of(path) in PURE_PACKAGES and inside(path) not in PURE_EXCEPT],
    ids=inside,
)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of everything a file imports, inside functions too; what only types need counts as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide where they go"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@every_placed_module
def test_imports_go_down_only(path: Path) -> None:
    """Goal: lower layers know nothing of higher ones, neighbours nothing of each other."""
    own = package_of(path)
    assert own in HEIGHT, f"{own} has no layer: add it to LAYERS"
    wrong = []
    for line, name in imports_of(path):
        if name.split(".")[0] != "rocketq":
            continue
        other = name.split(".")[1] if "." in name else ""
        if other.startswith("__"):  # the package's own version and the like
            continue
        if other != own and HEIGHT.get(other, len(LAYERS) + 1) >= HEIGHT[own]:
            wrong.append(f"{path.name}:{line} imports {name}")
    assert not wrong, wrong


@every_pure_module
def test_pure_modules_know_no_time_threads_sockets_or_chance(path: Path) -> None:
    """Goal: what decides gets time, randomness and bytes as arguments, so that it can be tested and simulated."""
    wrong = [f"{inside(path)}:{line} imports {name}" for line, name in imports_of(path) if name.split(".")[0] in IMPURE]
    assert not wrong, wrong


def test_no_module_has_a_name_that_says_nothing() -> None:
    """Goal: a module is named for what it holds."""
    assert [path for path in MODULES if NAMELESS & {path.stem, *path.relative_to(PACKAGE).parts}] == []


@every_module
def test_broad_catches_say_why_on_their_line(path: Path) -> None:
    """Goal: `except Exception` only where a loop or a boundary must survive, and the line says which."""
    lines = path.read_text().splitlines()
    wrong = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        broad = any(kind is None or (isinstance(kind, ast.Name) and kind.id == "Exception") for kind in caught)
        comment = lines[node.lineno - 1].partition("#")[2]
        if broad and not comment.replace("noqa", "").strip(" :ABLE0123456789"):
            wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {lines[node.lineno - 1].strip()}")
    assert not wrong, wrong


@every_user_of_the_store
def test_only_the_store_touches_its_internals(path: Path) -> None:
    """Goal: the store is reached through its three interfaces, whatever it is made of."""
    wrong = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute) or node.attr not in STORE_INTERNALS:
            continue
        owner = node.value
        name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        if name.strip("_") == "store":
            wrong.append(f"{inside(path)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, wrong


@every_user_of_the_store
def test_broker_and_replication_know_the_interfaces_of_the_store_only(path: Path) -> None:
    """Goal: a port says by its type what it may do with the store."""
    if package_of(path) not in {"broker", "replication"} or inside(path) in KNOWS_THE_STORE:
        return
    names = {"rocketq.store.Store", "rocketq.store.store.Store"}
    assert [f"{path.name}:{line}" for line, name in imports_of(path) if name in names] == []


def test_every_package_has_a_layer() -> None:
    """Goal: a new package is given its place before it is used."""
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(HEIGHT)
