"""A cluster with access control: people sign in as its users, and brokers decide what they may do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx

from rocketq.client import Admin, SessionConfig
from rocketq.console import ClusterTarget, ConsoleConfig, Login
from rocketq.console.server import ConsoleServer
from rocketq.protocol.acl import Credentials
from rocketq.testing import EmbeddedCluster
from rocketq.testing.loop_thread import LoopThread

from .kit import console
from .test_api import until

AT = "api/v1/clusters/default"
ROOT = Credentials("root", "root-secret-1")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret-1"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"root-secret-1"}',
}


def test_people_sign_in_as_users_of_the_cluster(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1, settings=SETTINGS) as cluster:
        addr = cluster.name_server_addr
        session = SessionConfig(credentials=ROOT)
        with Admin(addr, config=session) as admin:
            admin.topics.create("Orders", queues=1)
            admin.access.create_user("ann", "ann-secret-1")
        target = ClusterTarget(name="default", name_servers=(addr,), session=session)
        config = ConsoleConfig(clusters=(target,), data_dir=tmp_path, port=0, sample_s=1.0, login=Login.CLUSTER)
        server, thread = ConsoleServer(replace(config)), LoopThread("rocketq-console")
        thread.run(server.start())
        try:
            with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as http:
                wrong = http.post("api/v1/login", json={"name": "ann", "password": "guessed"})
                assert (wrong.status_code, wrong.json()["code"]) == (401, "sign-in-failed")
                me = http.post("api/v1/login", json={"name": "ann", "password": "ann-secret-1"}).json()
                assert me["user"] == "ann"
                until(lambda: http.get(f"{AT}/overview").status_code == 200)  # the sampler has its own account
                headers = {"x-rocketq-token": me["token"]}
                denied = http.post(f"{AT}/topics/Orders/send", json={"body": "x"}, headers=headers)
                assert "no permission" in denied.text or denied.json()["code"] == "forbidden-by-broker"
                root = http.post("api/v1/login", json={"name": "root", "password": "root-secret-1"}).json()
                headers = {"x-rocketq-token": root["token"]}
                page = http.get(f"{AT}/access").json()
                assert {one["name"] for one in page["users"]} == {"root", "ann"}
                assert "secret" not in http.get(f"{AT}/access").text
                policy = {"user": "ann", "resource": "Topic:Orders", "actions": ["Pub"]}
                made = http.post(f"{AT}/access/policies", json=policy, headers=headers).json()
                assert {one["status"] for one in made["items"]} == {"done"}
                query = {"user": "ann", "action": "pub", "topic": "Orders"}
                assert http.get(f"{AT}/access/explain", params=query).json()["allowed"]
                query["action"] = "sub"
                assert not http.get(f"{AT}/access/explain", params=query).json()["allowed"]
                ann = http.post("api/v1/login", json={"name": "ann", "password": "ann-secret-1"}).json()
                headers = {"x-rocketq-token": ann["token"]}
                sent = http.post(f"{AT}/topics/Orders/send", json={"body": "x"}, headers=headers).json()
                assert sent["items"][0]["status"] == "done", sent
        finally:
            thread.run(server.stop())
            thread.close()


def test_an_open_cluster_signs_nobody_in(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with console(cluster.name_server_addr, tmp_path, login=Login.CLUSTER) as url:
        answer = httpx.post(f"{url}api/v1/login", json={"name": "a", "password": "b"}, trust_env=False, timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (409, "no-access-control")
