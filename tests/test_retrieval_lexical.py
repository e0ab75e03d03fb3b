"""BM25 against its formula and against bm25s, the two tokenizers, filters against LanceDB's, and hybrid lists."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

import ragkit.retrieval as retrieval
from ragkit.errors import InputError
from ragkit.records import Chunk, Hit
from ragkit.retrieval import Fused, Scored, build_index, build_lexical, fuse, hybrid, search_hybrid, tokenize
from ragkit.retrieval.filters import FIELDS, OPERATORS

METHODS = ("lucene", "robertson", "atire", "bm25l", "bm25+")
WORDS = ("orbit", "orbital", "debris", "the", "of", "X-37B", "S-1", "U.S.", "25544", "9", "launches", "launch", "Soyuz", "MS-28")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=1, max_size=8)
QUERY = st.lists(st.sampled_from([*WORDS, "nowhere"]), max_size=12).map(" ".join)


def chunks_of(texts):
    return [
        Chunk(f"c{number:03d}::0", f"c{number:03d}", "", None, None, None, text, 0, len(text))
        for number, text in enumerate(texts)
    ]


def found(index, query, k=100, where=None):
    return [hit.chunk.text for hit in index.search(query, k, where=where)]


# --- words -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plain", "names"),
    [
        ("S-1", [], ["s1"]),
        ("X-37B", ["37b"], ["x37b"]),
        ("X37B, x-37b and X‑37B", ["x37b", "37b", "37b"], ["x37b", "x37b", "x37b"]),
        ("the U.S. and the US", ["us"], ["us", "us"]),
        ("I.T. is not it", [], ["it"]),
        ("STS-107", ["sts", "107"], ["sts107"]),
        ("NORAD 25544", ["norad", "25544"], ["norad", "25544"]),
        ("Soyuz MS-28's crews", ["soyuz", "ms", "28", "crew"], ["soyuz", "ms28", "crew"]),
        ("Soyuz-MS-28", ["soyuz", "ms", "28"], ["soyuz", "ms28"]),
        ("1998-067A", ["1998", "067a"], ["1998067a"]),
        ("2021-035ABS is not 2021-035AB", ["2021", "035ab", "2021", "035ab"], ["2021035abs", "2021035ab"]),
        ("PSLV-C58, H-IIA", ["pslv", "c58", "iia"], ["pslvc58", "hiia"]),
        ("Falcon 9 v1.2", ["falcon", "v1"], ["falcon", "9", "v1.2"]),
        ("B1058.10 flew. 1.5 km", ["b1058", "10", "flew", "km"], ["b1058.10", "flew", "1.5", "km"]),
        ("Ends in 2024.Then orbit", ["end", "2024", "orbit"], ["end", "2024", "orbit"]),
        ("low-cost, 10-year-old", ["low", "cost", "10", "year", "old"], ["low", "cost", "10", "year", "old"]),
        ("2024-07-01", ["2024", "07", "01"], ["2024", "07", "01"]),
        ("X-rays and e-mails", ["ray", "mail"], ["xray", "email"]),
        ("67P/Churyumov", ["67p", "churyumov"], ["67p", "churyumov"]),
        ("launches launched launching", ["launch"] * 3, ["launch"] * 3),
        ("", [], []),
        (" .,;-- — ", [], []),
        ("\ud800 \x00 orbit", ["orbit"], ["orbit"]),
    ],
)
def test_what_each_tokenizer_keeps(text, plain, names):
    assert tokenize(text, "plain") == plain
    assert tokenize(text) == tokenize(text, "names") == names


def test_names_are_found_in_either_spelling_of_an_accent():
    decomposed, composed = "o\u0301rbita", "\u00f3rbita"
    assert tokenize(decomposed, language="portuguese") == tokenize(composed, language="portuguese")


def test_portuguese_has_its_own_stop_words_and_stemmer():
    text = "os satélites e a órbita do satélite X-37B"
    assert tokenize(text, "plain", "portuguese") == ["satélit", "órbit", "satélit", "37b"]
    assert tokenize(text, "names", "portuguese") == ["satélit", "órbit", "satélit", "x37b"]
    assert "os" in tokenize(text)  # no stop word in English
    assert "the" in tokenize("the orbit", language="portuguese")
    index = build_lexical(chunks_of(["Satélites em órbita", "Foguetes na base"]), language="portuguese")
    assert found(index, "o satélite") == ["Satélites em órbita"]
    assert found(index, "o de em") == []


@given(st.text())
def test_plain_is_the_default_of_bm25s_with_snowball(text):
    expected = bm25s.tokenize(text, stopwords="en", stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False)
    assert tokenize(text, "plain") == expected[0]


@given(st.text(st.sampled_from("aA1.-_ é\u0301‑–'/\n²")))
def test_no_word_is_empty_or_crosses_a_space(text):
    words = tokenize(text)
    assert all(words)
    assert words == [word for part in text.split() for word in tokenize(part)]


# --- scores ------------------------------------------------------------------------------------------------------------------


def by_formula(texts, query, k1, b):
    """Lucene's BM25 of every text, equation in `build_lexical`, by hand."""
    documents = [Counter(tokenize(text)) for text in texts]
    mean = sum(sum(words.values()) for words in documents) / len(documents)

    def weight(word, words):
        holding = sum(word in other for other in documents)
        idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        return idf * words[word] / (words[word] + k1 * (1 - b + b * sum(words.values()) / mean)) if words[word] else 0.0

    return [math.fsum(weight(word, words) for word in tokenize(query)) for words in documents]


@given(TEXTS, QUERY, st.floats(0, 3), st.floats(0, 1))
def test_scores_are_those_of_the_formula(texts, query, k1, b):
    chunks = chunks_of(texts)
    hits = build_lexical(chunks, k1=k1, b=b).search(query, len(texts))
    expected = {one.chunk_id: score for one, score in zip(chunks, by_formula(texts, query, k1, b), strict=True) if score > 0}
    assert {hit.chunk.chunk_id: hit.score for hit in hits} == pytest.approx(expected, rel=1e-12)
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.chunk.chunk_id))


@pytest.mark.parametrize("method", METHODS)
@given(texts=TEXTS, query=QUERY)
def test_scores_are_those_of_bm25s(method, texts, query):
    words, asked = [tokenize(text) for text in texts], tokenize(query)
    index = build_lexical(chunks_of(texts), method=method)
    hits = index.search(query, len(texts))
    if not any(words) or not asked:
        assert hits == []
        return
    reference = bm25s.BM25(k1=1.2, b=0.75, method=method, dtype="float64")
    reference.index(words, show_progress=False)
    scores = reference.get_scores(asked)
    shares = [place for place, text in enumerate(words) if set(text) & set(asked)]
    assert {hit.chunk.chunk_id for hit in hits} <= {f"c{place:03d}::0" for place in shares}
    if method in ("lucene", "bm25l", "bm25+"):  # the others give a word weight zero that most chunks hold
        assert len(hits) == len(shares)
    for hit in hits:
        assert hit.score == pytest.approx(scores[int(hit.chunk.chunk_id[1:4])], rel=1e-12)
        assert math.isfinite(hit.score)
        assert hit.score > 0


def test_worked_example_of_the_docstring():
    index = build_lexical(chunks_of(["orbit debris", "orbit", "launch"]), k1=1, b=0)
    (best, second) = index.search("debris orbit", 9)
    assert best.score == pytest.approx(math.log(1 + 2.5 / 1.5) / 2 + math.log(1 + 1.5 / 2.5) / 2, rel=1e-15)
    assert second == Scored(index.chunks[1], pytest.approx(math.log(1 + 1.5 / 2.5) / 2, rel=1e-15), 2)


def test_the_order_of_words_and_of_chunks_is_irrelevant_to_the_last_bit():
    texts = [" ".join(WORDS[start : start + 5]) for start in range(9)]
    forward, backward = build_lexical(chunks_of(texts)), build_lexical(chunks_of(texts)[::-1])
    assert forward.search(" ".join(WORDS), 9) == forward.search(" ".join(WORDS[::-1]), 9) == backward.search(" ".join(WORDS), 9)


def test_scores_do_not_depend_on_the_hashes_of_a_process():
    program = (
        "from ragkit.records import Chunk\n"
        "from ragkit.retrieval import build_lexical\n"
        f"words = {WORDS}\n"
        "texts = [' '.join(words[start : start + 5]) for start in range(9)]\n"
        "index = build_lexical([Chunk(str(i), '', '', None, None, None, text, 0, 1) for i, text in enumerate(texts)])\n"
        "print([(hit.chunk.chunk_id, hit.score.hex()) for hit in index.search(' '.join(words), 9)])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_equal_chunks_tie_and_go_by_id():
    index = build_lexical(chunks_of(["debris", "orbit debris", "debris", "debris"])[::-1])
    hits = index.search("debris", 3)
    assert [hit.chunk.chunk_id for hit in hits] == ["c000::0", "c002::0", "c003::0"]
    assert len({hit.score for hit in hits}) == 1
    many = build_lexical(chunks_of(["debris", "orbit", "debris field"] * 100))
    assert [hit.chunk for hit in many.search("debris", 150)] == [*many.chunks[::3], *many.chunks[2::3][:50]]


def test_a_vehicle_is_not_its_siblings():
    texts = ["The X-37B landed.", "The X-37A landed.", "The 37B bus landed.", "Soyuz MS-27 landed.", "Soyuz MS-28 landed."]
    texts += ["The S-1 stage landed.", "The S-2 stage landed.", "U.S. crews landed.", "Object 25544", "Object 25545"]
    index = build_lexical(chunks_of(texts))
    for query, place in {"x-37b": 0, "X37B?": 0, "MS-28": 4, "S-1": 5, "US": 7, "u.s.": 7, "25544": 8}.items():
        assert found(index, query) == [texts[place]], query
    assert texts[0] not in found(build_lexical(chunks_of(texts), tokenizer="plain"), "S-1")


# --- what may be asked -------------------------------------------------------------------------------------------------------


def test_nothing_shared_is_nothing_found():
    index = build_lexical(chunks_of(["orbit debris", "launch"]))
    for query in ("", "  ", "the of and", "?!", "unheard", "\ud800", "\x00"):
        assert index.search(query, 5) == [], query


def test_k_may_exceed_the_corpus_and_zero_scores_are_no_hits():
    index = build_lexical(chunks_of(["orbit debris", "launch", "orbit"]))
    assert found(index, "orbit", k=10**6) == ["orbit", "orbit debris"]
    assert found(index, "orbit", k=np.int64(1)) == ["orbit"]


@pytest.mark.parametrize("method", METHODS)
def test_a_corpus_of_one_and_one_without_words(method):
    one = build_lexical(chunks_of(["orbit"]), method=method)
    assert len(one) == one.vocabulary == 1
    # With one chunk, the word is in all of them: robertson and atire give it no weight.
    assert found(one, "orbit orbit") == ([] if method in ("robertson", "atire") else ["orbit"])
    none = build_lexical(chunks_of(["the of", ""]), method=method)
    assert (len(none), none.vocabulary) == (2, 0)
    assert none.search("orbit the", 3) == []
    assert none.search("the", 3, where={"source": "NASA"}) == []


def test_a_query_of_ten_thousand_words():
    index = build_lexical(chunks_of(["orbit debris", "launch", "orbit"]))
    hits = index.search("orbit launch " * 5000, 3)
    once = {hit.chunk: hit.score for hit in index.search("orbit launch", 3)}
    assert {hit.chunk: hit.score for hit in hits} == pytest.approx({one: 5000 * score for one, score in once.items()}, rel=1e-9)


def test_search_many_equals_one_by_one():
    index = build_lexical(chunks_of([" ".join(WORDS[start : start + 4]) for start in range(10)]))
    queries = ["orbit", "", "MS-28 launch", "the"]
    assert index.search_many(queries, 4) == [index.search(query, 4) for query in queries]
    assert index.search_many([], 4) == []


def test_chunks_need_no_order_and_stay_as_they_are():
    chunks = chunks_of(["b", "orbit", "c"])[::-1]
    index = build_lexical(chunks)
    assert list(index.chunks) == chunks[::-1]
    assert index.search("orbit", 1)[0].chunk is chunks[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tokenizer": "words"}, "tokenizer 'words' is unknown: choose from plain, names"),
        ({"language": "pt"}, "language 'pt' is unknown: choose from english, portuguese"),
        ({"method": "tfidf"}, "method 'tfidf' is unknown"),
        ({"tokenizer": ["plain"]}, "unknown"),
        ({"k1": -0.1}, "k1 is -0.1"),
        ({"k1": math.nan}, "k1 is nan"),
        ({"k1": math.inf}, "k1 is inf"),
        ({"k1": "1.2"}, "k1 is '1.2'"),
        ({"k1": True}, "k1 is True"),
        ({"b": 1.01}, "b is 1.01"),
        ({"b": -1e-9}, "b is"),
        ({"b": None}, "b is None"),
        ({"chunks": []}, "no chunks"),
        ({"chunks": chunks_of(["a"]) * 2}, "occurs twice"),
    ],
)
def test_wrong_options_are_refused(options, says):
    with pytest.raises(InputError, match=says):
        build_lexical(**{"chunks": chunks_of(["orbit"]), **options})


@pytest.mark.parametrize("k", [0, -1, 1.0, "3", True, None])
def test_k_below_one_or_not_whole_is_refused(k):
    with pytest.raises(InputError, match="k is"):
        build_lexical(chunks_of(["orbit"])).search("orbit", k)
    with pytest.raises(InputError, match="k is"):
        hybrid([], [], k)
    with pytest.raises(InputError, match="candidates is"):
        hybrid([], [], 1, candidates=k)


def test_a_query_is_a_string_and_queries_are_not_one():
    index = build_lexical(chunks_of(["orbit"]))
    for query in (None, 7, b"orbit", ["orbit"]):
        with pytest.raises(InputError, match="not a text"):
            index.search(query, 1)
    with pytest.raises(InputError, match="one string"):
        index.search_many("orbit", 1)
    for option in ({"tokenizer": "x"}, {"language": "x"}):
        with pytest.raises(InputError, match="unknown"):
            tokenize("orbit", **option)


# --- filters -----------------------------------------------------------------------------------------------------------------

SOURCES = (
    None,
    "",
    "NASA",
    "ESA",
    "nasa",
    "O'Brien",
    "x' OR '1'='1",
    "שלום",
    "é",
    "e\u0301",
    "🚀",
    "\U0001f680b",
    "\uffff",
    "a%b",
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
STAMPED = [
    replace(
        one,
        source=SOURCES[place % len(SOURCES)],
        published_at=DATES[place % len(DATES)],
        url=None if place % 3 else f"https://example.org/{place % 5}",
        heading=SOURCES[place // 5 % len(SOURCES)],
        title=f"Title {place % 4}",
    )
    for place, one in enumerate(chunks_of(["orbit"] * 60))
]


class OneDirection:
    """Every text is the same unit vector: a search by it returns whatever the filter lets through."""

    dimension, identity = 2, {"model": "one direction"}

    def encode_passages(self, texts, truncate=False):
        return np.tile(np.float32([1, 0]), (len(texts), 1))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_index(STAMPED, OneDirection(), tmp_path_factory.mktemp("lexical"))


@pytest.fixture(scope="module")
def lexical():
    return build_lexical(STAMPED)


TEXT = st.one_of(
    st.sampled_from([text for text in SOURCES if text is not None] + ["Title 2", "c007", "c007::0", "https://example.org/3"]),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=4),
)
DATE = st.sampled_from(
    ["2024", "2024-07", "2024-07-01", "2024-07-01T00:00:00Z", "2023", "2024-07-01T23:59:59Z and more", "1999-01"]
)


def conditions(value):
    pair = st.tuples(st.sampled_from(OPERATORS), value)
    some = st.lists(value, min_size=1, max_size=3)
    return st.one_of(st.none(), value, pair, some, st.lists(pair, min_size=1, max_size=3))


def condition_on(field):
    return conditions(DATE if field == "published_at" else TEXT).map(lambda condition: {field: condition})


# One field, or two: with more of them hardly a chunk would be left to disagree about.
ONE = st.sampled_from(FIELDS).flatmap(condition_on)
WHERE = st.one_of(ONE, ONE, st.tuples(ONE, ONE).map(lambda both: both[0] | both[1]))


@given(where=WHERE)
def test_a_filter_means_what_it_means_to_lancedb(table, lexical, where):
    kept = [hit.chunk for hit in table.search(np.array([1.0, 0.0]), 100, where=where)]
    assert [hit.chunk for hit in lexical.search("orbit", 100, where=where)] == kept


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("bound", ["2024", "2024-07", "2024-07-01", "2024-07-01T00:00:00Z"])
def test_dates_compare_at_the_given_precision(table, lexical, sign, bound):
    where = {"published_at": (sign, bound)}
    kept = [hit.chunk for hit in table.search(np.array([1.0, 0.0]), 100, where=where)]
    assert [hit.chunk for hit in lexical.search("orbit", 100, where=where)] == kept
    assert kept or sign == ">"


def test_the_filter_runs_before_the_search_and_leaves_the_statistics(lexical):
    last = STAMPED[-3:]
    where = {"chunk_id": [one.chunk_id for one in last]}
    hits = lexical.search("orbit", 2, where=where)
    assert [hit.chunk for hit in hits] == last[:2]
    assert hits[0].score == lexical.search("orbit", 1)[0].score
    assert lexical.search("orbit", 5, where={}) == lexical.search("orbit", 5)
    assert lexical.search("orbit", 5, where={"source": "nobody"}) == []


@pytest.mark.parametrize("method", METHODS)
def test_no_method_lets_a_filtered_chunk_through(method):
    chunks = [
        replace(one, source=source)
        for one, source in zip(
            chunks_of(["orbit", "orbit x1", "debris", "launch", "moon"]), ["a", "b", "a", "b", "a"], strict=True
        )
    ]
    index = build_lexical(chunks, method=method)
    assert found(index, "orbit", where={"source": "b"}) == ["orbit x1"]
    assert found(index, "orbit debris", where={"source": "a"}) == ["debris", "orbit"]


@pytest.mark.parametrize(
    "where",
    [{"colour": "red"}, "source = 'x'", [("source", "x")], {"source": 5}, {"source": []}, {"source": ("LIKE", "%")}]
    + [{"published_at": "July"}, {"source": "a\x00"}, {"source": ["NASA", ("=", "ESA")]}],
)
def test_a_wrong_filter_is_refused_as_the_index_refuses_it(table, lexical, where):
    with pytest.raises(InputError) as ours:
        lexical.search("orbit", 1, where=where)
    with pytest.raises(InputError) as theirs:
        table.search(np.array([1.0, 0.0]), 1, where=where)
    assert str(ours.value) == str(theirs.value)


# --- hybrid ------------------------------------------------------------------------------------------------------------------

FIVE = chunks_of(["one", "two", "three", "four", "five"])
PLACES = st.lists(st.integers(0, 4), unique=True)


def dense_hits(places):
    return [Hit(FIVE[place], 0.9 - rank / 10, rank) for rank, place in enumerate(places, start=1)]


def lexical_hits(places):
    return [Scored(FIVE[place], 9.0 - rank, rank) for rank, place in enumerate(places, start=1)]


def test_worked_hybrid():
    assert hybrid(dense_hits([0, 1, 2]), lexical_hits([1, 3]), k=3) == [
        Fused(FIVE[1], pytest.approx(1 / 62 + 1 / 61, abs=1e-16), 1, 2, 1),
        Fused(FIVE[0], pytest.approx(1 / 61, abs=1e-16), 2, 1, None),
        Fused(FIVE[3], pytest.approx(1 / 62, abs=1e-16), 3, None, 2),
    ]


@given(PLACES, PLACES, st.integers(1, 6), st.sampled_from([0, 1, 60]), st.integers(1, 6))
def test_hybrid_is_the_fusion_of_the_ids(dense, lexical, k, c, candidates):
    fused = hybrid(dense_hits(dense), lexical_hits(lexical), k, c, candidates)
    dense, lexical = dense[:candidates], lexical[:candidates]
    ids = [[FIVE[place].chunk_id for place in places] for places in (dense, lexical)]
    assert [(hit.chunk.chunk_id, hit.score) for hit in fused] == fuse(ids, c)[:k]
    assert [hit.rank for hit in fused] == list(range(1, len(fused) + 1))
    for hit in fused:
        place = FIVE.index(hit.chunk)
        assert hit.dense_rank == (dense.index(place) + 1 if place in dense else None)
        assert hit.lexical_rank == (lexical.index(place) + 1 if place in lexical else None)


def test_a_chunk_that_both_lists_rank_low_can_win_only_among_wide_candidates():
    many = chunks_of([f"text {number}" for number in range(100)])
    common = many[0]
    dense = [Hit(one, 0.5, rank) for rank, one in enumerate([*many[1:20], common], start=1)]
    lexical = [Scored(one, 1.0, rank) for rank, one in enumerate([*many[21:40], common], start=1)]
    assert hybrid(dense, lexical, 1)[0] == Fused(common, pytest.approx(2 / 80), 1, 20, 20)
    assert hybrid(dense, lexical, 1, candidates=19)[0].chunk != common


def test_one_empty_list_keeps_the_order_of_the_other():
    assert [hit.chunk for hit in hybrid(dense_hits([3, 1, 4]), [], 2)] == [FIVE[3], FIVE[1]]
    assert [hit.chunk for hit in hybrid([], lexical_hits([3, 1, 4]), 9)] == [FIVE[3], FIVE[1], FIVE[4]]
    assert hybrid([], [], 3) == []


def test_a_repeated_chunk_counts_once_and_two_chunks_of_one_id_are_refused():
    assert hybrid(dense_hits([0, 0, 1]), [], 3)[1].dense_rank == 2
    other = Scored(replace(FIVE[0], text="another index"), 1.0, 1)
    with pytest.raises(InputError, match=r"'c000::0' is two different chunks"):
        hybrid(dense_hits([0]), [other], 3)
    with pytest.raises(InputError, match="c is"):
        hybrid(dense_hits([0]), [], 3, c=math.nan)


class Compass:
    """Text "at N ..." becomes the unit vector at N degrees."""

    dimension, identity = 2, {"model": "compass"}

    def encode_passages(self, texts, truncate=False):
        angles = np.radians([float(text.split()[1]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_search_hybrid_asks_both_indexes_widely_and_filters_both(tmp_path):
    chunks = [
        replace(one, source="odd" if place % 2 else "even")
        for place, one in enumerate(
            chunks_of([f"at {place / 2} degrees" for place in range(150)] + ["at 80 X-37B", "at 81 X-37B"])
        )
    ]
    index = build_index(chunks, Compass(), tmp_path)
    lexical = build_lexical(index.chunks)
    east = np.array([1.0, 0.0])
    fused = search_hybrid(index, lexical, "X-37B", east, 3)
    assert [(hit.chunk.text, hit.dense_rank, hit.lexical_rank) for hit in fused] == [
        ("at 0.0 degrees", 1, None),
        ("at 80 X-37B", None, 1),
        ("at 0.5 degrees", 2, None),
    ]
    both = search_hybrid(index, lexical, "X-37B", east, 1, candidates=200)
    assert (both[0].chunk.text, both[0].dense_rank, both[0].lexical_rank) == ("at 80 X-37B", 151, 1)
    assert len(search_hybrid(index, lexical, "", east, 150)) == 150  # k beyond the candidates widens them
    odd = search_hybrid(index, lexical, "X-37B", east, 2, where={"source": "odd"})
    assert [hit.chunk.text for hit in odd] == ["at 81 X-37B", "at 0.5 degrees"]  # 76 of them: both lists hold it
    for wrong in ({"k": 0}, {"k": 1, "candidates": 0}):
        with pytest.raises(InputError, match="whole number"):
            search_hybrid(index, lexical, "X-37B", east, **wrong)


def test_every_exported_name_resolves_and_bm25_loads_no_table():
    assert set(retrieval.__all__) == set(retrieval._WHERE)
    assert all(getattr(retrieval, name) for name in retrieval.__all__)
    program = "import sys; from ragkit.retrieval import build_lexical, hybrid; assert 'lancedb' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
