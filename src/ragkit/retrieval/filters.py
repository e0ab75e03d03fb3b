"""A mapping of conditions turned into the SQL predicate that LanceDB filters with. Values are always quoted, never pasted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragkit.errors import InputError

FIELDS = ("article_id", "chunk_id", "heading", "published_at", "source", "title", "url")
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d([T ].+)?)?)?")


def _literal(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"filter on {field}: {value!r} is not a string: give strings, dates as '2024-07-01'")
    if re.search("[\x00\ud800-\udfff]", value):
        raise InputError(f"filter on {field}: the value {value!r} holds a null byte or a lone surrogate: remove it")
    if field == "published_at" and not _DATE.fullmatch(value):
        raise InputError(f"filter on {field}: {value!r} is not an ISO 8601 date: write 2024, 2024-07 or 2024-07-01")
    return "'" + value.replace("'", "''") + "'"


def _comparison(field: str, operator: Any, value: Any) -> str:
    if operator not in OPERATORS:
        raise InputError(f"filter on {field}: unknown operator {operator!r}: choose from {' '.join(OPERATORS)}")
    literal = _literal(field, value)
    # A date is compared at the precision it is given in, so that <= '2024-07-01' includes that whole day.
    left = f"left({field}, {len(value)})" if field == "published_at" else field
    return f"{left} {operator} {literal}"


def _condition(field: str, value: Any) -> str:
    if value is None:
        return f"{field} IS NULL"
    if isinstance(value, tuple):
        if len(value) != 2:
            raise InputError(f"filter on {field}: {value!r} is not a pair (operator, value)")
        return _comparison(field, *value)
    if isinstance(value, list):
        if not value:
            raise InputError(f"filter on {field}: the list of values is empty: leave the field out or give a value")
        if all(isinstance(part, tuple) for part in value):
            return " AND ".join(_condition(field, part) for part in value)
        return " OR ".join(_comparison(field, "=", part) for part in value)
    return _comparison(field, "=", value)


def to_sql(where: Mapping[str, Any]) -> str:
    """Turn `{"source": "NASA", "published_at": (">=", "2024-07-01")}` into a predicate; all conditions must hold.

    A value is a string (equal), None (absent), a list of strings (any of them), a pair (operator, string), or a list of pairs
    (all of them). Dates are compared at the precision that is given. A chunk without the field meets no condition but None.

    Raises
    ------
    InputError
        Unknown field or operator, a value that is not a string, or a date that is not ISO 8601.
    """
    if not isinstance(where, Mapping):
        raise InputError(f"filter {where!r} is not a mapping: give one such as {{'source': 'NASA'}}")
    unknown = [field for field in where if field not in FIELDS]
    if unknown:
        raise InputError(f"filter on unknown field {unknown[0]!r}: choose from {', '.join(FIELDS)}")
    return " AND ".join(f"({_condition(field, value)})" for field, value in where.items())
