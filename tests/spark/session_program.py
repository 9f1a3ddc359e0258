"""A program of its own: makes a session as its arguments say and reads a store directory through it."""

from __future__ import annotations

import json
import sys

import rocketq.spark


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = rocketq.spark.session(**given["session"])
    reader = spark.read.format("rocketmq_commitlog").option("maxPartitionBytes", given.get("partition", "65536"))
    frame = reader.load(given["store"])
    for count in given.get("takes", []):
        assert len(frame.take(count)) == count
    wanted = frame.where("topic = 'T1'").select("queueOffset", "body").collect()
    print(json.dumps({"count": frame.count(), "bodies": sorted(bytes(row.body).decode() for row in wanted)}))
    spark.stop()


if __name__ == "__main__":
    main()
