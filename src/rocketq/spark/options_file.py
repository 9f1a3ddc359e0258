"""Options kept in a file, a KEY=VALUE per line: keys and passwords are not for command lines and notebooks."""

from __future__ import annotations

from pathlib import Path

from rocketq.spark.errors import OptionError


def read_options_file(path: Path | str) -> dict[str, str]:
    """The options; OptionError gives the number of an invalid line, not its content. Lines that start with # are
    skipped."""
    options = {}
    for number, line in enumerate(_lines(Path(path)), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{path}: line {number} is not KEY=VALUE")
        options[key.strip()] = value.strip()
    return options


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{path} is no text") from None
