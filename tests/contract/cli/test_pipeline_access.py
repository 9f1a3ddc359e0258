"""`rocketq pipeline ... --option`: keys, certificates and NameServers count before Spark starts as they do in Spark."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
import yaml
from click.testing import CliRunner

from rocketq.broker import Broker, BrokerConfig
from rocketq.cli.commands.pipeline_calling import Pipeline, runs_pipeline
from rocketq.protocol.acl import Credentials
from rocketq.remoting import ClientTls, TlsConfig, TlsMode
from rocketq.remoting.certificates import write_self_signed
from rocketq.spark.errors import AwayError, SparkError
from rocketq.spark.pipelines import lag
from rocketq.spark.pipelines.project_settings import source_options
from rocketq.store import StoreConfig
from rocketq.testing.embedded import SMALL_FILES, EmbeddedCluster

from .conftest import call


class SecuredCluster(EmbeddedCluster):
    """Its broker speaks TLS alone, with those whose certificate it knows."""

    def __init__(self, cert: Path, key: Path) -> None:
        super().__init__()
        self._tls = TlsConfig(
            mode=TlsMode.ENFORCING, cert_path=cert, key_path=key, trust_path=cert, client_auth=ssl.CERT_REQUIRED
        )

    def _make_broker(self, index: int, *, port: int) -> Broker:
        config = BrokerConfig.from_java(SMALL_FILES, port=port, name_servers=self.name_server_addr)
        store = StoreConfig.from_java(SMALL_FILES, root=self.store_dir(index))
        return Broker(replace(config, name="broker-0"), store, tls=self._tls)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def secured(certificate: tuple[Path, Path]) -> Iterator[EmbeddedCluster]:
    with SecuredCluster(*certificate) as running:
        yield running


def as_options(cert: Path, key: Path) -> dict[str, str]:
    return {"rocketmq.tls.certPath": str(cert), "rocketmq.tls.keyPath": str(key)}


def test_brokers_that_speak_tls_alone_are_asked_over_tls(
    secured: EmbeddedCluster, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """Goal: what is looked up before Spark starts is let in by the same certificates, from either place."""
    options = as_options(*certificate)
    typed = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
    said = call(secured.name_server_addr, "pipeline", "lag", *typed)
    assert said.code == 0, said.err
    file = tmp_path / "options"
    file.write_text("\n".join(f"{key} = {value}" for key, value in options.items()))
    said = call(secured.name_server_addr, "pipeline", "lag", "--options-file", str(file))
    assert said.code == 0, said.err
    assert call(secured.name_server_addr, "pipeline", "lag").code == 4


def test_a_certificate_that_is_not_trusted_is_not_taken_for_nobody(
    secured: EmbeddedCluster, certificate: tuple[Path, Path]
) -> None:
    """Goal: no advice to start a NameServer where one has just shown its certificate."""
    trusted = f"rocketmq.tls.trustPath={certificate[0]}"
    said = call(secured.name_server_addr, "pipeline", "lag", "--option", trusted)
    assert said.code == 4
    assert "certificate verify failed" in said.err
    assert "rocketq up" not in said.err


@pytest.mark.parametrize("name", ["nameServer", "rocketmq.nameserver.address", "NAMESERVER"])
def test_name_servers_among_the_options_are_asked_first_too(
    secured: EmbeddedCluster, certificate: tuple[Path, Path], nobody: str, name: str
) -> None:
    options = {name: secured.name_server_addr, **as_options(*certificate)}
    typed = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
    assert call(nobody, "pipeline", "lag", *typed).code == 0


def test_a_key_without_its_secret_is_told_before_anybody_is_asked(nobody: str) -> None:
    said = call(nobody, "pipeline", "lag", "--option", "rocketmq.accessKey=shop")
    assert said.code == 2
    assert said.err.endswith("pipeline lag: rocketmq.accessKey and rocketmq.secretKey go together\n")


def test_requests_are_signed_and_no_text_has_the_secret() -> None:
    """Goal: the session that looks has the keys; what is printed of it has not."""
    seen: list[Pipeline] = []

    @click.command()
    @runs_pipeline
    def look(pipeline: Pipeline) -> None:
        seen.append(pipeline)

    keys = {"rocketmq.accessKey": "AccessX", "rocketmq.secretKey": "SecretX"}
    typed = [part for key, value in keys.items() for part in ("--option", f"{key}={value}")]
    assert CliRunner().invoke(look, [*typed, "--option", "rocketmq.tls.enable=true"]).exit_code == 0
    caller = seen[0].caller
    assert (caller.credentials, caller.tls) == (Credentials("AccessX", "SecretX"), ClientTls())
    assert "SecretX" not in repr(caller)


def test_lag_is_asked_for_with_the_options_of_a_source(
    secured: EmbeddedCluster, certificate: tuple[Path, Path]
) -> None:
    """Goal: in notebooks too brokers that speak TLS alone tell the lag; NameServers alone are not let in."""
    options = {"nameServer": secured.name_server_addr, **as_options(*certificate)}
    with pytest.raises(SparkError, match="was not found"):
        lag.ask({**options, "subscribe": "Orders"}, ["nobody"])
    with pytest.raises(AwayError, match="closed"):
        lag.ask(secured.name_server_addr, ["nobody"])


def test_a_file_of_options_is_named_in_a_project(tmp_path: Path) -> None:
    """Goal: keys and certificates count in every run of spark-pipelines; a slip in them is told when it is made."""
    file, folder = tmp_path / "options", tmp_path / "watch"
    file.write_text("rocketmq.tls.enable true\n")
    said = call(None, "pipeline", "init", str(folder), "--options-file", str(file))
    assert (said.code, folder.exists()) == (2, False)
    assert said.err.endswith("line 1 is not KEY=VALUE\n")
    file.write_text("rocketmq.tls.enable=true\nrocketmq.accessKey=AccessX\n")
    assert call(None, "pipeline", "init", str(folder), "--options-file", str(file)).code == 0
    settings = yaml.safe_load((folder / "spark-pipeline.yml").read_text())["configuration"]
    assert settings["rocketq.optionsFile"] == str(file)
    assert "AccessX" not in str(settings)
    conf = SimpleNamespace(conf=settings)
    assert source_options(cast(Any, conf)) == {
        "nameServer": settings["rocketq.nameServer"],
        "rocketmq.tls.enable": "true",
        "rocketmq.accessKey": "AccessX",
    }
