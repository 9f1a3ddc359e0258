"""Install a wheel into an empty environment and use it: a broker starts, a message goes in and comes out.

python tools/try_wheel.py dist
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

SECONDS_MAX = 60


def main(dist: Path) -> None:
    wheel = max(dist.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        run(str(home / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel))
        compiled = run(str(home / "venv/bin/python"), "-c", "import rocketq.kernel; print(rocketq.kernel.compiled)")
        print(f"{wheel.name}: compiled kernel: {compiled.strip()}")
        send_and_receive(home / "venv/bin/rocketq", home)
    print(f"{wheel.name}: a message was sent and received")


def send_and_receive(rocketq: Path, home: Path) -> None:
    ready = home / "ready.json"
    options = (
        "--data-dir",
        str(home / "data"),
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
        "--ready-file",
        str(ready),
    )
    server = subprocess.Popen([str(rocketq), "up", *options, "--log-level", "error"], env=environment(home))
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not ready.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit("the broker did not start")
            time.sleep(0.1)
        name_server = str(json.loads(ready.read_text())["addresses"]["namesrv"])
        run(str(rocketq), "send", "-n", name_server, "WheelCheck", "hello", home=home)
        received = run(
            str(rocketq), "tail", "-n", name_server, "WheelCheck", "--from", "earliest", "--no-follow", home=home
        )
        if "hello" not in received:
            sys.exit(f"the message was not received: {received}")
    finally:
        server.terminate()
        server.wait(SECONDS_MAX)


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROCKETQ", "NAMESRV"))}
    return kept | {"HOME": str(home)}


def run(*command: str, home: Path | None = None) -> str:
    env = environment(home) if home else None
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=env).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
