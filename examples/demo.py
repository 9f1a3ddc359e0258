"""The whole story in a minute or two: a cluster, an order stream, consumers that fail, Spark, dead letters, a replay.

Everything runs on this machine, with what pip installed: two brokers and a NameServer in this process, Spark beside it.
Each step checks what came out of it. Results are left in build/demo (or the folder that is named).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rocketq.client import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    ProducerConfig,
    PullConfig,
    PullConsumer,
    PushConfig,
    PushConsumer,
    StoredMessage,
)
from rocketq.testing import EmbeddedCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = 3_000
REGIONS = ("north", "south", "east", "west")
FAILURES = ("card 4711-{n} was declined by its bank", "no answer from the bank within {n} ms")
SETTINGS = {
    "messageDelayLevel": " ".join(["1s"] * 18),  # retries come after a second, not after 10 s, 30 s, 1 min, ...
    "traceTopicEnable": "true",
}
ORDER_COLUMNS = "number int, region string, cents long"
WAIT_S = 120
Found = dict[str, object]


class Narrator:
    """Says what happens, and when."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)


class Billing:
    """A consumer whose bank is down: it fails for some orders until that is mended."""

    def __init__(self) -> None:
        self.bank_is_up = False
        self.billed: set[str] = set()
        self.failures = 0
        self.replayed: set[str] = set()
        self._lock = threading.Lock()

    def listen(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        with self._lock:
            if "ERROR" in message.properties and not self.bank_is_up:
                self.failures += 1
                return ConsumeResult.LATER
            self.billed.add(message.keys[0])
            if "ORIGIN_MESSAGE_ID" in message.properties:
                self.replayed.add(message.keys[0])
        return ConsumeResult.SUCCESS


def main() -> None:
    root = Path(__file__).resolve().parents[1] / "build" / "demo" if len(sys.argv) < 2 else Path(sys.argv[1]).resolve()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    told, billing = Narrator(), Billing()
    with EmbeddedCluster(brokers=2, settings=SETTINGS) as cluster, ThreadPoolExecutor(1) as aside:
        addr = cluster.name_server_addr
        told.say("two brokers and a NameServer are up; Spark starts meanwhile")
        with console(addr, root) as console_url, Admin(addr) as admin:
            told.say(f"the web console is at {console_url}")
            for topic in ("Orders", "Revenue"):
                admin.topics.create(topic, queues=2)
            with consuming(addr, billing):
                selling = aside.submit(sell, told, admin, addr, billing)
                spark = start_spark()
                found = selling.result() | analyse(told, spark, addr, root)
                found |= repair(told, spark, addr, billing)
            found |= measure(told, spark, addr, root)
            spark.stop()
            told.say("done")
            print_summary(found, root)
            keep_running(console_url)


# the steps, and what each found


def sell(told: Narrator, admin: Admin, addr: str, billing: Billing) -> Found:
    told.say(f"{ORDERS} orders are sent: with tags and keys, some delayed, some that billing fails on")
    dead = send_orders(addr)
    told.say("billing consumes them; what fails comes again twice, then it is a dead letter")
    wait_for(lambda: dead_letters_of(admin, "billing") == dead, "dead letters")
    wait_for(lambda: len(billing.billed) == ORDERS - dead, "orders to be billed")
    return {
        "orders sent": ORDERS,
        "billed": len(billing.billed),
        "failed attempts": billing.failures,
        "dead letters": dead,
    }


def analyse(told: Narrator, spark: SparkSession, addr: str, root: Path) -> Found:
    told.say(f"Spark {spark.version} streams the topic into Parquet files, by region")
    rows = archive(spark, addr, root)
    told.say("revenue by region is added up and sent back to a topic")
    revenue = send_revenue(spark, addr, root)
    told.say("dead letters are looked at: who failed, at what, how often")
    print(triage(spark, addr, root))
    return {"rows in Parquet": rows, "revenue, from its topic": revenue}


def repair(told: Narrator, spark: SparkSession, addr: str, billing: Billing) -> Found:
    told.say("the bank is up again: dead letters are replayed, 100 per second")
    billing.bank_is_up = True
    replayed = replay_dead_letters(spark, addr)
    wait_for(lambda: len(billing.replayed) == replayed, "replayed orders to be billed")
    wait_for(lambda: len(billing.billed) == ORDERS, "all orders to be billed")
    return {"replayed": replayed, "billed in the end": len(billing.billed)}


def measure(told: Narrator, spark: SparkSession, addr: str, root: Path) -> Found:
    told.say("traces tell how long messages took; offsets tell what is left to do")
    return {"send to consume": latencies(spark, addr, root), "lag of billing": lag_of(addr, root)}


@contextmanager
def console(addr: str, root: Path) -> Iterator[str]:
    """The web console of this cluster, in a process of its own; its address."""
    ready_file = root / "console.json"
    command = [sys.executable, "-m", "rocketq", "console", "-n", addr, "--port", "0", "--data", str(root / "console")]
    command += ["--ready-file", str(ready_file), "--log-file", str(root / "console.log"), "--with-parent"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: ready_file.exists() or process.poll() is not None, "the console")
        yield json.loads(ready_file.read_text())["addresses"]["console"] if ready_file.exists() else "(not started)"
    finally:
        process.terminate()
        process.wait()


def keep_running(console_url: str) -> None:
    """With KEEP=1 until Ctrl-C: look around in the console."""
    if os.environ.get("KEEP") in (None, "", "0"):
        print(f"  the console was at {console_url}; `make demo KEEP=1` keeps everything running\n")
        return
    print(f"  everything keeps running: open {console_url}, end with Ctrl-C\n", flush=True)
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)


# the shop


@contextmanager
def consuming(addr: str, billing: Billing) -> Iterator[None]:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    config = PushConfig(from_where=first, max_reconsume_times=2, trace=True)
    with PushConsumer("billing", billing.listen, name_servers=addr, config=config) as consumer:
        consumer.subscribe("Orders")
        yield


def send_orders(addr: str) -> int:
    """And how many of them billing cannot deal with."""
    dead = 0
    with Producer("shop", name_servers=addr, config=ProducerConfig(trace=True)) as producer:
        for n in range(ORDERS):
            fails = n % 60 == 7
            dead += fails
            body = json.dumps({"number": n, "region": REGIONS[n % 4], "cents": 500 + n % 100})
            producer.send(
                Message(
                    topic="Orders",
                    body=body.encode(),
                    tag="card" if fails else ("invoice" if n % 3 else "cash"),
                    keys=(f"order-{n}",),
                    properties={"ERROR": FAILURES[n % 120 == 7].format(n=n)} if fails else {},
                    delay_level=1 if n % 100 == 50 else 0,
                )
            )
    return dead


def dead_letters_of(admin: Admin, group: str) -> int:
    topic = f"%DLQ%{group}"
    if topic not in admin.topics.list():
        return 0
    return sum(span.max_offset - span.min_offset for span in admin.topics.stats(topic).queues.values())


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"demo: {what} did not come within {WAIT_S} s")
        time.sleep(0.2)


# Spark


def start_spark() -> SparkSession:
    from rocketq.spark import session  # noqa: PLC0415 - imported beside everything else

    return session("rocketq-demo", master="local[2,4]")


def archive(spark: SparkSession, addr: str, root: Path) -> int:
    from pyspark.sql import functions as F  # noqa: PLC0415

    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=addr, subscribe="Orders", startingOffsets="earliest")
        .load()
    )
    order = F.from_json(F.col("body").cast("string"), ORDER_COLUMNS)
    rows = messages.select(order.alias("order"), "tags", "keys", "msgId", "storeTimestamp").select("order.*", "*")
    writer = rows.drop("order").writeStream.partitionBy("region").format("parquet")
    query = writer.options(path=str(root / "orders"), checkpointLocation=str(root / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    count, distinct = read_orders(spark, root).select(F.count("*"), F.count_distinct("number")).first() or (0, 0)
    assert count == distinct == ORDERS, (count, distinct)
    return int(count)


def read_orders(spark: SparkSession, root: Path) -> DataFrame:
    return spark.read.parquet(str(root / "orders"))


def send_revenue(spark: SparkSession, addr: str, root: Path) -> str:
    from pyspark.sql import functions as F  # noqa: PLC0415

    revenue = (
        read_orders(spark, root).groupBy("region").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))
    )
    rows = revenue.select(F.to_json(F.struct("*")).alias("body"), F.col("region").alias("keys"))
    rows.write.format("rocketmq").options(nameServer=addr, topic="Revenue").mode("append").save()
    config = PullConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    found = {}
    with PullConsumer("revenue-reader", name_servers=addr, config=config) as consumer:
        consumer.subscribe("Revenue")
        for message in consumer:
            row = json.loads(message.body)
            found[row["region"]] = row["cents"]
            if len(found) == len(REGIONS):
                break
    return ", ".join(f"{region} {cents / 100:,.0f}" for region, cents in sorted(found.items()))


def triage(spark: SparkSession, addr: str, root: Path) -> str:
    from rocketq.spark.pipelines import dlq  # noqa: PLC0415
    from rocketq.spark.pipelines.reports import dlq_page, save  # noqa: PLC0415

    dead = dlq.dead_letters(dlq.read_dlq(spark, {"nameServer": addr}))
    causes = dlq.causes(dead).orderBy("messages", ascending=False).collect()
    save(dlq_page(causes, dead.orderBy("diedAt").limit(20).collect()), root / "dead-letters.html")
    lines = [f"{row.messages:>8}  {row.group}  {row.tags}  after {row.retries} tries  {row.cause}" for row in causes]
    return "\n".join(["", *lines, ""])


def replay_dead_letters(spark: SparkSession, addr: str) -> int:
    from rocketq.spark.pipelines import dlq, replay  # noqa: PLC0415

    dead = dlq.read_dlq(spark, {"nameServer": addr}, groups=["billing"])
    return replay.replay(replay.prepared(dead), {"nameServer": addr}, rows_per_s=100).messages


def latencies(spark: SparkSession, addr: str, root: Path) -> str:
    from rocketq.spark.pipelines import trace  # noqa: PLC0415
    from rocketq.spark.pipelines.reports import latency_page, save  # noqa: PLC0415

    spans = trace.spans(trace.events(trace.read_trace(spark, {"nameServer": addr}))).cache()
    rows = trace.latency(trace.deliveries(spans)).collect()
    save(latency_page(rows, trace.not_consumed(spans).count()), root / "latency.html")
    normal = next(row for row in rows if row.messageType == "normal")
    return f"p50 {normal.p50Ms} ms, p99 {normal.p99Ms} ms over {normal.messages} messages"


def lag_of(addr: str, root: Path) -> int:
    from rocketq.spark.pipelines import lag  # noqa: PLC0415
    from rocketq.spark.pipelines.reports import lag_page, save  # noqa: PLC0415

    rows = lag.ask(addr, ["billing"])
    save(lag_page(rows), root / "lag.html")
    return sum(row.lag or 0 for row in rows)


def print_summary(found: dict[str, object], root: Path) -> None:
    width = max(map(len, found))
    print()
    for name, value in found.items():
        print(f"  {name:<{width}}  {value}")
    print(f"""
  where to look
    {root}/orders              the orders as Parquet files
    {root}/dead-letters.html   who failed, at what
    {root}/latency.html        from send to consumption
    {root}/lag.html            what is left to do
    docs/spark/                the same on a cluster of yours; `rocketq pipeline --help`
""")


if __name__ == "__main__":
    main()
