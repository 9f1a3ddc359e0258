"""Raw records as Arrow batches: for pulled messages, for store files, for tools. Nothing of Spark."""

from rocketq.columns.batches import BatchBuilder, DecodedRows, decode
from rocketq.columns.schema import COLUMN_TYPES, UnknownColumnError, arrow_schema

__all__ = ["COLUMN_TYPES", "BatchBuilder", "DecodedRows", "UnknownColumnError", "arrow_schema", "decode"]
