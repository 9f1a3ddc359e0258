"""Count messages of a topic by tag with Spark."""

import os

import rocketq.spark
from rocketq.client import Message, Producer

name_servers = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

with Producer("sales", name_servers=name_servers) as producer:
    for number in range(100):
        producer.send(Message(topic="SparkSales", body=b"%d" % number, tag="paid" if number % 4 else "open"))

spark = rocketq.spark.session()
sales = spark.read.format("rocketmq").options(subscribe="SparkSales", nameServer=name_servers).load()
for row in sales.groupBy("tags").count().orderBy("tags").collect():
    print(row["tags"], row["count"])
spark.stop()
