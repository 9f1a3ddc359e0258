"""Spark on a cluster of ours with users and policies: a user with the roles of a producer and a consumer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rocketq.access.roles import role_grants
from rocketq.client import Admin, Credentials, SessionConfig
from rocketq.protocol.bodies.accounts import PolicyEntry
from rocketq.testing import EmbeddedCluster

ROOT = Credentials("root", "root-secret")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret"}),
}


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    with EmbeddedCluster(settings=SETTINGS) as cluster:
        with Admin(cluster.name_server_addr, config=SessionConfig(credentials=ROOT)) as admin:
            for topic in ("Rows", "Other"):
                admin.topics.create(topic, queues=2)
            admin.access.create_user("spark", "spark-secret")
            grants = [*role_grants("produce", "Rows", None), *role_grants("consume", "Rows", "spark-group")]
            actions: dict[str, tuple[str, ...]] = {}
            for grant in grants:
                actions[str(grant.resource)] = (*actions.get(str(grant.resource), ()), *grant.actions)
            entries = [
                PolicyEntry(resource=resource, actions=tuple(dict.fromkeys(words)), decision="Allow")
                for resource, words in actions.items()
            ]
            admin.access.put_policies("spark", entries)
        yield cluster.name_server_addr


def options(name_servers: str, secret: str = "spark-secret") -> dict[str, str]:
    return {"nameServer": name_servers, "rocketmq.accessKey": "spark", "rocketmq.secretKey": secret}


def test_rows_are_written_and_read_with_the_rights_of_a_user(spark: SparkSession, secured: str) -> None:
    """Goal: sink and source sign everything; what the user may not do fails with the broker's reason."""
    frame = spark.range(50).selectExpr("CAST(id AS STRING) AS body")
    frame.write.format("rocketmq").mode("append").options(**options(secured), topic="Rows").save()
    reader = spark.read.format("rocketmq").options(**options(secured)).option("rocketmq.group.id", "spark-group")
    read = reader.option("subscribe", "Rows").load()
    assert {bytes(row.body) for row in read.select("body").collect()} == {b"%d" % number for number in range(50)}
    with pytest.raises(Exception, match="no permission to access Topic:Other"):
        frame.write.format("rocketmq").mode("append").options(**options(secured), topic="Other").save()
    with pytest.raises(Exception, match="no permission to access Topic:Other"):
        reader.option("subscribe", "Other").load().collect()
    with pytest.raises(Exception, match="check signature failed"):
        frame.write.format("rocketmq").mode("append").options(**options(secured, "wrong"), topic="Rows").save()
