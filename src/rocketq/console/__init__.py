"""The web console: pages and a REST API to inspect and administer clusters."""

from rocketq.console.config import ClusterTarget, ConsoleConfig, Login, Role

__all__ = ["ClusterTarget", "ConsoleConfig", "Login", "Role"]
