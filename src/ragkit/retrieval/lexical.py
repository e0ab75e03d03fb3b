"""BM25 over the chunks of an index, in memory, and its fusion with dense hits. Two tokenizers: "plain" and "names".

It writes no file, opens no model, and never returns a chunk that shares no word with the query.
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

import bm25s
import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN, STOPWORDS_PORTUGUESE

from ragkit.errors import InputError
from ragkit.records import Chunk, Hit
from ragkit.retrieval.filters import to_sql
from ragkit.retrieval.fusion import fuse

if TYPE_CHECKING:
    from ragkit.retrieval.index import Index

CANDIDATES = 100  # of each list, before fusion: a chunk that one list ranks 60th may be what the other ranks first
TOKENIZERS = ("plain", "names")
METHODS = ("lucene", "robertson", "atire", "bm25l", "bm25+")
_STOP_WORDS = {"english": frozenset(STOPWORDS_EN), "portuguese": frozenset(STOPWORDS_PORTUGUESE)}
LANGUAGES = tuple(_STOP_WORDS)

_PLAIN = re.compile(r"\b\w\w+\b")
_DIGIT = re.compile(r"\d").search
_HYPHENS = str.maketrans("‐‑–", "---")  # typesetters' hyphens and the en dash; an em dash parts words
_UNIT = r"\w++(?:(?<=\d)\.(?=\d)\w++)*+"  # a word, a number, a decimal: orbit, 25544, 67p, 1.5, b1058.10
_NAMES = re.compile(
    rf"""
      \w++(?![-.]\w)                                    # most words, at once
    | (?P<acronym> \b[^\W\d_](?:\.[^\W\d_])+\b )        # u.s, i.s.s
    | (?=[\d-]*[^\W\d]) {_UNIT} (?:-(?=\w*\d){_UNIT})+  # sts-107, x-37b, 1998-067a; not 10-year, low-cost, 2024-07-01
    | [^\W\d_]-{_UNIT}                                  # h-iia, x-ray
    | {_UNIT}
    """,
    re.VERBOSE,
)
_COMPARE = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Scored:
    """A chunk found by BM25: score above zero (comparable within one query only), rank counted from 1."""

    chunk: Chunk
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Fused:
    """A chunk of fused lists: reciprocal rank score, rank, and its place in each list, None where that list lacks it."""

    chunk: Chunk
    score: float
    rank: int
    dense_rank: int | None
    lexical_rank: int | None


def _plain_words(text: str, stop: frozenset[str]) -> Iterator[str]:
    return (word for word in _PLAIN.findall(text.lower()) if word not in stop)


def _name_words(text: str, stop: frozenset[str]) -> Iterator[str]:
    for match in _NAMES.finditer(unicodedata.normalize("NFKC", text).lower().translate(_HYPHENS)):
        word = match.group()
        if word in stop or (len(word) == 1 and not word.isdigit()):
            continue
        yield word.replace("." if match["acronym"] else "-", "")


def tokenize(text: str, tokenizer: str = "names", language: str = "english") -> list[str]:
    """Words of a text as BM25 counts them: lower case, without stop words, stemmed by Snowball.

    Parameters
    ----------
    tokenizer : "plain" is what published figures use, the default of bm25s: runs of two letters or digits and more, so that
        "S-1" and "U.S." vanish and "X-37B" is "37b". "names" keeps a vehicle's name, a catalogue number and an acronym as one
        word, however it is hyphenated or dotted ("X-37B" and "X37B" are "x37b", "U.S." and "US" are "us"), keeps single
        digits ("Falcon 9"), and stems no word that holds a digit.
    language : "english" or "portuguese", of the stop words and the stemmer.

    Raises
    ------
    InputError
        Unknown tokenizer or language, or `text` is no string.
    """
    _choose("tokenizer", tokenizer, TOKENIZERS)
    _choose("language", language, LANGUAGES)
    if not isinstance(text, str):
        raise InputError(f"{text!r} is a {type(text).__name__}, not a text: give a string")
    split = _name_words if tokenizer == "names" else _plain_words
    words = list(split(text, _STOP_WORDS[language]))
    stems: list[str] = Stemmer.Stemmer(language).stemWords(words)  # made here: a stemmer must not be shared by threads
    if tokenizer == "plain":
        return stems
    return [word if _DIGIT(word) else stem for word, stem in zip(words, stems, strict=True)]


class LexicalIndex:
    """Chunks with their BM25 weights; `build_lexical` makes one.

    Attributes
    ----------
    chunks : tuple of Chunk, in order of their ids.
    vocabulary : how many different words they hold.
    """

    def __init__(self, chunks: tuple[Chunk, ...], tokenizer: str, language: str, weights: bm25s.BM25):
        words = [tokenize(chunk.text, tokenizer, language) for chunk in chunks]
        # Sorted, so that a word's number, and with it the order of a sum, is the same in every process.
        self._numbers = {word: number for number, word in enumerate(sorted(set().union(*words)))}
        self._tokenizer, self._language, self._weights = tokenizer, language, weights
        self.chunks, self.vocabulary = chunks, len(self._numbers)
        if self._numbers:  # where all is stop words there is no mean length to divide by, and nothing to find
            numbered = [[self._numbers[word] for word in text] for text in words]
            weights.scores = weights.build_index_from_ids(list(self._numbers.values()), numbered, show_progress=False)

    def __len__(self) -> int:
        return len(self.chunks)

    def search(self, query: str, k: int, where: Mapping[str, Any] | None = None) -> list[Scored]:
        """The k best chunks by BM25, best first, equal scores by chunk id; fewer where fewer share a word with the query.

        Parameters
        ----------
        query : any text; a word that it repeats counts as often as it is there. Without a word of the vocabulary: [].
        k : how many; more than there are gives all.
        where : conditions that a chunk must meet *before* the search, see `ragkit.retrieval.filters.to_sql`. Word statistics
            stay those of the whole index.

        Raises
        ------
        InputError
            k < 1, a query that is no string, a wrong filter.
        """
        return self.search_many([query], k, where=where)[0]

    def search_many(self, queries: Sequence[str], k: int, where: Mapping[str, Any] | None = None) -> list[list[Scored]]:
        """Search for each of `queries`: the same as `search` one by one."""
        _check_k(k)
        if isinstance(queries, str):
            raise InputError("queries come as one string: give a list of them, or call search")
        mask = None if where is None else np.array(meets(self.chunks, where), dtype=np.float64)
        return [self._best(query, k, mask) for query in queries]

    def _best(self, query: str, k: int, mask: np.ndarray | None) -> list[Scored]:
        words = tokenize(query, self._tokenizer, self._language)
        # In order of their numbers: the same words in another order give the same sum, to the last bit.
        numbers = sorted(self._numbers[word] for word in words if word in self._numbers)
        if not numbers:
            return []
        scores = self._weights.get_scores_from_ids(numbers, weight_mask=mask)
        # BM25L and BM25+ give every chunk this much for a word that it lacks; the other methods nothing.
        lacking = self._weights.nonoccurrence_array
        found = np.flatnonzero(scores > (0.0 if lacking is None else lacking[numbers].sum()))
        best = found[np.argsort(-scores[found], kind="stable")[:k]]  # places follow ids, so a stable sort breaks ties by id
        return [Scored(self.chunks[place], float(scores[place]), rank) for rank, place in enumerate(best, start=1)]


def build_lexical(
    chunks: Sequence[Chunk],
    tokenizer: str = "names",
    k1: float = 1.2,
    b: float = 0.75,
    language: str = "english",
    method: str = "lucene",
) -> LexicalIndex:
    r"""Build the BM25 index of these chunks' texts in memory, with the library bm25s.

    With method "lucene" a chunk d scores, summed over the words w of the query,
    :math:`\ln\!\left(1 + \frac{N - n_w + 0.5}{n_w + 0.5}\right) \frac{f_{w,d}}{f_{w,d} + k_1 (1 - b + b\,|d| / \overline{|d|})}`
    where :math:`n_w` of N chunks hold w, :math:`f_{w,d}` times in d, and lengths count words.

    Parameters
    ----------
    chunks : what to search, for instance `index.chunks` of an open index.
    tokenizer, language : see `tokenize`; queries are treated alike.
    k1 : saturation of a repeated word, 0 or more. b : correction for length, from 0 to 1.
    method : "lucene", "robertson", "atire", "bm25l" or "bm25+" (Kamphuis et al. 2020). With "robertson" and "atire" a word
        that half of the chunks, or all of them, hold weighs nothing.

    Raises
    ------
    InputError
        No chunks, duplicate chunk ids, or an option out of range.

    References
    ----------
    Robertson and Zaragoza (2009), "The probabilistic relevance framework: BM25 and beyond". Kamphuis, de Vries, Boytsov and
    Lin (2020), "Which BM25 do you mean?", ECIR. Lù (2024), "BM25S", arXiv:2407.03618.
    """
    _choose("tokenizer", tokenizer, TOKENIZERS)
    _choose("language", language, LANGUAGES)
    _choose("method", method, METHODS)
    _check_number("k1", k1, 0, math.inf, "0 or more, 1.2 is usual")
    _check_number("b", b, 0, 1, "from 0 to 1, 0.75 is usual")
    if not chunks:
        raise InputError("no chunks to index: the snapshot has no text")
    ordered = tuple(sorted(chunks, key=lambda chunk: chunk.chunk_id))
    for before, after in pairwise(ordered):
        if before.chunk_id == after.chunk_id:
            raise InputError(f"chunk id {after.chunk_id!r} occurs twice: article ids must be unique")
    # float64, so that rounding seldom tells apart two chunks whose exact scores are equal.
    return LexicalIndex(ordered, tokenizer, language, bm25s.BM25(k1=k1, b=b, method=method, dtype="float64"))


def meets(chunks: Sequence[Chunk], where: Mapping[str, Any]) -> list[bool]:
    """Which chunks meet all conditions: the answer that LanceDB gives to `to_sql(where)`, without a table.

    Raises
    ------
    InputError
        As `to_sql`.
    """
    to_sql(where)  # refuses what is wrong
    return [all(_holds(field, getattr(chunk, field), condition) for field, condition in where.items()) for chunk in chunks]


def _holds(field: str, value: str | None, condition: Any) -> bool:
    if condition is None or value is None:
        return condition is value
    if isinstance(condition, tuple):
        sign, bound = condition
        return bool(_COMPARE[sign](value[: len(bound)] if field == "published_at" else value, bound))
    if isinstance(condition, list):
        every = isinstance(condition[0], tuple)  # pairs must all hold, of strings one
        return (all if every else any)(_holds(field, value, part) for part in condition)
    return _holds(field, value, ("=", condition))


def hybrid(
    dense_hits: Sequence[Hit], lexical_hits: Sequence[Scored], k: int, c: float = 60, candidates: int = CANDIDATES
) -> list[Fused]:
    """Fuse two ranked lists of chunks by reciprocal rank (see `fuse`) and keep the k best, equal scores by chunk id.

    Parameters
    ----------
    dense_hits, lexical_hits : best first; ask for many more than k of each, since a chunk that both rank low may win.
    candidates : how many of each list take part; a list may be shorter.

    Raises
    ------
    InputError
        k or `candidates` < 1, a wrong `c`, or one chunk id that stands for two different chunks.
    """
    _check_k(k)
    _check_k(candidates, "candidates")
    lists = [[hit.chunk for hit in hits[:candidates]] for hits in (dense_hits, lexical_hits)]
    chunks: dict[str, Chunk] = {}
    for chunk in (chunk for found in lists for chunk in found):
        if chunks.setdefault(chunk.chunk_id, chunk) != chunk:
            raise InputError(f"chunk id {chunk.chunk_id!r} is two different chunks: search both lists in one index's chunks")
    rankings = [list(dict.fromkeys(chunk.chunk_id for chunk in found)) for found in lists]
    dense, lexical = ({key: rank for rank, key in enumerate(ranking, start=1)} for ranking in rankings)
    return [
        Fused(chunks[key], score, rank, dense.get(key), lexical.get(key))
        for rank, (key, score) in enumerate(fuse(rankings, c)[:k], start=1)
    ]


def search_hybrid(
    index: Index,
    lexical: LexicalIndex,
    query: str,
    vector: np.ndarray,
    k: int,
    where: Mapping[str, Any] | None = None,
    c: float = 60,
    candidates: int = CANDIDATES,
) -> list[Fused]:
    """Search both indexes of the same chunks for `candidates` each (k, where that is more) and fuse them, see `hybrid`.

    Parameters
    ----------
    vector : shape (d,), the query's embedding. where : conditions for both searches.

    Raises
    ------
    InputError
        As the two searches and `hybrid`.
    """
    _check_k(k)
    _check_k(candidates, "candidates")
    depth = max(k, candidates)
    return hybrid(index.search(vector, depth, where=where), lexical.search(query, depth, where=where), k, c, depth)


def _choose(what: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"{what} {value!r} is unknown: choose from {', '.join(known)}")


def _check_k(k: Any, what: str = "k") -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"{what} is {k!r}: give a whole number of at least 1")


def _check_number(what: str, value: Any, low: float, high: float, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or not low <= float(value) <= high:
        raise InputError(f"{what} is {value!r}: give a number {remedy}")
