"""How commands reach their cluster: options, environment, profiles and tools.yml, and what is kept where."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketq.cli.commands.access import access
from rocketq.cli.commands.profile import profile
from rocketq.cli.connection import Profile, load_profiles, resolve, save_profiles
from rocketq.errors import ConfigError
from rocketq.protocol.acl import Credentials


@pytest.fixture(autouse=True)
def own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kept/profiles.json"
    monkeypatch.setenv("ROCKETQ_PROFILES", str(path))
    return path


def test_the_nearest_source_wins(tmp_path: Path) -> None:
    """Goal: options, then environment, then the profile, then tools.yml; keys and secrets are never mixed."""
    save_profiles({"prod": Profile(name_servers="prod:9876", access_key="p", secret_key="p-secret")})
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tools.yml").write_text("accessKey: 12345678\nsecretKey: tools-secret\n")
    tools = {"ROCKETMQ_HOME": str(tmp_path)}
    environ = {"NAMESRV_ADDR": "env:9876", "ROCKETQ_ACCESS_KEY": "e", "ROCKETQ_SECRET_KEY": "e-secret"}
    none = Profile()
    assert resolve(none, None, tools).credentials == Credentials("12345678", "tools-secret")
    assert resolve(none, None, environ | tools).credentials == Credentials("e", "e-secret")
    assert resolve(none, "prod", environ).credentials == Credentials("p", "p-secret")
    assert resolve(none, None, {"ROCKETQ_PROFILE": "prod"}).name_servers == "prod:9876"
    assert resolve(none, None, environ | {"ROCKETQ_PROFILE": "prod"}).name_servers == "env:9876"
    given = Profile(name_servers="mine:1", access_key="o", secret_key="o-secret")
    assert resolve(given, "prod", environ) == given
    with pytest.raises(ConfigError, match="lacks its secret key"):
        _ = resolve(Profile(access_key="o"), "prod", environ).credentials
    with pytest.raises(ConfigError, match="no profile other"):
        resolve(none, "other", {})


def test_certificates_mean_tls(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    assert Profile().client_tls is None
    assert Profile(tls=True).client_tls is not None
    tls = Profile(ca=str(file)).client_tls
    assert tls is not None
    assert tls.trust_path == file
    for wrong in (Profile(ca=str(file), tls=False), Profile(tls=True, key=str(file)), Profile(ca="missing.pem")):
        with pytest.raises(ConfigError):
            _ = wrong.client_tls


def test_profiles_are_kept_for_their_owner_alone(own_profiles: Path) -> None:
    runner = CliRunner()
    added = runner.invoke(
        profile, ["add", "prod", "-n", "a:1;b:2", "--access-key", "ops", "--secret-stdin"], "s3cret\n"
    )
    assert added.exit_code == 0, added.output
    assert own_profiles.stat().st_mode & 0o777 == 0o600
    assert load_profiles()["prod"].credentials == Credentials("ops", "s3cret")
    shown = runner.invoke(profile, ["show", "prod"]).output + runner.invoke(profile, ["list"]).output
    assert "s3cret" not in added.output + shown
    assert "a:1;b:2" in shown
    assert runner.invoke(profile, ["show", "other"]).exit_code == 3
    assert runner.invoke(profile, ["add", "bad", "-n", "no address"]).exit_code == 2
    assert runner.invoke(profile, ["remove", "prod"]).exit_code == 0
    assert load_profiles() == {}


def test_a_file_of_accounts_is_checked(tmp_path: Path) -> None:
    file, runner = tmp_path / "plain_acl.yml", CliRunner()
    file.write_text("accounts:\n- {accessKey: account1, secretKey: secret-1, admin: true, topicPerms: [a=PUBLISH]}\n")
    good = runner.invoke(access, ["check", str(file)])
    assert good.exit_code == 0
    assert "1 accounts, 1 of them admins" in good.output
    assert "'PUBLISH' of 'a=PUBLISH' counts as DENY" in good.output
    file.write_text("accounts:\n- accessKey: account1\n  secretKey: short\n")
    bad = runner.invoke(access, ["check", str(file)])
    assert bad.exit_code == 1
    assert f"{file}:2:" in bad.output
    assert "short" not in bad.output
