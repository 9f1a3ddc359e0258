"""Frozen values with named fields, many of them declared and few of them used in any one process.

A dataclass compiles its methods when it is declared, half a millisecond each: the headers and bodies of the protocol
were a third of what it took to start a broker. Here a class gets them with the first value that is made of it.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, make_dataclass
from typing import Any, NoReturn, TypeVar, dataclass_transform

_Class = TypeVar("_Class")
_MADE_LATER = ("__init__", "__repr__", "__eq__", "__hash__")


class Value:
    """Equal when all fields are; cannot be changed."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made as any other value is: the class that reads one may not have made a value before."""
        return _rebuild, (type(self), {item.name: getattr(self, item.name) for item in fields(self)})  # type: ignore[arg-type]


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def value(cls: type[_Class]) -> type[_Class]:
    """What `dataclass(frozen=True, slots=True, kw_only=True)` makes of a Value's declaration."""
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or else its signature is worked out, which takes longer than all the rest
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    setattr(made, "__init__", _first_init)  # noqa: B010  # its own, since a parent may have been used before
    return made


def _first_init(self: Any, **given: Any) -> None:
    _complete(type(self))
    self.__init__(**given)  # the one that was just made


def _complete(cls: type[Any]) -> None:
    """Its methods are taken from a plain dataclass of the same fields, which goes away again."""
    declared = [(item.name, item.type, item) for item in fields(cls)]
    plain = make_dataclass(cls.__name__, declared, frozen=True, kw_only=True)
    for name in _MADE_LATER:
        setattr(cls, name, vars(plain)[name])


def _rebuild(cls: type[_Class], given: dict[str, Any]) -> _Class:
    return cls(**given)
