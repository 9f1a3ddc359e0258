"""What callers hand to a store's questions: wrong types are told by name, before the kernel meets them."""

from __future__ import annotations


def require_place(topic: object, queue_id: object, queue_offset: object = 0, *, what: str = "queue_offset") -> None:
    """A queue, and an offset (or whatever number `what` names) in it; TypeError names the wrong one."""
    if type(topic) is not str:
        require_text("topic", topic)
    if type(queue_id) is not int:
        require_number("queue_id", queue_id)
    if type(queue_offset) is not int:
        require_number(what, queue_offset)


def require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {value!r:.60}")


def require_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r:.60}")


def require_count(name: str, value: object) -> None:
    """A number of things, so 0 or more."""
    require_number(name, value)
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} must not be negative: {value}")
