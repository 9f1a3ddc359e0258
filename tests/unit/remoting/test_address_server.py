"""NameServer addresses from an address server: its URL, its answers, and when it is asked."""

from __future__ import annotations

import asyncio

import pytest

from rocketq.client.name_servers import address_list
from rocketq.errors import ConfigError, UnreachableError
from rocketq.remoting.address_server import AddressList, AddressServer, parse_answer


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (AddressServer("names.example"), "http://names.example:8080/rocketmq/nsaddr"),
        (AddressServer("names.example:80", "eu"), "http://names.example:80/rocketmq/eu"),
        (AddressServer("n:1", "eu", "unit1"), "http://n:1/rocketmq/eu-unit1?nofix=1"),
    ],
)
def test_the_url_is_apaches(server: AddressServer, url: str) -> None:
    assert server.url == url


@pytest.mark.parametrize("domain", ["", "a b", "a/b", "user@host", "a?b"])
def test_a_domain_that_would_change_the_url_is_rejected(domain: str) -> None:
    with pytest.raises(ConfigError):
        AddressServer(domain)


def test_the_first_line_is_the_list() -> None:
    assert parse_answer(" 10.0.0.1:9876; 10.0.0.2:9876,10.0.0.1:9876 \r\nother") == ("10.0.0.1:9876", "10.0.0.2:9876")
    for text in ("", "\n", "<html>", "host", "a:b"):
        with pytest.raises(ConfigError):
            parse_answer(text)


def test_a_list_is_fetched_again_after_two_minutes_and_kept_when_that_fails() -> None:
    now_s = 0.0
    answers: list[tuple[str, ...] | None] = [None, ("a:1",), None, ("b:1",)]

    def fetch(url: str) -> tuple[str, ...]:
        answer = answers.pop(0)
        if answer is None:
            raise UnreachableError(url, "down")
        return answer

    async def main() -> None:
        nonlocal now_s
        addresses = AddressList(AddressServer("n"), fetch=fetch, now_s=lambda: now_s)
        with pytest.raises(UnreachableError):
            await addresses.addrs()
        assert await addresses.addrs() == ("a:1",)
        now_s = 119
        assert await addresses.addrs() == ("a:1",)
        assert len(answers) == 2
        for later_s, expected in ((120, "a:1"), (240, "b:1")):
            now_s = later_s
            await addresses.addrs()
            assert addresses._refreshing is not None
            await addresses._refreshing
            assert await addresses.addrs() == (expected,)

    asyncio.run(main())


def test_given_addresses_and_the_environment_win(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN", "rocketmq.namesrv.domain"):
        monkeypatch.delenv(name, raising=False)
    server = AddressServer("n")
    assert address_list("127.0.0.1:1", server) is None
    assert address_list(None, None) is None
    monkeypatch.setenv("rocketmq.namesrv.domain", "apache.example")
    monkeypatch.setenv("rocketmq.namesrv.domain.subgroup", "eu")
    found = address_list(None, None)
    assert found is not None
    assert found.url == "http://apache.example:8080/rocketmq/eu"
    assert (address_list(None, server) or found).url == "http://n:8080/rocketmq/nsaddr"
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert address_list(None, server) is None
