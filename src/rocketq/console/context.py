"""What routes share: clusters with their samplers, history, audit, sessions; and how a route reaches them."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.overview import AsyncOverview
from rocketq.client.core.overview import ClusterOverview
from rocketq.console.accounts import Sessions, User, UsersFile
from rocketq.console.audit import FILE_NAME, AuditLog
from rocketq.console.config import ClusterTarget, ConsoleConfig, Role
from rocketq.console.history import History
from rocketq.console.json_text import to_json
from rocketq.console.problems import ProblemError
from rocketq.console.sampler import Sampler
from rocketq.protocol.acl import Credentials

_GZIP_FROM_BYTES: Final = 2_048
_ADMINS_MAX: Final = 200


class Cluster:
    """One cluster: an admin of the console's own for the sampler, and one per signed-in user of the cluster."""

    def __init__(self, target: ClusterTarget, config: ConsoleConfig, history: History) -> None:
        self.name = target.name
        self.target = target
        self.own = AsyncAdmin(target.name_servers, config=target.session)
        source = AsyncOverview(self.own.session, timeout_ms=config.broker_timeout_ms)
        self.sampler = Sampler(target.name, source, history, sample_s=config.sample_s, idle_s=config.idle_s)
        self._admins: dict[Credentials, AsyncAdmin] = {}

    def admin(self, user: User) -> AsyncAdmin:
        """That acts as this user, where users are those of the cluster."""
        if user.credentials is None:
            return self.own
        if user.credentials not in self._admins and len(self._admins) < _ADMINS_MAX:
            config = replace(self.target.session, credentials=user.credentials)
            self._admins[user.credentials] = AsyncAdmin(self.target.name_servers, config=config)
        return self._admins[user.credentials]

    async def close(self) -> None:
        await self.sampler.stop()
        for admin in (self.own, *self._admins.values()):
            await admin.close()


class Console:
    """Everything behind the routes."""

    def __init__(self, config: ConsoleConfig) -> None:
        self.config = config
        self.history = History(config.data_dir / "history.sqlite", config.history_bytes_max)
        self.audit = AuditLog(config.data_dir / FILE_NAME)
        self.sessions = Sessions(config.session_s)
        users_file = config.users_file or config.data_dir / "users.json"
        self.users: UsersFile | None = UsersFile(users_file)
        self.clusters: dict[str, Cluster] = {}

    async def start(self) -> None:
        await self.history.open()
        for target in self.config.clusters:
            self.clusters[target.name] = Cluster(target, self.config, self.history)
        for cluster in self.clusters.values():
            cluster.sampler.start()

    async def stop(self) -> None:
        for cluster in self.clusters.values():
            await cluster.close()
        await self.history.close()

    def cluster(self, name: str, user: User) -> Cluster:
        found = self.clusters.get(name)
        if found is None or not user.may_see(name):
            raise ProblemError(404, "not-found", f"the console serves no cluster {name}", what="cluster", name=name)
        return found


class Call:
    """One request to a cluster: who asks, as what, and how to answer. FastAPI makes it from the request."""

    def __init__(self, request: Request, cluster: str) -> None:
        self.request = request
        self.console: Console = request.app.state.console
        self.user: User = request.state.user
        self.cluster = self.console.cluster(cluster, self.user)
        self.admin = self.cluster.admin(self.user)
        self.sampler = self.cluster.sampler
        self.sampler.touch()

    @property
    def role(self) -> Role:
        return Role.VIEWER if self.console.config.read_only else self.user.role

    def require(self, role: Role) -> None:
        """ProblemError unless the user has this role."""
        if self.user.role < role:
            raise ProblemError(
                403, "role", f"{self.user.name} is {self.user.role.word}: this needs {role.word}", needs=role.word
            )

    def require_topic(self, topic: str) -> None:
        if not self.user.may_touch(topic):
            raise ProblemError(403, "topic-forbidden", f"{self.user.name} may not use topic {topic}", topic=topic)

    async def overview(self) -> ClusterOverview:
        """The newest; ProblemError while there is none."""
        await self.sampler.first()
        found: ClusterOverview | None = self.sampler.overview
        if found is None:
            detail = self.sampler.error or "the first sample is not complete yet"
            raise ProblemError(503, "no-sample", detail, retriable=True)
        return found

    def answer(self, value: Any, status: int = 200) -> Response:
        return answer(self.request, value, status)


def answer(request: Request, value: Any, status: int = 200) -> Response:
    """A JSON response, compressed where the client takes that and it pays."""
    body = to_json(value)
    headers = {"vary": "accept-encoding"}
    if len(body) >= _GZIP_FROM_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 5)
        headers["content-encoding"] = "gzip"
    return Response(body, status_code=status, media_type="application/json", headers=headers)
