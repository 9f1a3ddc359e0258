"""Headless Chromium of the system, one console over one cluster; skipped where there is no browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.console import kit

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright (in the extra dev)")
CHROMIUM = os.environ.get("ROCKETQ_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = Path(__file__).parents[2] / "build" / "console"


@pytest.fixture(scope="package")
def browser() -> Iterator[playwright.Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium, or set ROCKETQ_CHROMIUM")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def url(browser: playwright.Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Under a path prefix, as behind a proxy."""
    folder = tmp_path_factory.mktemp("console")
    with kit.cluster() as cluster, kit.console(cluster.name_server_addr, folder, base_path="/mq/") as address:
        yield address


class Watched:
    """A page, and everything that went wrong in it or left the host."""

    def __init__(self, context: playwright.BrowserContext, url: str) -> None:
        self.url = url
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: str) -> playwright.Page:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("main h1")
        return self.page


@pytest.fixture
def watched(browser: playwright.Browser, url: str) -> Iterator[Watched]:
    """Nothing may go wrong in a test's page, and no request may leave the host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", reduced_motion="reduce")
    found = Watched(context, url)
    yield found
    context.close()
    assert found.errors == []
    host = url.partition("/mq/")[0]
    elsewhere = [each for each in found.requests if not each.startswith((host, "data:", "blob:"))]
    assert elsewhere == []
