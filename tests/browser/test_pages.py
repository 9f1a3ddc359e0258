"""The pages as people use them: with the mouse, the keyboard, in the dark, in Chinese, on a phone."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.contract.console.kit import DEAD, ORDERS, ApiClient

from .conftest import PICTURES, Watched, playwright

PAGES = {
    "overview": "c/default",
    "topics": "c/default/topics",
    "messages": "c/default/topics/Orders",
    "queues": "c/default/topics/Orders?tab=queues",
    "live": "c/default/topics/Orders?tab=live",
    "groups": "c/default/groups",
    "group": "c/default/groups/billing",
    "members": "c/default/groups/billing?tab=members",
    "dlq": "c/default/dlq",
    "workbench": "c/default/dlq/billing",
    "retries": "c/default/retry",
    "delays": "c/default/delays",
    "transactions": "c/default/transactions",
    "trace": "c/default/trace",
    "brokers": "c/default/brokers",
    "broker": "c/default/brokers/broker-0",
    "config": "c/default/brokers/broker-0?tab=config",
    "alerts": "c/default/alerts",
    "access": "c/default/access",
    "spark": "c/default/spark",
    "audit": "audit",
    "settings": "settings",
    "api": "api",
}
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "zh": {"locale": "zh-CN"},
    "phone": {"viewport": {"width": 360, "height": 740}},
}
_SPEC = importlib.util.spec_from_file_location(
    "console_texts", Path(__file__).parents[2] / "tools" / "console_texts.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
_TOOL = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_TOOL)
STATIC, texts = _TOOL.STATIC, _TOOL.texts
CONTRAST = Path(__file__).with_name("contrast.js").read_text()


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_in_every_look(browser: playwright.Browser, url: str, look: str) -> None:
    """Goal: no error, no text that is too faint, no unlabelled control, nothing wider than the screen."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    options = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", "reduced_motion": "reduce"} | LOOKS[look]
    context = browser.new_context(**options)
    watched = Watched(context, url)
    faults = {}
    for name, path in PAGES.items():
        page = watched.open(path)
        page.wait_for_timeout(250)
        page.screenshot(path=PICTURES / f"{name}-{look}.png")
        found = page.evaluate(CONTRAST)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth + 1"):
            found.append("the page is wider than the screen")
        if found:
            faults[name] = found
    context.close()
    assert faults == {}
    assert watched.errors == []


def test_the_first_load_is_small(browser: playwright.Browser, url: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    urls: dict[str, str] = {}
    sizes: dict[str, float] = {}
    session.on("Network.requestWillBeSent", lambda event: urls.setdefault(event["requestId"], event["request"]["url"]))
    session.on(
        "Network.loadingFinished",
        lambda event: sizes.setdefault(urls.get(event["requestId"], ""), event["encodedDataLength"]),
    )
    page.goto(url)
    page.wait_for_selector("main h1")
    page.wait_for_timeout(500)
    context.close()
    found = {address: size for address, size in sizes.items() if not address.startswith("data:")}
    assert sum(found.values()) < 100 << 10
    assert len(found) < 15, list(found)


def test_scripts_in_messages_and_names_do_not_run(watched: Watched) -> None:
    page = watched.open("c/default/topics/Orders?text=onerror")
    page.wait_for_selector("tbody tr")
    page.click("tbody tr td.body")
    page.wait_for_selector("aside.drawer")
    for kind in ("Text", "Hex", "JSON"):
        page.click(f"aside.drawer button:text-is('{kind}')")
    assert "<script>" in page.inner_text("aside.drawer pre")
    watched.open("c/default/topics?q=%3Cimg%20src=x%20onerror=hacked=3%3E")
    page.goto(f"{watched.url}c/default/groups/%3Cimg%20src=x%20onerror=hacked=4%3E")
    page.wait_for_selector("main .notice")
    assert page.evaluate("window.hacked") is None
    watched.errors[:] = [each for each in watched.errors if "404" not in each]  # the group does not exist


def test_a_page_is_its_address(watched: Watched) -> None:
    page = watched.open("c/default/topics")
    page.fill("[data-filter]", "Qui")
    playwright.expect(page.locator("tbody tr")).to_have_count(1)
    assert "q=Qui" in page.url
    page.reload()
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == 1
    page.click("tbody tr a.name")
    page.wait_for_selector("h1:has-text('Quiet')")
    page.go_back()
    page.wait_for_selector("h1:text-is('Topics')")
    assert page.input_value("[data-filter]") == "Qui"


def test_everything_is_reached_with_the_keyboard(watched: Watched) -> None:
    page = watched.open("c/default")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector("h1:text-is('Topics')")
    page.wait_for_selector("tbody tr")
    page.keyboard.press("/")
    page.keyboard.type("Orders")
    playwright.expect(page.locator("tbody tr")).to_have_count(1)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Orders')")
    page.keyboard.press("Control+k")
    page.keyboard.type("bill")
    page.wait_for_selector("li[role=option]:has-text('billing')")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('billing')")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_offsets_are_reset_after_a_preview_and_put_back(watched: Watched) -> None:
    page = watched.open("c/default/groups/billing")
    page.click("text=Reset offsets")
    page.select_option("dialog select >> nth=1", "latest")
    page.click("dialog button:text-is('Preview')")
    page.wait_for_selector("dialog pre:has-text('rocketq group reset billing Orders --to-latest')")
    go = page.locator("dialog footer button.primary")
    assert go.is_disabled()
    page.fill("dialog label:has-text('Type billing') input", "billing")
    go.click()
    page.wait_for_selector("dialog .notice.ok")
    page.click("dialog footer button")
    page.wait_for_selector(".tile:has-text('Lag') .value:text-is('0')")
    page.click("text=Undo the reset")
    page.click("dialog footer button.primary")
    page.wait_for_selector("dialog .notice.ok")
    page.click("dialog footer button")
    page.wait_for_selector(f".tile:has-text('Lag') .value:text-is('{ORDERS}')")


def test_dead_letters_are_edited_and_replayed(watched: Watched) -> None:
    api = ApiClient(watched.url)
    with api:
        api.post("/clusters/default/topics", {"topic": "Again", "read_queues": 1, "write_queues": 1})
    page = watched.open("c/default/dlq/billing")
    page.wait_for_selector("tbody tr")
    assert page.locator("section.card tbody tr").count() == DEAD
    page.click("tbody tr td.body >> nth=0")
    page.click("aside.drawer >> text=Edit before the replay")
    page.fill("dialog textarea >> nth=0", '{"fixed": true}')
    page.click("dialog footer button.primary")
    page.wait_for_selector("aside.drawer .diff")
    page.keyboard.press("Escape")
    page.wait_for_selector("td:has-text('edited')")
    for number in range(3):
        page.check(f"tbody tr >> nth={number} >> input[type=checkbox]")
    page.click("button:text-is('Replay')")
    page.select_option("dialog select", "other")
    page.fill("dialog input[placeholder=topic]", "Again")
    page.click("dialog button:text-is('Dry run')")
    page.wait_for_selector("dialog .notice:has-text('changed before')")
    page.click("dialog footer button.primary")
    page.wait_for_selector("dialog .notice.ok")
    page.click("dialog footer button")
    page.wait_for_selector("span.badge:text-is('done')")
    playwright.expect(page.locator("td:has-text('replayed') .badge.ok")).to_have_count(3)
    watched.open("c/default/topics/Again")
    playwright.expect(page.locator("tbody tr")).to_have_count(3)
    assert "fixed" in page.inner_text("tbody")


def test_a_message_is_sent_and_appears_live(watched: Watched, browser: playwright.Browser, url: str) -> None:
    page = watched.open("c/default/topics/Quiet?tab=live")
    page.wait_for_selector("text=following")
    page.wait_for_timeout(500)
    with ApiClient(url) as api:
        api.post("/clusters/default/topics/Quiet/send", {"body": "live one", "keys": ["live-1"]})
    page.wait_for_selector("tbody tr:has-text('live one')")


def test_both_languages_have_every_text() -> None:
    """Goal: no text is missing in Chinese, none is left over, and both use the same fields."""
    catalogue = json.loads((STATIC / "i18n" / "zh.json").read_text())
    assert sorted(texts() - set(catalogue)) == []
    assert sorted(set(catalogue) - texts()) == []
    for english, chinese in catalogue.items():
        fields = set(re.findall(r"\{(\w+)\}", english))
        assert set(re.findall(r"\{(\w+)\}", chinese)) <= fields, english
        assert chinese


def test_pages_are_made_without_html_from_texts() -> None:
    for path in STATIC.rglob("*.js"):
        text = path.read_text()
        for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, (path.name, word)
        assert not re.search(r"https?://(?!www\.w3\.org)[a-z]", text.replace("'https://'", "")), path.name
