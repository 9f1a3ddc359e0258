"""Message filters: tags, SQL92 conditions on properties, bloom filter bitmaps."""

from rocketq.filter.bloom import BloomGeometry
from rocketq.filter.sql import BadExpressionError, compile_sql, compile_steps, is_compiled, load_parser
from rocketq.filter.tags import parse_tags, tag_code

__all__ = [
    "BadExpressionError",
    "BloomGeometry",
    "compile_sql",
    "compile_steps",
    "is_compiled",
    "load_parser",
    "parse_tags",
    "tag_code",
]
