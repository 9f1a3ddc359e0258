"""The YAML files of ACL 1.0: read all or nothing with file and line of an error, watched, and rewritten on request.

    conf/acl/**/*.yml, *.yaml     read first; a tools.yml directly in conf/acl is the command line's and skipped
    conf/plain_acl.yml            read last; new accounts are written here
    aclFile                       in place of both, where it is set

An access key in two files: the first one read counts. Nothing here is called while requests are decided.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from rocketq.access.addresses import AddressPattern, BadAddressError
from rocketq.access.plain import PlainAccount, PlainRules, make_account
from rocketq.access.sealing import SEALED_PREFIX
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import DataVersion

log = logging.getLogger(__name__)

WHITE_LIST: Final = "globalWhiteRemoteAddresses"
PLAIN_FILE: Final = Path("conf/plain_acl.yml")
FOLDER: Final = Path("conf/acl")
_TOOLS: Final = "tools.yml"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class PlainFile:
    """What one file says. `document` is the file as YAML has it, for rewriting."""

    white_addresses: tuple[AddressPattern, ...] = ()
    accounts: tuple[PlainAccount, ...] = ()
    version: DataVersion = field(default_factory=DataVersion)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    rules: PlainRules = field(default_factory=PlainRules)
    files: Mapping[Path, PlainFile] = field(default_factory=dict)
    owners: Mapping[str, Path] = field(default_factory=dict)
    """Which file an account is in."""


def parse_plain_file(text: str, where: str, unseal: Callable[[str], str] | None = None) -> PlainFile:
    """ConfigError begins with the file and the line. `unseal` reads `enc:` secrets."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            document = loader.construct_document(root) if root is not None else {}
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{where}{line}: {getattr(error, 'problem', None) or error}") from None
    except (ValueError, RecursionError) as error:  # a timestamp that is none, very deep nesting
        raise ConfigError(f"{where}: {error}") from None
    if root is None:
        return PlainFile()
    members = _members(root, where)
    white = tuple(_pattern(node, where) for node in _items(members.get(WHITE_LIST), where))
    accounts: dict[str, PlainAccount] = {}
    for node in _items(members.get("accounts"), where):
        account = _account(node, where, unseal)
        if account.access_key in accounts:
            raise _error(node, where, f"accessKey {account.access_key} has two accounts in this file")
        accounts[account.access_key] = account
    return PlainFile(white, tuple(accounts.values()), _version(document), _with_texts(document, accounts))


def _error(node: Any, where: str, reason: str) -> ConfigError:
    return ConfigError(f"{where}:{node.start_mark.line + 1}: {reason}")


def _members(node: Any, where: str) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise _error(node, where, "names with values were expected here")
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _error(key, where, "a name was expected here")
        if key.value in found:
            raise _error(key, where, f"{key.value} is there twice")
        found[key.value] = value
    return found


def _items(node: Any, where: str) -> list[Any]:
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value.strip()):
        return []
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return []
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.ScalarNode):
        return [node]
    raise _error(node, where, "a list was expected here")


def _text(node: Any, where: str) -> str:
    """A scalar as it is written: numbers count as text."""
    if node is None:
        return ""
    if not isinstance(node, yaml.ScalarNode):
        raise _error(node, where, "a single value was expected here")
    return "" if node.tag == "tag:yaml.org,2002:null" else str(node.value)


def _pattern(node: Any, where: str) -> AddressPattern:
    try:
        return AddressPattern.parse(_text(node, where))
    except BadAddressError as error:
        raise _error(node, where, str(error)) from None


def _account(node: Any, where: str, unseal: Callable[[str], str] | None) -> PlainAccount:
    members = _members(node, where)
    access_key, secret = _text(members.get("accessKey"), where), _text(members.get("secretKey"), where)
    admin = _text(members.get("admin"), where).strip().lower()
    if admin not in ("", "true", "false"):
        raise _error(members["admin"], where, f"admin of {access_key} is true or false, not {admin}")
    try:
        if secret.startswith(SEALED_PREFIX):
            if unseal is None:
                raise ConfigError("an enc: secret needs the key file of the broker")
            secret = unseal(secret)
        return make_account(
            access_key,
            secret,
            white_address=_text(members.get("whiteRemoteAddress"), where),
            admin=admin == "true",
            default_topic=_text(members.get("defaultTopicPerm"), where) or None,
            default_group=_text(members.get("defaultGroupPerm"), where) or None,
            topic_perms=[_text(each, where) for each in _items(members.get("topicPerms"), where)],
            group_perms=[_text(each, where) for each in _items(members.get("groupPerms"), where)],
        )
    except ConfigError as error:
        if str(error).startswith(where):
            raise
        raise _error(node, where, str(error)) from None


def _version(document: Any) -> DataVersion:
    """Written by brokers; whatever else is there counts as none."""
    listed = document.get("dataVersion") if isinstance(document, dict) else None
    entry = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(entry, dict):
        return DataVersion()
    counter, timestamp = entry.get("counter"), entry.get("timestamp")
    return DataVersion(
        counter=counter if isinstance(counter, int) else 0, timestamp_ms=timestamp if isinstance(timestamp, int) else 0
    )


def _with_texts(document: Any, accounts: Mapping[str, PlainAccount]) -> dict[str, Any]:
    """Numbers among keys and secrets are texts when they are written again; sealed secrets stay sealed."""
    found = dict(document) if isinstance(document, dict) else {}
    entries = [dict(entry) for entry in found.get("accounts") or () if isinstance(entry, dict)]
    for entry, account in zip(entries, accounts.values(), strict=False):
        entry["accessKey"] = account.access_key
        if not str(entry.get("secretKey", "")).startswith(SEALED_PREFIX):
            entry["secretKey"] = account.secret_key
    if "accounts" in found:
        found["accounts"] = entries
    return found


class PlainFiles:
    """The files below a home, or one file. All methods read or write files."""

    def __init__(self, home: Path | None, acl_file: Path | None, unseal: Callable[[str], str] | None = None) -> None:
        if home is None and acl_file is None:
            raise ConfigError("aclEnable=true needs rocketmqHome, ROCKETMQ_HOME or aclFile: there are no accounts")
        self._home = home
        self._acl_file = acl_file
        self._unseal = unseal
        self._stamps: dict[Path, tuple[int, int, int]] = {}
        self._warned: set[Path] = set()
        self.loaded = LoadedFiles()

    @property
    def default_file(self) -> Path:
        """Where new accounts go."""
        if self._acl_file is not None:
            return self._acl_file
        assert self._home is not None
        return self._home / PLAIN_FILE

    def open(self) -> LoadedFiles:
        """The first load; a missing default file of a home is made, empty. ConfigError when one cannot be read."""
        path = self.default_file
        if self._acl_file is None and not path.exists():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(mode=0o600)
            except OSError as error:
                raise ConfigError(f"{path} cannot be made: {error.strerror}") from None
        if self._acl_file is not None and not path.is_file():
            raise ConfigError(f"aclFile {path} does not exist")
        self._stamps = self._stamp()
        self.loaded = self._load({})
        return self.loaded

    def reload(self) -> LoadedFiles | None:
        """What the files say now, where any of them has changed. ConfigError: one cannot be read, nothing changes."""
        stamps = self._stamp()
        if stamps == self._stamps:
            return None
        self._stamps = stamps  # one that cannot be read is reported once, and read again when it changes again
        self.loaded = self._load(self.loaded.files)
        return self.loaded

    def _paths(self) -> Iterator[Path]:
        if self._acl_file is not None:
            if self._acl_file.exists():
                yield self._acl_file
            return
        assert self._home is not None
        folder = self._home / FOLDER
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix in (".yml", ".yaml") and path.is_file() and path != folder / _TOOLS:
                yield path
        if (self._home / PLAIN_FILE).exists():
            yield self._home / PLAIN_FILE

    def _stamp(self) -> dict[Path, tuple[int, int, int]]:
        stamps = {}
        for path in self._paths():
            try:
                found = path.stat()
            except OSError:
                continue
            stamps[path] = (found.st_mtime_ns, found.st_size, found.st_ino)
        return stamps

    def _load(self, before: Mapping[Path, PlainFile]) -> LoadedFiles:
        files: dict[Path, PlainFile] = {}
        owners: dict[str, Path] = {}
        accounts: dict[str, PlainAccount] = {}
        white: list[AddressPattern] = []
        for path in self._paths():
            found = self._read(path, before)
            files[path] = found
            white += [pattern for pattern in found.white_addresses if pattern.text]
            for account in found.accounts:
                if account.access_key in owners:
                    log.warning("account ignored access_key=%s file=%s reason=also in %s", account.access_key, path,
                                owners[account.access_key])  # fmt: skip
                    continue
                owners[account.access_key], accounts[account.access_key] = path, account
        for path in before.keys() - files.keys():
            log.warning("ACL file is gone, its accounts count no more file=%s", path)
        for pattern in white:
            if pattern.everything:
                log.warning("ACCESS CONTROL IS OFF FOR EVERYBODY: %s has %s", WHITE_LIST, pattern.text)
        return LoadedFiles(PlainRules(tuple(white), accounts), files, owners)

    def _read(self, path: Path, before: Mapping[Path, PlainFile]) -> PlainFile:
        try:
            self._warn_if_open(path)
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
        if not text.strip() and path in before and before[path].accounts:
            log.warning("ACL file is empty, its accounts stay as they were file=%s", path)
            return before[path]
        return parse_plain_file(text, str(path), self._unseal)

    def _warn_if_open(self, path: Path) -> None:
        if path not in self._warned and path.stat().st_mode & _OTHERS:
            self._warned.add(path)
            log.warning("secrets are readable by other users of this machine file=%s: chmod 600", path)

    # changes by request

    def put_account(self, account: PlainAccount, now_ms: int) -> LoadedFiles:
        """Add an account, or replace the one with its key in its file."""
        path = self.loaded.owners.get(account.access_key, self.default_file)
        document = self._document(path)
        entries = [dict(entry) for entry in document.get("accounts") or ()]
        entry = next((each for each in entries if each.get("accessKey") == account.access_key), None)
        if entry is None:
            entries.append(_entry_of(account, {}))
        else:
            entries[entries.index(entry)] = _entry_of(account, entry)
        return self._rewrite(path, {**document, "accounts": entries}, now_ms)

    def remove_account(self, access_key: str, now_ms: int) -> LoadedFiles:
        path = self.loaded.owners[access_key]
        document = self._document(path)
        entries = [entry for entry in document.get("accounts") or () if entry.get("accessKey") != access_key]
        return self._rewrite(path, {**document, "accounts": entries}, now_ms)

    def put_white_addresses(self, addresses: tuple[str, ...], path: Path | None, now_ms: int) -> LoadedFiles:
        """ConfigError: a file was named that is none of ours, or a pattern is wrong."""
        for address in addresses:
            AddressPattern.parse(address)
        path = path or self.default_file
        if path not in self.loaded.files and path != self.default_file:
            raise ConfigError(f"{path} is no ACL file of this broker")
        return self._rewrite(path, {**self._document(path), WHITE_LIST: list(addresses)}, now_ms)

    def _document(self, path: Path) -> dict[str, Any]:
        found = self.loaded.files.get(path)
        return dict(found.document) if found is not None else {}

    def _rewrite(self, path: Path, document: dict[str, Any], now_ms: int) -> LoadedFiles:
        """The file in one step, with the next version; then everything is read again."""
        before = self.loaded.files.get(path, PlainFile())
        version = before.version.next(now_ms)
        document["dataVersion"] = [{"counter": version.counter, "timestamp": version.timestamp_ms}]
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False)
        parse_plain_file(text, str(path), self._unseal)
        scratch = path.with_name(path.name + ".tmp")
        try:
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            with open(os.open(scratch, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            scratch.chmod(mode)
            scratch.replace(path)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
        self._stamps = self._stamp()
        self.loaded = self._load(self.loaded.files)
        return self.loaded


def _entry_of(account: PlainAccount, before: Mapping[str, Any]) -> dict[str, Any]:
    entry = dict(before)
    entry |= {"accessKey": account.access_key, "secretKey": account.secret_key}
    given: dict[str, Any] = {
        "whiteRemoteAddress": account.white_address.text or None,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic,
        "defaultGroupPerm": account.default_group,
        "topicPerms": list(account.topic_perms) or None,
        "groupPerms": list(account.group_perms) or None,
    }
    for name, value in given.items():
        if value is None:
            entry.pop(name, None)
        else:
            entry[name] = value
    return entry


def merged_account(
    before: PlainAccount | None,
    access_key: str,
    secret_key: str,
    given: Mapping[str, Any],
) -> PlainAccount:
    """The account a request asks for: what it leaves out stays as it was."""
    base = before or PlainAccount(access_key, secret_key)
    fields = {name: value for name, value in given.items() if value is not None}
    account = make_account(
        access_key,
        secret_key,
        white_address=fields.get("white_address", base.white_address.text),
        admin=fields.get("admin", base.admin),
        default_topic=fields.get("default_topic", base.default_topic),
        default_group=fields.get("default_group", base.default_group),
        topic_perms=fields.get("topic_perms", base.topic_perms),
        group_perms=fields.get("group_perms", base.group_perms),
    )
    return replace(account)
