"""Filters: what a condition means, that it runs before the search, and that a value never becomes SQL."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragkit.errors import InputError
from ragkit.records import Chunk
from ragkit.retrieval import build_index
from ragkit.retrieval.filters import to_sql

COMPARE = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
SOURCES = (
    *(
        "NASA",
        "ESA",
        None,
        "",
        "O'Brien",
        "''",
        '"quoted"',
        "`tick`",
        "50%",
        "a_b",
        "back\\slash",
        "\\'",
        "new\nline",
        "emoji 🚀",
    ),
    *("שלום", "NASA' OR '1'='1", "'; DROP TABLE chunks; --", "x') OR (source != 'x", "/* c */", "-- c", "NULL", "e\u0301", "é"),
)
DATES = (
    None,
    "2023-12-31T23:59:59Z",
    "2024-06-30T10:00:00Z",
    "2024-07-01T00:00:00Z",
    "2024-07-01T23:59:59Z",
    "2024-07-02",
    "2024",
)


class AnglesEmbedder:
    """Text "i" becomes the unit vector at i degrees, so that nearness to (1, 0) falls with i."""

    dimension, identity = 2, {"model": "angles"}

    def encode_passages(self, texts, truncate=False):
        angles = np.radians([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


CHUNKS = [
    Chunk(
        f"c{i:03d}::0", f"c{i:03d}", f"Title {i}", f"u{i}", DATES[i % len(DATES)], None, str(i), 0, 1, SOURCES[i % len(SOURCES)]
    )
    for i in range(170)
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build_index(CHUNKS, AnglesEmbedder(), tmp_path_factory.mktemp("filters"))


def found(index, where, k=1000):
    return [hit.chunk for hit in index.search(np.array([1.0, 0.0]), k, where=where)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_value_is_compared_as_it_is(index, source):
    assert found(index, {"source": source}) == [chunk for chunk in CHUNKS if chunk.source == source]


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_no_text_breaks_out_of_its_quotes(index, text):
    assert found(index, {"source": text}) == [chunk for chunk in CHUNKS if chunk.source == text]
    assert found(index, {"source": ("!=", text)}) == [chunk for chunk in CHUNKS if chunk.source not in (text, None)]


def test_the_filter_runs_before_the_search(index):
    far = CHUNKS[160:]
    assert found(index, {"article_id": [chunk.article_id for chunk in far]}, k=3) == far[:3]


@pytest.mark.parametrize("sign", COMPARE)
@pytest.mark.parametrize("bound", ["2024", "2024-07", "2024-07-01", "2024-07-01T00:00:00Z", "1999", "2024-06-30"])
def test_dates_compare_at_the_given_precision(index, sign, bound):
    def meets(date):
        return date is not None and COMPARE[sign](date[: len(bound)], bound)

    assert found(index, {"published_at": (sign, bound)}) == [chunk for chunk in CHUNKS if meets(chunk.published_at)]


def test_a_day_includes_all_of_it(index):
    dates = {chunk.published_at for chunk in found(index, {"published_at": "2024-07-01"})}
    assert dates == {"2024-07-01T00:00:00Z", "2024-07-01T23:59:59Z"}
    either = {chunk.published_at for chunk in found(index, {"published_at": ["2024-07-02", "2023-12"]})}
    assert either == {"2024-07-02", "2023-12-31T23:59:59Z"}


def test_a_range_is_a_list_of_pairs(index):
    where = {"published_at": [(">=", "2024-06"), ("<=", "2024-07-01")]}
    assert {chunk.published_at for chunk in found(index, where)} == {DATES[2], DATES[3], DATES[4]}


def test_none_finds_what_has_no_value(index):
    assert found(index, {"published_at": None}) == [chunk for chunk in CHUNKS if chunk.published_at is None]
    assert found(index, {"heading": None}) == CHUNKS


def test_all_conditions_must_hold_even_beside_a_list(index):
    chosen = found(index, {"source": ["NASA", "ESA"], "published_at": (">=", "2024-07")})
    expected = [c for c in CHUNKS if c.source in ("NASA", "ESA") and c.published_at and c.published_at[:7] >= "2024-07"]
    assert chosen == expected
    assert chosen


def test_nothing_meets_it_and_nothing_is_asked(index):
    assert found(index, {"source": "no such source"}) == []
    assert found(index, {}) == CHUNKS


def test_search_many_filters_alike(index):
    queries = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
    where = {"source": "NASA"}
    assert index.search_many(queries, 4, where=where) == [index.search(query, 4, where=where) for query in queries]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"source = 'x' OR 1=1 --": "red"}, "unknown field"),
        ({"text": "x"}, "unknown field"),
        ({3: "x"}, "unknown field 3"),
        ([("source", "NASA")], "not a mapping"),
        ("source = 'NASA'", "not a mapping"),
        ({"source": ("LIKE", "%")}, "unknown operator 'LIKE'"),
        ({"source": ("= 'x' OR source =", "NASA")}, "unknown operator"),
        ({"source": ("=",)}, "not a pair"),
        ({"source": ("=", None)}, "not a string"),
        ({"source": 5}, "not a string"),
        ({"source": []}, "empty"),
        ({"source": ["NASA", None]}, "not a string"),
        ({"source": ["NASA", ("=", "ESA")]}, "not a string"),
        ({"source": "a\x00b"}, "null byte"),
        ({"source": "\ud800"}, "lone surrogate"),
        ({"published_at": (">=", "July 2024")}, "ISO 8601"),
        ({"published_at": (">=", "")}, "ISO 8601"),
        ({"published_at": (">=", "2024-7-1")}, "ISO 8601"),
        ({"published_at": (">=", 2024)}, "not a string"),
    ],
)
def test_a_wrong_condition_is_refused(index, where, message):
    with pytest.raises(InputError, match=message):
        found(index, where)


def test_the_predicate_of_the_docstring():
    sql = to_sql({"source": "NASA", "published_at": (">=", "2024-07-01")})
    assert sql == "(source = 'NASA') AND (left(published_at, 10) >= '2024-07-01')"
