"""The spark-pipelines project that comes with the package, put into a folder of the user's own."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from rocketq.spark.errors import OptionError

SPEC: Final = "spark-pipeline.yml"
_FOLDER: Final = "transformations"
_STORAGE: Final = "pipeline-storage"


def make_project(folder: Path, name_servers: str, options_file: Path | None = None) -> list[Path]:
    """The created files; a folder that is not empty is not changed."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptionError(f"{folder} is there already: name a folder that is not")
    options = str(options_file.resolve()) if options_file is not None else ""
    for what, text in (("list of NameServers", name_servers), ("name of a file for options", options)):
        if any(char in text for char in '"\\\n'):
            raise OptionError(f"{text!r} is no {what}")
    templates = files("rocketq.spark.pipelines") / "project"
    storage = folder.resolve() / _STORAGE
    (folder / _FOLDER).mkdir(parents=True, exist_ok=True)
    storage.mkdir()
    spec = (templates / SPEC).read_text(encoding="utf-8")
    made = [folder / SPEC]
    for name, value in {"storage": storage.as_uri(), "name_servers": name_servers, "options_file": options}.items():
        spec = spec.replace(f"{{{{ {name} }}}}", value)
    made[0].write_text(spec)
    for template in sorted((templates / _FOLDER).iterdir(), key=lambda each: each.name):
        if template.name.endswith(".py"):
            made.append(folder / _FOLDER / template.name)
            made[-1].write_text(template.read_text(encoding="utf-8"))
    return made
