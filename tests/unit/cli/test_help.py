"""The help of each command: complete lines in lists, and a description for each option."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from rocketq.cli.main import main

_WIDTH = 45
"""What click leaves for a description beside the longest command name on a terminal of 80 columns."""


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(("rocketq", *path)), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, (*path, name))


COMMANDS = dict(_commands(main))


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_not_cut_off(name: str) -> None:
    text = COMMANDS[name].get_short_help_str(limit=_WIDTH)
    assert text
    assert not text.endswith("..."), f"{name}: the first sentence of the help is longer than {_WIDTH} characters"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_has_a_description(name: str) -> None:
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option) and not each.hidden]
    assert [each.name for each in options if not each.help] == []
