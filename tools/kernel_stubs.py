"""Write the stubs of the kernel: what each module gives Python, with types, from its .pxd and .py.

The .pxd says which attributes are public and which functions are C's alone, the .py has the rest of the signatures.
An untyped parameter has the type of the attribute with its name. What neither file can say is in kernel_types.py.

    python tools/kernel_stubs.py            writes the stubs that differ
    python tools/kernel_stubs.py --check    names them, and fails
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
KERNEL: Final = ROOT / "src" / "rocketq" / "kernel"
sys.path.insert(0, str(ROOT / "src"))

from kernel_types import TYPES  # noqa: E402

from rocketq.kernel.cython_shim import enum_values  # noqa: E402

C_TYPES: Final = {
    "double": "float",
    "bint": "bool",
    "str": "str",
    "bytes": "bytes",
    "bytearray": "bytearray",
    "void": "None",
}
IMPORTED_FROM: Final = {
    "Buffer": "typing_extensions",
    "Callable": "collections.abc",
    "Collection": "collections.abc",
    "Container": "collections.abc",
    "Iterable": "collections.abc",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "Any": "typing",
    "Final": "typing",
    "Transport": "asyncio",
    "AnswerSlots": "rocketq.kernel.ports",
    "ConnectionOwner": "rocketq.kernel.ports",
    "StorePort": "rocketq.kernel.ports",
    "Self": "typing",
    "final": "typing",
}
_INTEGER: Final = re.compile(r"(cython\.)?(const )?(unsigned )?(int|longlong|ulonglong|long long|Py_ssize_t|uint)")
_WORD: Final = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass
class PxdClass:
    """What a .pxd declares of a class."""

    base: str = ""
    attributes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """(access, C type) by name; no access for those that only C sees."""
    methods: dict[str, tuple[str, str]] = field(default_factory=dict)
    """("def", "cdef" or "cpdef", C type of what it returns) by name."""


@dataclass
class Pxd:
    """What a .pxd declares."""

    constants: dict[str, int]
    functions: dict[str, str]
    """C types of what functions that only C sees return, by name."""
    classes: dict[str, PxdClass]


def read_pxd(path: Path) -> Pxd:
    """Parse a .pxd as far as stubs need it."""
    text = path.read_text()
    pxd = Pxd(enum_values(re.sub(r"^cdef enum:\n(?:    .*\n)+", "", text, flags=re.MULTILINE)), {}, {})
    current: PxdClass | None = None
    for line in _statements(text):
        if match := re.match(r"cdef class (\w+)(?:\((\w+)\))?:", line):
            current = pxd.classes[match[1]] = PxdClass(match[2] or "")
        elif match := re.match(r"( *)(cdef|cpdef) ([^(]*[ *])?(\w+)\(", line):
            returned = (match[3] or "").strip()
            if match[1] and current is not None:
                current.methods[match[4]] = match[2], returned
            else:
                pxd.functions[match[4]] = returned
        elif current is not None and (match := re.match(r"    cdef (public |readonly )?(.*)$", line)):
            first, *more = match[2].split(", ")
            kind, name = first.rsplit(" ", 1)
            for each in (name, *more):
                current.attributes[each.split("[")[0]] = (match[1] or "").strip(), kind
        elif not line.startswith(" "):
            current = None
    return pxd


def _statements(text: str) -> Iterator[str]:
    """Lines without comments; one that goes on within parentheses is joined."""
    whole = ""
    for line in text.splitlines():
        whole += line.split("#")[0].rstrip() if not whole else " " + line.split("#")[0].strip()
        if whole.count("(") == whole.count(")"):
            if whole:
                yield whole
            whole = ""


def _is_standard(module: str) -> bool:
    return module in {"asyncio", "collections.abc", "typing"}


def _is_third_party(module: str) -> bool:
    return module == "typing_extensions"


def _is_own(module: str) -> bool:
    return module.startswith("rocketq.")


class StubWriter:
    """The stub of one module."""

    def __init__(self, name: str, homes: dict[str, str], functions: dict[str, str]) -> None:
        self.used: set[str] = set()
        self.pxd = read_pxd(KERNEL / f"{name}.pxd")
        self.unknown: list[str] = []
        self._name = name
        self._homes = homes
        self._functions = functions
        self._tree = ast.parse((KERNEL / f"{name}.py").read_text())

    def write(self) -> str:
        """The text of the stub."""
        lines = [*self._constants()]
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef) and node.name not in self.pxd.functions and node.name[0] != "_":
                lines += self._function(node, self._name, "")
            elif isinstance(node, ast.ClassDef):
                lines += self._class(node)
        text = "\n".join(lines) + "\n"
        head = f'"""Written by tools/kernel_stubs.py from {self._name}.pxd and {self._name}.py."""\n'
        return _formatted("\n".join([head, *self._imports(text)]) + "\n" + text)

    def _imports(self, text: str) -> Iterator[str]:
        wanted: dict[str, set[str]] = {}
        for word in set(_WORD.findall(text)) - self.pxd.classes.keys():
            if home := IMPORTED_FROM.get(word) or self._homes.get(word):
                wanted.setdefault(home, set()).add(word)
        for group in (_is_standard, _is_third_party, _is_own):
            lines = [f"from {home} import {', '.join(sorted(wanted[home]))}" for home in sorted(wanted) if group(home)]
            yield from [*lines, ""] if lines else []

    def _constants(self) -> Iterator[str]:
        for name, value in self.pxd.constants.items():
            yield f"{name}: Final = {value}"
        for node in self._tree.body:
            if not isinstance(node, ast.Assign):
                continue
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            for each in targets:
                kind = "bytes" if isinstance(getattr(node.value, "value", None), bytes) else "int"
                if isinstance(each, ast.Name) and not isinstance(node.value, ast.Dict) and not each.id.startswith("_"):
                    yield f"{each.id}: Final[{kind}]"

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        declared = self.pxd.classes[node.name]
        path = f"{self._name}.{node.name}"
        members = [*self._attributes(declared, path), *self._methods(node, declared, path)]
        yield ""
        if any(ast.unparse(each) == "cython.final" for each in node.decorator_list):
            yield "@final"
        yield f"class {node.name}({declared.base}):" if declared.base else f"class {node.name}:"
        yield from members or ["    ..."]

    def _attributes(self, declared: PxdClass, path: str) -> Iterator[str]:
        for name, (access, kind) in declared.attributes.items():
            if access == "public":
                yield f"    {name}: {self._type(f'{path}.{name}', kind)}"
        for name, (access, kind) in declared.attributes.items():
            if access == "readonly":
                yield "    @property"
                yield f"    def {name}(self) -> {self._type(f'{path}.{name}', kind)}: ..."

    def _methods(self, node: ast.ClassDef, declared: PxdClass, path: str) -> Iterator[str]:
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and declared.methods.get(method.name, ("def", ""))[0] != "cdef":
                yield from self._function(method, path, "    ", declared)

    def _function(self, node: ast.FunctionDef, owner: str, indent: str, of: PxdClass | None = None) -> Iterator[str]:
        path = f"{owner}.{node.name}"
        spec = node.args
        given = [*spec.args]
        defaults = [None] * (len(given) - len(spec.defaults)) + list(spec.defaults)
        parts = [
            "self" if of is not None and index == 0 else self._parameter(argument, default, path, of)
            for index, (argument, default) in enumerate(zip(given, defaults, strict=True))
        ]
        parts += [f"*{spec.vararg.arg}: {self._type(f'{path}.{spec.vararg.arg}', '')}"] if spec.vararg else []
        parts += [f"**{spec.kwarg.arg}: {self._type(f'{path}.{spec.kwarg.arg}', '')}"] if spec.kwarg else []
        for each in node.decorator_list:
            yield f"{indent}@{ast.unparse(each)}"
        yield f"{indent}def {node.name}({', '.join(parts)}) -> {self._returned(node, path, of)}: ..."

    def _parameter(self, argument: ast.arg, default: ast.expr | None, path: str, of: PxdClass | None) -> str:
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        key = f"{path}.{argument.arg}"
        if not kind and key not in TYPES and of is not None:
            for owner, declared in self._with_base(path.rpartition(".")[0], of):
                for name in (argument.arg, f"_{argument.arg}"):
                    if name in declared.attributes:
                        kind, key = declared.attributes[name][1], f"{owner}.{name}"
        named = f"{argument.arg}: {self._type(key, kind)}"
        match default:
            case None:
                return named
            case ast.Constant(None):
                return f"{named} | None = None" if "None" not in named else f"{named} = None"
        return f"{named} = ..."

    def _with_base(self, owner: str, of: PxdClass) -> Iterator[tuple[str, PxdClass]]:
        yield owner, of
        if of.base:
            yield f"{self._name}.{of.base}", self.pxd.classes[of.base]

    def _returned(self, node: ast.FunctionDef, path: str, of: PxdClass | None) -> str:
        if node.name == "__init__":
            return "None"
        if node.name == "__len__":
            return "int"
        if f"{path}()" in TYPES:
            return self._type(f"{path}()", "")
        if of is not None and (declared := of.methods.get(node.name, ("", ""))[1]):
            return self._type(path, declared)
        values = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None]
        if not values:
            return "None"
        kinds = {self._value_type(value, node, path, of) for value in values}
        if len(kinds) == 1 and (kind := kinds.pop()):
            return kind
        return self._type(f"{path}()", "")

    def _value_type(self, value: ast.expr, node: ast.FunctionDef, path: str, of: PxdClass | None) -> str:
        """The type of what is returned, where it is plain."""
        match value:
            case ast.Constant(bool()) | ast.Compare() | ast.UnaryOp(ast.Not()):
                return "bool"
            case ast.Constant(int()) | ast.BinOp():
                return "int"
            case ast.Name(name) if name in self.pxd.constants:
                return "int"
            case ast.Attribute(ast.Name("self"), name) if of is not None and name in of.attributes:
                return self._type(f"{path.rpartition('.')[0]}.{name}", of.attributes[name][1])
            case ast.Call(ast.Name("min" | "max" | "len")):
                return "int"
            case ast.Call(ast.Name(name)) if name in self._functions:
                return self._type(path, self._functions[name])
            case ast.Call(ast.Attribute(ast.Name("self"), name)) if of is not None and name in of.methods:
                return self._type(path, of.methods[name][1])
            case ast.BoolOp(_, values):
                kinds = {self._value_type(each, node, path, of) for each in values}
                return kinds.pop() if len(kinds) == 1 else ""
            case ast.IfExp(_, first, second):
                kinds = {self._value_type(each, node, path, of) for each in (first, second)}
                return kinds.pop() if len(kinds) == 1 else ""
            case ast.Name(name):
                declared = {each.arg: each.annotation for each in node.args.args}
                for each in ast.walk(node):
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        declared[each.target.id] = each.annotation
                return self._type(path, ast.unparse(found)) if (found := declared.get(name)) is not None else ""
        return ""

    def _type(self, key: str, kind: str) -> str:
        """The Python type for one of C or Cython; what they leave open comes from the table."""
        if key in TYPES:
            self.used.add(key)
            return TYPES[key]
        if kind in self._homes:
            return kind
        if _INTEGER.fullmatch(kind):
            return "int"
        if known := C_TYPES.get(kind.removeprefix("cython.")):
            return known
        if kind == "cython.const[cython.uchar][::1]":
            return "Buffer"
        self.unknown.append(f"{key} ({kind or 'untyped'})")
        return "Any"


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(KERNEL / "any.pyi"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def stubs() -> dict[Path, str]:
    """The stub of every kernel module, by its file; LookupError for what has no type, or a type that nothing has."""
    names = sorted(path.stem for path in KERNEL.glob("*.pxd"))
    pxds = {name: read_pxd(KERNEL / f"{name}.pxd") for name in names}
    homes = {each: f"rocketq.kernel.{name}" for name, pxd in pxds.items() for each in pxd.classes}
    functions = {each: kind for pxd in pxds.values() for each, kind in pxd.functions.items()}
    written, unknown, unused = {}, [], set(TYPES)
    for name in names:
        if name == "primitives":
            continue
        writer = StubWriter(name, homes, functions)
        written[KERNEL / f"{name}.pyi"] = writer.write()
        unknown += writer.unknown
        unused -= writer.used
    if unknown or unused:
        lines = [
            *(f"no type in kernel_types.py: {each}" for each in unknown),
            *(f"unused there: {each}" for each in unused),
        ]
        raise LookupError("\n".join(lines))
    return written


def main() -> int:
    stale = {path: text for path, text in stubs().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(text)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
