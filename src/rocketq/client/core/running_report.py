"""What a consumer tells operators about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from rocketq.client.core.consumer_config import PullConfig, PushConfig
from rocketq.protocol.flags import ConsumeType
from rocketq.protocol.versions import OUR_VERSION, version_name


def running_properties(
    *,
    name_servers: Sequence[str],
    consume_type: ConsumeType,
    orderly: bool,
    workers: int,
    began_ms: int,
    settings: PushConfig | PullConfig,
) -> dict[str, str]:
    """The names Apache's tools look for, and every setting by its own name."""
    known = {
        "PROP_NAMESERVER_ADDR": "".join(f"{addr};" for addr in name_servers),
        "PROP_CONSUME_TYPE": consume_type.value,
        "PROP_CONSUMEORDERLY": "true" if orderly else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(workers),
        "PROP_CONSUMER_START_TIMESTAMP": str(began_ms),
        "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
    }
    return known | {item.name: str(getattr(settings, item.name)) for item in fields(settings)}
