"""Pages that the documentation site generates: copies of files in the repository's root, and tables of settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from rocketq.access.config import AccessConfig
from rocketq.access.rights import RIGHTS
from rocketq.broker.admin.settings import FIXED_KEYS
from rocketq.broker.config import BrokerConfig
from rocketq.nameserver.config import NameServerConfig
from rocketq.protocol.codes import code_name
from rocketq.store import StoreConfig

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {"ARCHITECTURE.md": "internals/architecture.md", "CHANGELOG.md": "reference/changelog.md"}
CONFIGS = {"broker": BrokerConfig, "store": StoreConfig, "nameserver": NameServerConfig, "access": AccessConfig}
UNITS = {"ms": "ms", "bytes": "bytes", "seconds": "s", "hours": "h", "percent": "%", "ratio": "0 to 1"}
_MARK = re.compile(r"^<!-- settings: (\w+) -->$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)((?:#[^)\s]*)?)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand in the repository's root, with links that fit their place in the site."""
    for name, page in ROOT_PAGES.items():
        text = _LINK.sub(lambda found, page=page: _moved(found, page), (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in settings tables; links from the documentation to root pages become links between pages."""
    markdown = _MARK.sub(lambda found: "\n".join(settings_table(CONFIGS[found[1]])), markdown)
    markdown = markdown.replace("<!-- rights -->", "\n".join(rights_table()))
    for name, page in ROOT_PAGES.items():
        markdown = re.sub(rf"\]\((?:\.\./)+{re.escape(name)}", f"](../{page}", markdown)
    return markdown


def settings_table(kind: type) -> Iterator[str]:
    """One row for each setting that has a key in Apache's configuration files."""
    yield "| setting | default | unit | at run time | what it does |"
    yield "|---|---|---|---|---|"
    for item in sorted(fields(kind), key=lambda item: item.metadata.get("key", "").lower()):
        if "key" not in item.metadata:
            continue
        key, about = item.metadata["key"], item.metadata["about"].replace("|", "\\|")
        default, unit = _default(item.default), _unit(item.name, item.default)
        yield f"| `{key}` | {default} | {unit} | {_live(kind, item)} | {about}{_bounds(item)} |"


def _bounds(item: Any) -> str:
    """The lowest and highest value of a number, if they are limited."""
    low, high = item.metadata.get("low", 0), item.metadata.get("high")
    lowest = f" At least {low:,}." if low else ""
    return lowest + (f" At most {high:,}." if high is not None else "")


def rights_table() -> Iterator[str]:
    """One row for each request code."""
    yield "| code | request | needs |"
    yield "|---|---|---|"
    for code, row in sorted(RIGHTS.items()):
        yield f"| {int(code)} | `{code_name(code)}` | {row.describe()} |"


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if value is None or value == "":
        return ""
    if isinstance(value, Path):
        return f"`{str(value).replace(str(Path.home()), '~')}`"
    return f"`{value}`"


def _unit(name: str, default: Any) -> str:
    if isinstance(default, (bool, str)):
        return ""
    words = name.removesuffix("_max").removesuffix("_min").split("_")
    return UNITS.get(words[-1], "")


def _live(kind: type, item: Any) -> str:
    if kind is StoreConfig:
        changes = item.metadata.get("live", False)
    else:
        changes = kind is BrokerConfig and item.metadata["key"] not in FIXED_KEYS
    return "yes" if changes else "restart"


def _moved(found: re.Match[str], page: str) -> str:
    target, fragment = found[1], found[2]
    up = "../" * page.count("/")
    if target.startswith("docs/"):
        return f"]({up}{target.removeprefix('docs/')}{fragment})"
    return f"]({up}{ROOT_PAGES[target]}{fragment})" if target in ROOT_PAGES else f"]({target}{fragment})"
