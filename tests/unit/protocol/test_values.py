"""Frozen values: what a dataclass would do, with methods made at the first use."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace

import pytest

from rocketq.protocol.values import Value, value


@value
class Place(Value):
    name: str
    number: int = 0
    marks: tuple[str, ...] = field(default_factory=tuple)


@value
class FarPlace(Place):
    """One with a field more."""

    distance: int


def test_a_class_gets_its_methods_with_its_first_value() -> None:
    """Goal: declaring costs next to nothing; using one costs once."""

    @value
    class Fresh(Value):
        name: str

    before = Fresh.__init__
    Fresh(name="a")
    assert Fresh.__init__ is not before
    made = Fresh.__init__
    assert Fresh(name="a") == Fresh(name="a") != Fresh(name="b")
    assert Fresh.__init__ is made


def test_values_are_compared_hashed_and_shown_by_their_fields() -> None:
    """Goal: bodies are keys of tables, and tests compare them."""
    assert Place(name="a", number=1) == Place(name="a", number=1)
    assert Place(name="a") != Place(name="b")
    assert Place(name="a") != FarPlace(name="a", distance=0)
    assert len({Place(name="a"), Place(name="a"), Place(name="b")}) == 2
    assert repr(Place(name="a")) == "Place(name='a', number=0, marks=())"
    assert repr(FarPlace(name="a", distance=3)) == "FarPlace(name='a', number=0, marks=(), distance=3)"


def test_a_child_of_a_used_class_has_its_own_methods() -> None:
    """Goal: what was made for the parent knows nothing of the child's fields."""
    Place(name="a")
    far = FarPlace(name="b", distance=7)
    assert (far.name, far.distance) == ("b", 7)
    assert FarPlace(name="b", distance=7) != FarPlace(name="b", distance=8)


def test_values_cannot_be_changed_and_take_no_other_fields() -> None:
    """Goal: frozen, with slots, fields by name only and none left out."""
    place = Place(name="a")
    with pytest.raises(FrozenInstanceError):
        place.name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del place.name
    assert not hasattr(place, "__dict__")
    with pytest.raises(TypeError, match="name"):
        Place()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="other"):
        Place(name="a", other=1)  # type: ignore[call-arg]


def test_values_are_copied_replaced_and_pickled() -> None:
    """Goal: they go to Spark's workers, which may read one before they make one."""
    place = Place(name="a", number=2, marks=("x",))
    assert copy.copy(place) == copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place
    assert replace(place, number=3) == Place(name="a", number=3, marks=("x",))
    assert [item.name for item in fields(Place)] == ["name", "number", "marks"]  # type: ignore[arg-type]
