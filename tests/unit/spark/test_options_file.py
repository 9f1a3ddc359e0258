"""Files of options: what is read of them, and that what is wrong is told without showing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.spark.errors import OptionError
from rocketq.spark.options import read_options_file


def test_a_line_is_an_option(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text(
        "# of the shop\n\n rocketmq.accessKey = shop \nrocketmq.secretKey=a=b#c\n  # rocketmq.tls.enable=true\n"
    )
    assert read_options_file(str(file)) == {"rocketmq.accessKey": "shop", "rocketmq.secretKey": "a=b#c"}


@pytest.mark.parametrize("line", ["SecretX", "=SecretX"])
def test_a_line_that_is_none_is_named_and_not_shown(tmp_path: Path, line: str) -> None:
    """Goal: it may be a password that went astray."""
    file = tmp_path / "options"
    file.write_text(f"rocketmq.accessKey=shop\n{line}\n")
    with pytest.raises(OptionError) as caught:
        read_options_file(file)
    assert str(caught.value) == f"{file}: line 2 is not KEY=VALUE"


def test_what_is_no_text_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none cannot be read: No such file"):
        read_options_file(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="is no text"):
        read_options_file(tmp_path / "binary")
