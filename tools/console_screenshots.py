"""Take the pictures of the console that README and docs show: `python tools/console_screenshots.py`.

Starts a cluster with traffic, a group that falls behind and dead letters, opens the console in headless Chromium and
writes docs/images/console-*.png. Needs the extra `dev` and a Chromium (ROCKETQ_CHROMIUM, or chromium on the path).
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from rocketq.client import (
    Admin,
    ConsumeContext,
    ConsumeResult,
    Message,
    Producer,
    ProducerConfig,
    PushConfig,
    PushConsumer,
    StoredMessage,
)
from rocketq.console import ClusterTarget, ConsoleConfig
from rocketq.console.server import ConsoleServer
from rocketq.testing import EmbeddedCluster
from rocketq.testing.loop_thread import LoopThread

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SETTINGS = {"messageDelayLevel": " ".join(["1s"] * 18), "traceTopicEnable": "true"}
TOPICS = {"Orders": 4, "Payments": 4, "Shipments": 2, "Inventory": 2, "Notifications": 2, "Clicks": 4, "Ledger": 2}
TRAFFIC_S = 45
SIZE = {"width": 1280, "height": 800}


class Shop:
    """Sends orders and clicks until it is stopped."""

    def __init__(self, addr: str) -> None:
        self._addr = addr
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        chance = random.Random(7)
        number = 0
        with Producer("shop", name_servers=self._addr, config=ProducerConfig(trace=True)) as producer:
            while not self._stop.wait(0.04):
                for topic in ("Orders", "Payments", "Notifications", "Clicks", "Clicks", "Clicks", "Ledger"):
                    number += 1
                    total = round(chance.random() * 500, 2)
                    body = {"order": {"id": number, "total": total, "currency": "EUR"}, "customer": f"c{number % 97}"}
                    fails = topic == "Orders" and number % 91 == 1
                    properties = {"ERROR": "card was declined by its bank"} if fails else {}
                    tag = chance.choice(("paid", "new", "shipped"))
                    data = json.dumps(body).encode()
                    keys = (f"order-{number}",)
                    producer.send(Message(topic=topic, body=data, tag=tag, keys=keys, properties=properties))


def consume(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult:
    return ConsumeResult.LATER if "ERROR" in messages[0].properties else ConsumeResult.SUCCESS


def consume_slowly(messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult:
    time.sleep(0.6)
    return ConsumeResult.SUCCESS


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, EmbeddedCluster(brokers=2, settings=SETTINGS) as cluster:
        addr = cluster.name_server_addr
        with Admin(addr) as admin:
            for topic, queues in TOPICS.items():
                admin.topics.create(topic, queues=queues)
        target = ClusterTarget(name="production", name_servers=(addr,))
        server = ConsoleServer(ConsoleConfig(clusters=(target,), data_dir=Path(folder), port=0, sample_s=1.0))
        thread = LoopThread("rocketq-console")
        thread.run(server.start())
        config = PushConfig(trace=True, max_reconsume_times=1)
        groups = {"billing": "Orders", "warehouse": "Orders", "fraud-check": "Payments", "mailer": "Notifications"}
        consumers = [PushConsumer(group, consume, name_servers=addr, config=config) for group in groups]
        for consumer, topic in zip(consumers, groups.values(), strict=True):
            consumer.subscribe(topic)
            consumer.start()
        slow = PushConsumer("analytics", consume_slowly, name_servers=addr)
        slow.subscribe("Clicks")
        slow.start()
        with Shop(addr):
            browse(server.url)
        for consumer in (*consumers, slow):
            consumer.close()
        thread.run(server.stop())
        thread.close()


def browse(url: str) -> None:
    chromium = os.environ.get("ROCKETQ_CHROMIUM") or shutil.which("chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=[*flags, "--disable-sync"])
        watching = browser.new_page(viewport=SIZE)  # an open page makes the console sample every second
        watching.goto(url)
        watching.wait_for_timeout(TRAFFIC_S * 1_000)
        for look in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=look, locale="en-GB")
            shoot(page, f"{url}c/production", f"overview-{look}")
            shoot(page, f"{url}c/production/dlq/billing", f"dead-letters-{look}")
            page.goto(f"{url}c/production/topics/Orders")
            page.locator("td.body").first.click()
            page.wait_for_selector("aside.drawer")
            page.wait_for_timeout(500)
            keep(page, f"message-{look}")
            page.close()
        browser.close()


def shoot(page: Page, address: str, name: str) -> None:
    page.goto(address)
    page.wait_for_selector("main h1")
    page.wait_for_timeout(2_500)
    keep(page, name)


def keep(page: Page, name: str) -> None:
    """With 128 colours, which is a third of the size."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(IMAGES / f"console-{name}.png", optimize=True)


if __name__ == "__main__":
    main()
