"""Who may do what: sign-in, roles, tokens, origins, paths, sizes, read-only."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rocketq.cli.main import main
from rocketq.console import ConsoleConfig, Login, Role
from rocketq.console.accounts import UsersFile
from rocketq.console.config import ClusterTarget
from rocketq.errors import ConfigError
from rocketq.testing import EmbeddedCluster

from .kit import ApiClient, console

AT = "/clusters/default"
TOPIC = {"topic": "Forbidden", "read_queues": 1, "write_queues": 1}


def send(api: ApiClient, **headers: str) -> httpx.Response:
    return api.http.post(f"api/v1{AT}/topics", json=TOPIC, headers=headers)


def test_a_change_needs_the_token_of_its_session(api: ApiClient) -> None:
    assert send(api).json()["code"] == "token-missing"
    assert send(api, **{"x-rocketq-token": "wrong"}).json()["code"] == "token-missing"
    other = httpx.Client(base_url=api.url, trust_env=False)
    with other:
        token = other.get("api/v1/me").json()["token"]
    assert send(api, **{"x-rocketq-token": token}).status_code == 403
    assert api.http.get(f"api/v1{AT}/topics/Forbidden").status_code == 404


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null"])
def test_a_page_of_another_origin_changes_nothing(api: ApiClient, origin: str) -> None:
    refused = send(api, **{"x-rocketq-token": api.token or "", "origin": origin})
    assert (refused.status_code, refused.json()["code"]) == (403, "wrong-origin")
    cross = send(api, **{"x-rocketq-token": api.token or "", "sec-fetch-site": "cross-site"})
    assert cross.json()["code"] == "wrong-origin"


def test_a_foreign_host_name_is_rejected_on_loopback(api: ApiClient) -> None:
    refused = api.http.get("api/v1/me", headers={"host": "rebind.example"})
    assert (refused.status_code, refused.json()["code"]) == (403, "wrong-host")


def test_the_live_socket_checks_the_origin(api: ApiClient) -> None:
    address = api.url.replace("http://", "ws://") + "api/v1/live"
    for origin in (None, "https://evil.example"):
        with pytest.raises(InvalidStatus), connect(address, origin=origin, proxy=None):  # type: ignore[arg-type]
            pass
    with connect(address, origin=api.url.rstrip("/"), proxy=None) as socket:  # type: ignore[arg-type]
        socket.send(json.dumps({"cluster": "default"}))
        note = json.loads(socket.recv(timeout=10))
    assert (note["type"], note["cluster"]) == ("sample", "default")


@pytest.mark.parametrize(
    "path",
    [
        "static/../../config.py",
        "static/%2e%2e/%2e%2e/config.py",
        "static/..%2f..%2fconfig.py",
        "static//etc/passwd",
        "static/%00",
        "api/v1/../../etc/passwd",
        "api/v1/nothing",
    ],
)
def test_paths_lead_nowhere_else(api: ApiClient, path: str) -> None:
    answer = api.http.get(path)
    assert answer.status_code in (200, 404)
    assert "ConsoleConfig" not in answer.text
    assert "root:" not in answer.text


def test_headers_forbid_scripts_frames_and_sniffing(api: ApiClient) -> None:
    for path in ("", "static/main.js", "api/v1/me", "no/such/page"):
        headers = api.http.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
    cookie = httpx.get(f"{api.url}api/v1/me", trust_env=False).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_oversized_bodies_are_rejected_before_they_are_read(api: ApiClient) -> None:
    host, _, port = api.url.removeprefix("http://").rstrip("/").partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=20)) as raw:
        raw.putrequest("POST", f"/api/v1{AT}/topics")
        raw.putheader("content-length", str(1 << 30))
        raw.endheaders()
        assert raw.getresponse().status == 413

    def endless() -> object:
        for _ in range(40):
            yield b"x" * (1 << 18)

    streamed = api.http.post(
        f"api/v1{AT}/topics",
        content=endless(),
        headers={"x-rocketq-token": api.token or ""},  # type: ignore[arg-type]
    )
    assert streamed.status_code in (400, 413, 422)
    assert api.http.get("api/v1/me").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{AT}/topics", {"topic": "a b"}),
        ("POST", f"{AT}/topics", {"topic": "X", "perm": "rwx"}),
        ("POST", f"{AT}/topics", ["not", "an", "object"]),
        ("POST", f"{AT}/groups/billing:reset", {"topic": "Orders", "to": "nowhere"}),
        ("POST", f"{AT}/topics/Orders/send", {"body": "x", "count": 1_000_000}),
        ("POST", f"{AT}/dlq/billing:replay", {"letters": []}),
        ("POST", f"{AT}/brokers/broker-0:clean", None),
    ],
)
def test_bad_input_is_a_problem_that_names_it(api: ApiClient, method: str, path: str, body: object) -> None:
    answer = api.send(method, path, body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


def test_a_read_only_console_has_no_changing_route(cluster: EmbeddedCluster, folder: Path) -> None:
    with console(cluster.name_server_addr, folder, read_only=True) as url, ApiClient(url) as api:
        assert send(api, **{"x-rocketq-token": api.token or ""}).status_code in (404, 405)
        document = api.get("/openapi.json")
        methods = {method for path in document["paths"].values() for method in path} - {"get"}
        changing = [p for p, ms in document["paths"].items() for m in ms if m != "get"]
        assert methods == {"post"}
        assert set(changing) == {"/api/v1/login", "/api/v1/logout"}
        assert api.get("/me")["role"] == "viewer"
        assert api.get(f"{AT}/overview")["figures"]["brokers"] == 2


def test_users_of_a_file_have_their_roles(cluster: EmbeddedCluster, folder: Path, tmp_path: Path) -> None:
    users = UsersFile(tmp_path / "users.json")
    users.set_user("ann", "right", Role.VIEWER)
    users.set_user("bob", "secret", Role.OPERATOR)
    token = users.add_token("ci", Role.OPERATOR, 1e12)
    assert "right" not in (tmp_path / "users.json").read_text()
    changes = {"login": Login.USERS, "users_file": tmp_path / "users.json", "base_path": "/mq/"}
    with (
        console(cluster.name_server_addr, folder, **changes) as url,
        httpx.Client(base_url=url, trust_env=False) as http,
    ):
        assert url.endswith("/mq/")
        assert http.get(f"api/v1{AT}/overview").json()["code"] == "sign-in"
        assert http.get("api/v1/me").json()["user"] is None
        assert httpx.get(url.replace("/mq/", "/"), trust_env=False).status_code == 404
        assert f'<base href="/mq/">' in http.get("c/default/topics").text  # noqa: F541
        signed_in = http.post("api/v1/login", json={"name": "ann", "password": "right"}).json()
        assert signed_in["role"] == "viewer"
        headers = {"x-rocketq-token": signed_in["token"]}
        refused = http.post(f"api/v1{AT}/topics", json=TOPIC, headers=headers)
        assert (refused.status_code, refused.json()["code"], refused.json()["needs"]) == (403, "role", "operator")
        http.cookies.clear()
        bearer = {"authorization": f"Bearer {token}"}
        plan = http.post(f"api/v1{AT}/topics", params={"dryRun": True}, json=TOPIC, headers=bearer)
        assert plan.status_code == 200
        deleted = http.request("DELETE", f"api/v1{AT}/topics/Orders", params={"confirm": "Orders"}, headers=bearer)
        assert deleted.json()["needs"] == "admin"
        wrong = http.get("api/v1/me", headers={"authorization": "Bearer rqc_wrong"})
        assert wrong.json()["code"] == "token-invalid"
        for _ in range(5):
            failed = http.post("api/v1/login", json={"name": "ann", "password": "wrong"})
            assert failed.json()["code"] == "sign-in-failed"
        paused = http.post("api/v1/login", json={"name": "ann", "password": "right"})
        assert (paused.status_code, paused.json()["code"]) == (429, "sign-in-paused")


def test_viewers_see_masked_bodies(cluster: EmbeddedCluster, folder: Path, tmp_path: Path) -> None:
    users = UsersFile(tmp_path / "users.json")
    viewer, operator = users.add_token("v", Role.VIEWER, 1e12), users.add_token("o", Role.OPERATOR, 1e12)
    changes = {"login": Login.USERS, "users_file": tmp_path / "users.json", "masks": {"Orders": ("note",)}}
    with (
        console(cluster.name_server_addr, folder, **changes) as url,
        httpx.Client(base_url=url, trust_env=False) as http,
    ):
        path = f"api/v1{AT}/messages:search"
        for token, hidden in ((viewer, True), (operator, False)):
            answer = http.get(path, params={"topic": "Orders", "n": 1}, headers={"authorization": f"Bearer {token}"})
            row = json.loads(answer.text.splitlines()[0])["message"]
            assert row["masked"] is hidden
            assert ("onerror" in row["text"]) is not hidden


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"host": "0.0.0.0"}, "without a login"),
        ({"host": "0.0.0.0", "login": Login.CLUSTER}, "without TLS"),
        ({"login": Login.USERS}, "--users"),
        ({"base_path": "mq"}, "--base-path"),
        ({"clusters": ()}, "-n"),
    ],
)
def test_unsafe_settings_are_refused_at_the_start(tmp_path: Path, changes: dict[str, object], part: str) -> None:
    target = ClusterTarget(name="default", name_servers=("127.0.0.1:9876",))
    with pytest.raises(ConfigError, match=part):
        ConsoleConfig(**{"clusters": (target,), "data_dir": tmp_path, **changes})  # type: ignore[arg-type]


def test_the_audit_log_shows_tampering(api: ApiClient, tmp_path: Path) -> None:
    from click.testing import CliRunner  # noqa: PLC0415

    from rocketq.console.audit import AuditEntry, AuditLog  # noqa: PLC0415

    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(3):
        log.add(AuditEntry(at_ms=number, user="u", source="s", cluster="c", action="a", target=f"t{number}"))
    verify = ("console", "audit", "verify", "--data", str(tmp_path))
    assert "3 entries" in CliRunner().invoke(main, verify).output
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    (tmp_path / "audit.jsonl").write_text("\n".join([lines[0], lines[2]]) + "\n")
    removed = CliRunner().invoke(main, verify)
    assert removed.exit_code == 1
    (tmp_path / "audit.jsonl").write_text("\n".join([lines[0], lines[1].replace("t1", "t9"), lines[2]]) + "\n")
    assert CliRunner().invoke(main, verify).exit_code == 1
