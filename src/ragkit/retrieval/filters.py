"""A mapping of conditions turned into the SQL predicate that LanceDB filters with. Values are always quoted, never pasted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragkit.errors import InputError

FIELDS = ("article_id", "chunk_id", "heading", "published_at", "source", "title", "url")
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


def _literal(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"filter on {field}: {value!r} is not a string: dates are written like '2024-07-01'")
    if "\x00" in value:
        raise InputError(f"filter on {field}: the value holds a null byte: remove it")
    return "'" + value.replace("'", "''") + "'"


def _condition(field: str, value: Any) -> str:
    if value is None:
        return f"{field} IS NULL"
    if isinstance(value, tuple):
        if len(value) != 2 or value[0] not in OPERATORS:
            raise InputError(f"filter on {field}: {value!r} is not (operator, value) with an operator of {' '.join(OPERATORS)}")
        operator, bound = value
        literal = _literal(field, bound)
        # A date is compared at the precision it is given in, so that <= '2024-07-01' includes that whole day.
        left = f"substr({field}, 1, {len(bound)})" if field == "published_at" else field
        return f"{left} {operator} {literal}"
    if isinstance(value, list):
        if not value:
            raise InputError(f"filter on {field}: the list of values is empty: leave the field out or give a value")
        if all(isinstance(part, tuple) for part in value):
            return " AND ".join(_condition(field, part) for part in value)
        return f"{field} IN ({', '.join(_literal(field, part) for part in value)})"
    if field == "published_at":
        return _condition(field, ("=", value))
    return f"{field} = {_literal(field, value)}"


def to_sql(where: Mapping[str, Any]) -> str:
    """Turn `{"source": "NASA", "published_at": (">=", "2024-07-01")}` into a predicate; all conditions must hold.

    A value is a string (equal), None (absent), a list of strings (any of them), a pair (operator, string), or a list of pairs
    (all of them). Dates are compared at the precision that is given.

    Raises
    ------
    InputError
        Unknown field or operator, or a value that is not a string.
    """
    unknown = sorted(set(where) - set(FIELDS))
    if unknown:
        raise InputError(f"filter on unknown field {unknown[0]!r}: choose from {', '.join(FIELDS)}")
    return " AND ".join(f"({_condition(field, value)})" for field, value in where.items())
