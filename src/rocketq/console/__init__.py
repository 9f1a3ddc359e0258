"""The web console: pages and a REST API to look at clusters and to change them."""

from rocketq.console.config import ClusterTarget, ConsoleConfig, Login, Role

__all__ = ["ClusterTarget", "ConsoleConfig", "Login", "Role"]
