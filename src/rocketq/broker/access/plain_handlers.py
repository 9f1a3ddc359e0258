"""Accounts of ACL 1.0 by request (50 to 54). Changes work at once and rewrite the file the account is in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketq.access.config import MASK
from rocketq.access.plain import PlainAccount, require_known_permissions
from rocketq.access.plain_files import LoadedFiles, PlainFile, PlainFiles, merged_account
from rocketq.access.service import AccessService
from rocketq.broker.admin.settings import Settings
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.accounts import AccessConfig, Account
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.fastjson import dumps
from rocketq.protocol.headers import admin as headers
from rocketq.remoting import Handlers, Reply, Request, RequestRejected
from rocketq.remoting.address import join_addr
from rocketq.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class PlainPorts:
    service: AccessService
    files: PlainFiles
    settings: Settings
    clock: Clock
    changing: asyncio.Lock
    """Changes are made one after the other: each rewrites a file."""

    async def change(self, make: Callable[[], LoadedFiles], failure: int) -> None:
        """Write the file on another thread, then decide by it; what cannot be done is answered with `failure`."""
        try:
            loaded = await asyncio.to_thread(make)
        except ConfigError as error:
            raise RequestRejected(failure, str(error)) from None
        self.service.take_rules(loaded)


handlers: Handlers[PlainPorts] = Handlers()


@handlers.on(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
async def put_account(request: Request[headers.UpdateAccountRequest], ports: PlainPorts) -> Reply:
    header, failure = request.header, int(ResponseCode.UPDATE_ACL_CONFIG_FAILED)
    async with ports.changing:
        before = ports.files.loaded.rules.accounts.get(header.access_key or "")
        try:
            account = _account(header, before)
        except ConfigError as error:
            raise RequestRejected(failure, str(error)) from None
        await ports.change(lambda: ports.files.put_account(account, ports.clock.now_ms()), failure)
    _record(request, ports, account.access_key, before, account)
    return Reply()


def _account(header: headers.UpdateAccountRequest, before: PlainAccount | None) -> PlainAccount:
    topics, groups = _listed(header.topic_perms), _listed(header.group_perms)
    account = merged_account(
        before,
        header.access_key or "",
        header.secret_key or "",
        {
            "white_address": header.white_addr,
            "admin": header.admin,
            "default_topic": header.default_topic_perm,
            "default_group": header.default_group_perm,
            "topic_perms": topics,
            "group_perms": groups,
        },
    )
    require_known_permissions((*(topics or ()), *(groups or ())))
    return account


def _listed(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


@handlers.on(RequestCode.DELETE_ACL_CONFIG)
async def delete_account(request: Request[headers.DeleteAccountRequest], ports: PlainPorts) -> Reply:
    access_key, failure = request.header.access_key, int(ResponseCode.DELETE_ACL_CONFIG_FAILED)
    async with ports.changing:
        before = ports.files.loaded.rules.accounts.get(access_key)
        if before is None:
            remark = f"The accesskey[{access_key}] corresponding to accessConfig has been deleted failed."
            raise RequestRejected(failure, remark)
        await ports.change(lambda: ports.files.remove_account(access_key, ports.clock.now_ms()), failure)
    _record(request, ports, access_key, before, None)
    return Reply()


@handlers.on(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
async def put_white_addresses(request: Request[headers.UpdateWhiteAddrsRequest], ports: PlainPorts) -> Reply:
    header, failure = request.header, int(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_FAILED)
    addresses = _listed(header.addrs) or ()
    path = Path(header.file) if header.file else None
    async with ports.changing:
        before = _white_addresses(ports)
        try:
            await ports.change(lambda: ports.files.put_white_addresses(addresses, path, ports.clock.now_ms()), failure)
        except RequestRejected as refusal:
            remark = f"The globalWhiteAddresses[{header.addrs}] has been updated failed. {refusal.remark}"
            raise RequestRejected(failure, remark) from None
    details = {"globalWhiteRemoteAddresses": {"before": before, "after": _white_addresses(ports)}}
    _record_change(request, ports, details)
    return Reply()


@handlers.on(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
def versions(request: Request[None], ports: PlainPorts) -> Reply:
    config, files = ports.settings.config, ports.files.loaded.files
    own = files.get(ports.files.default_file, PlainFile())
    return Reply(
        header=headers.AccessVersionResponse(
            data_version=own.version.encode().decode(),
            broker_name=config.name,
            broker_addr=join_addr(config.ip, config.port),
            cluster=config.cluster,
            file_versions=dumps({str(path): found.version.to_json() for path, found in files.items()}).decode(),
        )
    )


@handlers.on(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
def accounts(request: Request[None], ports: PlainPorts) -> Reply:
    """Without their secrets."""
    found = ports.files.loaded.rules.accounts.values()
    body = AccessConfig(white_addrs=tuple(_white_addresses(ports)), accounts=tuple(map(_shown, found)))
    return Reply(body=body)


def _white_addresses(ports: PlainPorts) -> list[str]:
    return [pattern.text for pattern in ports.files.loaded.rules.white_addresses]


def _shown(account: PlainAccount) -> Account:
    return Account(
        access_key=account.access_key,
        secret_key=MASK,
        white_addr=account.white_address.text or None,
        admin=account.admin,
        default_topic_perm=account.default_topic,
        default_group_perm=account.default_group,
        topic_perms=account.topic_perms or None,
        group_perms=account.group_perms or None,
    )


_SHOWN: Final = ("whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms")


def _record(
    request: Request[Any], ports: PlainPorts, access_key: str, before: PlainAccount | None, after: PlainAccount | None
) -> None:
    def shown(account: PlainAccount | None) -> dict[str, Any] | None:
        if account is None:
            return None
        members = _shown(account).to_json()
        return {name: members[name] for name in _SHOWN if name in members}

    secret_changed = before is not None and after is not None and before.secret_key != after.secret_key
    details = {"changed": access_key, "before": shown(before), "after": shown(after), "secretChanged": secret_changed}
    _record_change(request, ports, details)


def _record_change(request: Request[Any], ports: PlainPorts, details: dict[str, Any]) -> None:
    control = ports.service.control
    user = control.principal_of(request.command)
    control.record_change(user, request.connection.peer_host, request.command.code, details)
