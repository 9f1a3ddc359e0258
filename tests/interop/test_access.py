"""Apache's clients and tools with our secured brokers: right, wrong and missing keys; accounts and users by command."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.client import Admin, Credentials, Message, Producer, SendStatus, SessionConfig
from rocketq.errors import RemotingError
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import ConnectionPool

from . import client_programs
from .apache import BROKER_NAME, CLUSTER_NAME, ApacheBroker, ApacheNameServer, free_broker_port
from .cache import Unavailable
from .client_programs import Program
from .mqadmin import MqAdmin
from .our_cluster import OurCluster
from .release import obtain
from .test_replication import our_broker

pytestmark = pytest.mark.interop

PLAIN = """globalWhiteRemoteAddresses:

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""
"""As Apache's release has it."""
_AUTH = "org.apache.rocketmq.auth"
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "rocketmq2", "password": "12345678"}),
}
VERSIONS = ["4.7.1", "4.9.7", "5.3.3"]


@contextmanager
def secured(folder: Path, model: str) -> Iterator[OurCluster]:
    """Our cluster with Apache's settings of ACL 1.0 or 2.0."""
    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(PLAIN)
    settings = {"aclEnable": "true", "rocketmqHome": str(home)} if model == "plain" else USERS
    changes = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    cluster = OurCluster(folder)
    try:
        cluster.start("up", "--data-dir", str(folder / "data"), "--namesrv-port", "0", "--broker-port", "0", *changes)
        yield cluster
        cluster.stop()
    finally:
        cluster.kill()


@contextmanager
def tools(version: str, cluster: OurCluster, folder: Path) -> Iterator[MqAdmin]:
    """mqadmin that signs as the administrator."""
    admin = MqAdmin(obtain(version), cluster.nameserver_addr, folder)
    (admin.home / "conf").mkdir(parents=True)
    (admin.home / "conf" / "tools.yml").write_text("accessKey: rocketmq2\nsecretKey: 12345678\n")
    with admin:
        yield admin


def play(
    version: str, cluster: OurCluster, folder: Path, topic: str, group: str, seconds: int, *keys: str
) -> dict[str, str]:
    """What a Java client reports about its sends and its consumer."""
    folder.mkdir(exist_ok=True)
    command = [*obtain(version).java(heap_mb=128, home=folder), "Access", cluster.nameserver_addr, topic, group]
    done = subprocess.run(
        [*command, str(seconds), *keys],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={"PATH": "/usr/bin"},
    )
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert "consumed" in said, done.stdout + done.stderr[-2000:]
    return said


@pytest.mark.parametrize("version", VERSIONS)
def test_java_clients_with_accounts(tmp_path: Path, version: str) -> None:
    """Goal: Apache's own plain_acl.yml as it is: who may sends and consumes, others are told why."""
    with secured(tmp_path, "plain") as cluster, tools("4.9.7", cluster, tmp_path) as admin:
        for topic in ("topicA", "topicB", "topicC"):
            admin("updateTopic", "-b", cluster.broker_addr, "-t", topic, "-r", "2", "-w", "2")
        home, keys = tmp_path / "client", ("RocketMQ", "12345678")
        assert play(version, cluster, home, "topicB", "groupB", 20, *keys) == {
            "single": "SEND_OK", "batch": "SEND_OK", "consumed": "4"}  # fmt: skip
        denied = play(version, cluster, home, "topicC", "groupA", 3, *keys)
        assert "AclException: No default permission for topic:topicC" in denied["single"]
        assert "AclException: No default permission for topic:topicC" in denied["batch"]
        assert denied["consumed"] == "0"
        wrong = play(version, cluster, home, "topicB", "groupB", 2, "RocketMQ", "87654321")
        assert "AclException: Check signature failed for accessKey=RocketMQ" in wrong["single"]
        missing = play(version, cluster, home, "topicB", "groupB", 2)
        assert "AclException: No accessKey is configured" in missing["single"]
        assert missing["consumed"] == "0"


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_java_clients_with_users(tmp_path: Path, version: str) -> None:
    with secured(tmp_path, "users") as cluster, tools("5.3.3", cluster, tmp_path) as admin:
        for topic in ("mine", "other"):
            admin("updateTopic", "-b", cluster.broker_addr, "-t", topic, "-r", "2", "-w", "2")
        admin("createUser", "-b", cluster.broker_addr, "-u", "app", "-p", "app secret", "-t", "Normal")
        admin(
            "createAcl", "-b", cluster.broker_addr, "-s", "User:app", "-r", "Topic:mine", "-a", "Pub,Sub", "-d", "Allow"
        )
        admin("createAcl", "-b", cluster.broker_addr, "-s", "User:app", "-r", "Group:g*", "-a", "Sub", "-d", "Allow")
        home, keys = tmp_path / "client", ("app", "app secret")
        assert play(version, cluster, home, "mine", "g1", 20, *keys) == {
            "single": "SEND_OK", "batch": "SEND_OK", "consumed": "4"}  # fmt: skip
        denied = play(version, cluster, home, "other", "g1", 2, *keys)
        text = "User:app has no permission to access Topic:other from 127.0.0.1, no matched policies."
        assert text in denied["single"]
        assert text in denied["batch"]
        wrong = play(version, cluster, home, "mine", "g1", 2, "app", "wrong")
        assert "check signature failed" in wrong["single"]
        assert "username cannot be null" in play(version, cluster, home, "mine", "g1", 2)["single"]


def test_mqadmin_4_changes_accounts(tmp_path: Path) -> None:
    with secured(tmp_path, "plain") as cluster, tools("4.9.7", cluster, tmp_path) as admin:
        time.sleep(0.5)  # the tool asks the NameServer for the cluster's brokers
        on = ("-c", CLUSTER_NAME)
        rights = ("-t", "topicB=PUB,topicC=SUB", "-u", "SUB", "-i", "DENY", "-w", "192.168.0.*")
        done = admin("updateAclConfig", *on, "-a", "tester7", "-s", "secret-7", *rights)
        assert "success" in done
        listed = admin("getAclConfig", *on)
        assert "tester7" in listed
        assert "topicB=PUB" in listed
        assert "secret-7" not in listed
        assert "12345678" not in listed
        versions = admin("clusterAclConfigVersion", *on)
        assert BROKER_NAME in versions
        home = tmp_path / "client"
        assert play("4.9.7", cluster, home, "topicB", "g", 1, "tester7", "secret-7")["single"] != ""
        assert "success" in admin("updateGlobalWhiteAddr", *on, "-g", "10.10.103.*,192.168.0.*")
        assert "10.10.103.*" in admin("getAclConfig", *on)
        assert "success" in admin("deleteAclConfig", *on, "-a", "tester7")
        assert "tester7" not in admin("getAclConfig", *on)
        assert "tester7" not in (tmp_path / "home/conf/plain_acl.yml").read_text()
        admin("updateAclConfig", *on, "-a", "short", "-s", "secret-7", fails=True)
        with_wrong = MqAdmin(obtain("4.9.7"), cluster.nameserver_addr, tmp_path / "wrong")
        (with_wrong.home / "conf").mkdir(parents=True)
        (with_wrong.home / "conf" / "tools.yml").write_text("accessKey: RocketMQ\nsecretKey: 12345678\n")
        with with_wrong:
            assert "Need admin permission" in with_wrong("getAclConfig", *on, fails=True)


def test_mqadmin_5_changes_users_and_policies(tmp_path: Path) -> None:
    with secured(tmp_path, "users") as cluster, tools("5.3.3", cluster, tmp_path) as admin:
        on = ("-b", cluster.broker_addr)
        assert "success" in admin("createUser", *on, "-u", "app", "-p", "secret", "-t", "Normal")
        assert "app" in admin("listUser", *on)
        shown = admin("getUser", *on, "-u", "app")
        assert "Normal" in shown
        assert "secret" not in shown
        assert "success" in admin("updateUser", *on, "-u", "app", "-s", "disable")
        assert "disable" in admin("getUser", *on, "-u", "app")
        assert "success" in admin("createAcl", *on, "-s", "User:app", "-r", "Topic:a,Topic:b*", "-a", "Pub,Sub", "-i",
                                  "192.168.1.1", "-d", "Allow")  # fmt: skip
        listed = admin("getAcl", *on, "-s", "User:app")
        assert "Topic:b*" in listed
        assert "192.168.1.1" in listed
        assert "success" in admin("updateAcl", *on, "-s", "User:app", "-r", "Topic:a", "-a", "Sub", "-d", "Deny")
        assert "Deny" in admin("listAcl", *on)
        assert "success" in admin("deleteAcl", *on, "-s", "User:app", "-r", "Topic:a")
        assert "Topic:a " not in admin("getAcl", *on, "-s", "User:app")
        assert "success" in admin("deleteUser", *on, "-u", "app")
        assert "app" not in admin("listUser", *on)
        admin("deleteUser", *on, "-u", "rocketmq2", fails=True)


ADMIN = Credentials("rocketmq2", "12345678")
INNER = json.dumps({"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key})


def end_of(addr: str) -> int:
    """The end of a broker's log, asked for by an administrator; -1 while it does not answer."""

    async def ask() -> int:
        pool = ConnectionPool(credentials=ADMIN)
        try:
            answer = await pool.invoke(addr, Command(code=RequestCode.GET_BROKER_RUNTIME_INFO))
            return int(KeyValues.decode(answer.body).table["commitLogMaxOffset"]) if answer.code == 0 else -1
        except RemotingError:
            return -1
        finally:
            await pool.close()

    return asyncio.run(ask())


def await_same_end(master: str, slave: str) -> None:
    deadline = time.monotonic() + 60
    while (end := end_of(master)) <= 0 or end != end_of(slave):
        assert time.monotonic() < deadline, f"the slave is at {end_of(slave)}, its master at {end}"
        time.sleep(0.2)


def await_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{text} is not in {path}"
        time.sleep(0.3)


def send_as_admin(names: str, count: int) -> None:
    with Producer("writers", name_servers=names, session_config=SessionConfig(credentials=ADMIN)) as producer:
        for number in range(count):
            assert producer.send(Message(topic="Copied", body=b"%d" % number)).status is SendStatus.SEND_OK


def test_our_slave_follows_an_apache_master_with_accounts(
    nameserver: Callable[[str], ApacheNameServer], tmp_path: Path
) -> None:
    """Goal: our slave signs with its inner credentials, so the tables come too; it checks accounts itself."""
    for home in (tmp_path / "master" / "home", tmp_path / "home"):
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text(PLAIN)
    names, settings = nameserver("4.9.7"), {"aclEnable": "true"}
    with ApacheBroker(
        names, port=free_broker_port(), store=tmp_path / "master" / "data", work=tmp_path / "master", settings=settings
    ) as master:
        own = {"rocketmqHome": str(tmp_path / "home"), "innerClientAuthenticationCredentials": INNER}
        with our_broker(tmp_path / "slave", names, brokerRole="SLAVE", brokerId="1", **settings, **own) as slave:
            send_as_admin(names.address, 50)
            await_same_end(master.address, slave.broker_addr)
            topics = tmp_path / "slave" / "data" / "config" / "topics.json"
            await_text(topics, "Copied")
            assert "cannot be copied" not in slave.log()


def test_an_apache_slave_follows_our_master_with_accounts(
    nameserver: Callable[[str], ApacheNameServer], tmp_path: Path
) -> None:
    """Goal: a slave of 4.9.7 signs nothing; its address on the global white list lets it follow."""
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(PLAIN.replace("Addresses:\n", "Addresses: [127.0.0.1]\n", 1))
    names = nameserver("4.9.7")
    with our_broker(tmp_path / "master", names, aclEnable="true", rocketmqHome=str(home)) as master:
        send_as_admin(names.address, 50)
        with ApacheBroker(
            names,
            port=free_broker_port(),
            store=tmp_path / "slave" / "data",
            work=tmp_path / "slave",
            settings={"brokerRole": "SLAVE", "brokerId": "1"},
        ) as slave:
            await_same_end(master.broker_addr, slave.address)
            await_text(tmp_path / "slave" / "data" / "config" / "topics.json", "Copied")


@pytest.mark.parametrize(
    ("make", "sent"),
    [
        pytest.param(client_programs.go, "52", id="go-2.1.2"),
        pytest.param(client_programs.cpp, "60", id="cpp"),
        pytest.param(client_programs.node, "21", id="node"),
    ],
)
def test_clients_in_other_languages_with_accounts(make: Callable[[], Program], sent: str, tmp_path: Path) -> None:
    """Goal: every way of sending with right keys, none with wrong or missing ones."""
    try:
        program = make()
    except Unavailable as reason:
        pytest.skip(str(reason))
    home = tmp_path / "client"
    with secured(tmp_path, "plain") as cluster:
        with Admin(cluster.nameserver_addr, config=SessionConfig(credentials=ADMIN)) as admin:
            for topic in ("topicB", "%RETRY%node-all"):
                admin.topics.create(topic, queues=4)
        right = {"ACCESS_KEY": "RocketMQ", "SECRET_KEY": "12345678"}
        for keys in ({}, {**right, "SECRET_KEY": "87654321"}, {**right, "ACCESS_KEY": "nobody7"}):
            with pytest.raises(AssertionError, match="produce ended with"):
                replace(program, environment=program.environment | keys).play(
                    "produce", cluster.nameserver_addr, "topicB", home
                )
        allowed = replace(program, environment=program.environment | right)
        assert allowed.play("produce", cluster.nameserver_addr, "topicB", home) == {"sent": sent}
