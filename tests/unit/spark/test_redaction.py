"""What Spark Connect shows of options: names, and no secrets."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from rocketq.spark.sessions import SECRETS, SETTING, hide_secrets

PLAN = r"""
read {
  data_source {
    format: "rocketmq"
    options {
      key: "rocketmq.secretKey"
      value: "Se\"cr'etX"
    }
    options {
      key: "rocketmq.tls.keypassword"
      value: "PasswordX"
    }
    options {
      key: "subscribe"
      value: "Orders"
    }
  }
}
"""


@pytest.mark.parametrize(
    "text",
    [
        PLAN,
        r"query: \"CREATE VIEW v USING rocketmq OPTIONS (subscribe \'Orders\', `rocketmq.secretKey` \'SecretX\')",
        "OPTIONS (subscribe 'Orders', rocketmq.accessKey = 'AccessX', `rocketmq.securityToken` \"TokenX\")",
    ],
    ids=["plan", "sql in a plan", "sql"],
)
def test_secrets_go_and_the_rest_stays(text: str) -> None:
    """Goal: quotes in a secret do not let its end through."""
    shown = re.sub(SECRETS, "*", text)
    assert "X" not in shown
    assert "Orders" in shown


def test_names_alone_are_not_touched() -> None:
    text = 'key: "rocketmq.tls.keyPath"\n value: "/k.pem"'
    assert re.sub(SECRETS, "*", text) == text
    assert re.search(SECRETS, "rocketmq.secretKey is missing") is None


class PaperSession:
    def __init__(self, own: str | None) -> None:
        self.settings = {} if own is None else {SETTING: own}
        self.conf = self

    def get(self, key: str, default: str) -> str:
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value


@pytest.mark.parametrize(("own", "then"), [(None, SECRETS), ("", SECRETS), ("mine", "mine")])
def test_a_pattern_of_the_servers_own_stays(own: str | None, then: str) -> None:
    session = PaperSession(own)
    hide_secrets(cast(Any, session))
    assert session.settings == {SETTING: then}
