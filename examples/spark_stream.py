"""Write a topic into Parquet files as a stream, each message exactly once."""

import os
import tempfile

import rocketq.spark
from rocketq.client import Message, Producer

name_servers = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

with Producer("clicks", name_servers=name_servers) as producer:
    for number in range(50):
        producer.send(Message(topic="Clicks", body=b"click %d" % number))

folder = tempfile.mkdtemp()
spark = rocketq.spark.session()
clicks = (
    spark.readStream.format("rocketmq")
    .options(subscribe="Clicks", startingOffsets="earliest", nameServer=name_servers)
    .load()
)
query = (
    clicks.selectExpr("cast(body as string) as text", "queueId", "queueOffset")
    .writeStream.format("parquet")
    .option("path", f"{folder}/clicks")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(spark.read.parquet(f"{folder}/clicks").count(), "clicks")
spark.stop()
