"""What users test with too: a cluster in the test process, pytest fixtures, a disk that tears writes."""

from rocketq.testing.embedded import EmbeddedCluster

__all__ = ["EmbeddedCluster"]
