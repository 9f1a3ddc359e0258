"""What goes wrong between Spark and brokers, each in one line."""

from __future__ import annotations

from rocketq.errors import RocketQError


class SparkError(RocketQError):
    """Of the source, the sink or a pipeline."""


class OptionError(SparkError):
    """An option is missing, unknown, contradicts another one or has a value it cannot have."""


class DataLossError(SparkError):
    """Messages that were to be read are not there any more."""
