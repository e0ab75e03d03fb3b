"""Chunking: windows cut out of an article's own text, sized in the tokens that the model will see.

Never decodes tokens back into text, never truncates, never drops a character that is not white space.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ragkit.errors import InputError
from ragkit.records import Article, Chunk

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STRATEGIES = ("tokens", "headings", "recursive")
UNITS = ("tokens", "characters")

_SPACE = re.compile(r"\s*")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_JOINERS = "\u200c\u200d"

# Where a chunk may end, best first. The look-behind keeps a run of a million dots from being tried from each dot.
_PARAGRAPH_END = re.compile(r"(?=\n[ \t]*\n)")
_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)|[。！？]++[」』”’]*+|\n(?=[ \t]*(?:[-*+>|]|\d{1,3}[.)]|#{1,6})[ \t])",
)
_WORD_END = re.compile(r"\S++")


class Heading(NamedTuple):
    """A Markdown ATX heading: `text[start:end]` is its line without the line break; `level` is 1 to 6."""

    start: int
    end: int
    level: int
    title: str


def markdown_headings(text: str, start: int = 0) -> Iterator[Heading]:
    """The ATX headings (`# Title`) of a Markdown text from character `start` on, none in fenced code (CommonMark 4.2, 4.5)."""
    fence = ""
    position = start
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        if mark := _FENCE.fullmatch(line):
            if not fence and not (mark[1][0] == "`" and "`" in mark[2]):
                fence = mark[1]
            elif fence and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif not fence and (mark := _HEADING.fullmatch(line)):
            title = (mark[2] or "").strip()
            bare = title.rstrip("#")  # "## Title ##" closes, "## C#" does not
            yield Heading(position, end, len(mark[1]), bare.strip() if not bare or bare[-1] in " \t" else title)
        position = end + 1


def untruncated(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer itself, or a copy with truncation and padding off where either is on (make it once for many articles).

    Raises
    ------
    InputError
        It is no `tokenizers.Tokenizer`.
    """
    from tokenizers import Tokenizer

    if not isinstance(tokenizer, Tokenizer):
        kind = type(tokenizer).__name__
        raise InputError(
            f"tokenizer is a {kind}: give a tokenizers.Tokenizer (embedder.tokenizer, or a fast tokenizer's backend_tokenizer)"
        )
    if tokenizer.truncation is None and tokenizer.padding is None:
        return tokenizer
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def count_tokens(tokenizer: Tokenizer, text: str) -> int:
    """How many tokens the model sees for `text`, special ones included, nothing truncated or padded."""
    return len(untruncated(tokenizer).encode(text).ids)


def measured_overlap(chunks: Sequence[Chunk], tokenizer: Tokenizer | None = None) -> tuple[int, ...]:
    """The overlap one actually got: for each two neighbours of one article the tokens of the text that both hold.

    Counts the shared stretch tokenised by itself, without special tokens; without a tokenizer, its characters.
    """
    exact = untruncated(tokenizer) if tokenizer is not None else None
    shared = [max(0, a.end - b.start) for a, b in pairwise(chunks) if a.article_id == b.article_id]
    if exact is None:
        return tuple(shared)
    after = [b for a, b in pairwise(chunks) if a.article_id == b.article_id]
    return tuple(len(exact.encode(b.text[:n], add_special_tokens=False).ids) for b, n in zip(after, shared, strict=True))


def chunk_article(
    article: Article,
    tokenizer: Tokenizer | None,
    strategy: str = "tokens",
    size: int = 256,
    overlap: int = 32,
    unit: str = "tokens",
) -> list[Chunk]:
    """Cut an article into overlapping windows of its own text.

    Parameters
    ----------
    article
        Its `text` is cut; every offset counts characters of it.
    tokenizer
        The embedder's `tokenizers.Tokenizer`; may be None for `unit="characters"`.
    strategy
        "tokens": a sliding window over the tokens. "recursive": the window ends at the last paragraph end in its second half,
        else at the last sentence end there, else at a word's end; the next begins at a word. "headings": sections at Markdown
        headings first (a heading with nothing under it joins the next), then as "recursive" inside each; nothing overlaps across
        sections.
    size
        The longest chunk, in tokens that the model sees, special ones included (or in characters).
    overlap
        What a chunk repeats of the one before, in tokens of text (or in characters): at most a cut's rounding away from it.
    unit
        "tokens", or for the last two strategies "characters".

    Returns
    -------
    list of Chunk
        `article.text[chunk.start:chunk.end] == chunk.text`, never empty, without white space at its ends, starts and ends
        strictly increasing; together they hold every character that is not white space. `heading` is the path of Markdown
        headings in force at the chunk's start ("Causes > Power"), or None.

    Raises
    ------
    InputError
        An unknown strategy or unit, a size or overlap that cannot work, no tokenizer where one is needed, or one character of the
        text that takes more than `size` tokens.

    Notes
    -----
    Windows are sliced by the tokenizer's offset mapping (decoding would lower-case and re-space the text), then encoded again and
    shortened until they fit, since a slice can take more tokens than it had in its place. No cut falls inside a character, a
    byte-level tokenizer's pieces notwithstanding, nor before a combining mark where that can be helped.
    """
    _check_settings(tokenizer, strategy, size, overlap, unit)
    ruler = _characters(article.text, size) if unit == "characters" else _tokens(article.text, tokenizer, size, overlap)
    borders = () if strategy == "tokens" else _borders(article.text)
    outline = _outline(article)
    starts = [start for start, _ in outline]
    edges = [*starts, len(article.text)] if strategy == "headings" else [0, len(article.text)]
    try:
        spans = [span for low, high in pairwise(edges) for span in _windows(ruler, borders, overlap, low, high)]
    except _TooSmall as error:
        raise InputError(f"article {article.article_id!r}: {error}") from None
    return [
        Chunk(
            chunk_id=f"{article.article_id}::{start}",
            article_id=article.article_id,
            title=article.title,
            url=article.url,
            published_at=article.published_at,
            heading=outline[bisect_right(starts, start) - 1][1],
            text=article.text[start:end],
            start=start,
            end=end,
            source=article.source,
        )
        for start, end in spans
    ]


def _check_settings(tokenizer: object, strategy: str, size: int, overlap: int, unit: str) -> None:
    if strategy not in STRATEGIES:
        raise InputError(f"unknown strategy {strategy!r}: choose from {', '.join(STRATEGIES)}")
    if unit not in UNITS:
        raise InputError(f"unknown unit {unit!r}: choose from {', '.join(UNITS)}")
    if unit == "characters" and strategy == "tokens":
        raise InputError('strategy "tokens" counts tokens: choose unit="tokens", or the strategy "headings" or "recursive"')
    for name, value, least in (("size", size, 1), ("overlap", overlap, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} {value!r} is not a whole number of at least {least}: give one")
    if overlap >= size:
        raise InputError(f"overlap {overlap} must be below size {size}: lower overlap")
    if unit == "tokens" and tokenizer is None:
        raise InputError('unit="tokens" needs a tokenizer: give embedder.tokenizer')


def _outline(article: Article) -> list[tuple[int, str | None]]:
    """Where each section starts, and its heading path; title and headings with only white space between them count as one."""
    text, title = article.text, article.title
    after = len(title) if title and text.startswith(title) else 0
    outline: list[tuple[int, str | None]] = [(0, None)]
    above: list[Heading] = []
    for heading in markdown_headings(text, after):
        above = [upper for upper in above if upper.level < heading.level] + [heading]
        path = " > ".join(part.title for part in above if part.title) or None
        start = heading.start if text[after : heading.start].strip() else outline.pop()[0]
        outline.append((start, path))
        after = heading.end
    return outline


# Rulers: what a stretch of text measures -----------------------------------------------------------------------------


class _TooSmall(Exception):
    """One character is longer than the size."""


@dataclass(frozen=True, slots=True)
class _Ruler:
    """Where a text can be cut and what it measures.

    `cuts` are the character positions of the possible cuts, from 0 to the text's length; `counts[i]` is the number of units
    before `cuts[i]`; `budget` the units of text in a window; `length` measures a slice exactly, to be held against `size`.
    """

    text: str
    cuts: Sequence[int]
    counts: Sequence[int]
    budget: int
    size: int
    length: Callable[[str], int]


def _characters(text: str, size: int) -> _Ruler:
    each = range(len(text) + 1)
    return _Ruler(text, each, each, size, size, len)


def _tokens(text: str, tokenizer: Tokenizer | None, size: int, overlap: int) -> _Ruler:
    exact = untruncated(tokenizer)  # type: ignore[arg-type]  # _check_settings has seen that it is not None
    special = exact.num_special_tokens_to_add(False)
    if size <= special + overlap:
        raise InputError(f"size {size} leaves no room beside {special} special tokens and an overlap of {overlap}: raise size")
    offsets = exact.encode(text, add_special_tokens=False).offsets
    cuts, counts = [0], [0]
    for index, (start, _) in enumerate(offsets):
        # The pieces of one character all start where it starts: only the first of them is a cut.
        if start > cuts[-1]:
            cuts.append(start)
            counts.append(index)
    if len(text) > cuts[-1]:
        cuts.append(len(text))
        counts.append(len(offsets))

    def length(part: str) -> int:
        whole = len(part) == len(text)  # already tokenised: an article of one chunk is not encoded twice
        return len(offsets) + special if whole else len(exact.encode(part).ids)

    return _Ruler(text, cuts, counts, size - special, size, length)


# Windows -------------------------------------------------------------------------------------------------------------


def _borders(text: str) -> tuple[list[int], ...]:
    """Ends of paragraphs, of sentences and lines of a list, of words: the positions at which a chunk ends well, best first."""
    return tuple([match.end() for match in pattern.finditer(text)] for pattern in (_PARAGRAPH_END, _SENTENCE_END, _WORD_END))


def _after_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]  # the pattern matches the empty string


def _windows(ruler: _Ruler, borders: Sequence[list[int]], overlap: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Spans that cover `text[low:high]`, each as long as it may be; a new one always passes the end of the one before."""
    start, end, share = low, low, overlap
    candidate = _after_space(ruler.text, low)
    while candidate < high:
        passed = _window_end(ruler, borders, candidate, max(end, candidate), high)
        if passed is None:  # a slice that grew when encoded by itself may not get past the last end: repeat less of it
            share //= 2
        else:
            start, end, share = candidate, passed, overlap
            yield start, end
            if _after_space(ruler.text, end) >= high:
                return
        candidate = _restart(ruler, bool(borders), start, end, share)


def _window_end(ruler: _Ruler, borders: Sequence[list[int]], start: int, beyond: int, high: int) -> int | None:
    """The end of the longest window from `start` that ends well and fits; None where it does not get past `beyond`."""
    text, cuts, counts = ruler.text, ruler.cuts, ruler.counts
    here = bisect_right(cuts, start) - 1
    far = bisect_right(counts, counts[here] + ruler.budget) - 1
    limit = min(cuts[max(far, here + 1)], high)
    while True:
        end = limit if limit == high else _good_end(text, borders, start, beyond, limit)
        end = start + len(text[start:end].rstrip())
        if end <= beyond:
            return None
        excess = ruler.length(text[start:end]) - ruler.size
        if excess <= 0:
            return end
        if end - start == 1:
            what = f"the character {text[start]!r} takes {excess + ruler.size} tokens"
            raise _TooSmall(f"{what}, more than size {ruler.size}: raise size")
        last = bisect_left(cuts, end)
        limit = cuts[max(0, bisect_right(counts, counts[last] - excess) - 1)]
        if limit <= start:  # one piece does not fit by itself: cut inside it
            limit = start + (end - start) // 2


def _good_end(text: str, borders: Sequence[list[int]], start: int, beyond: int, limit: int) -> int:
    """The best end at or before `limit`; paragraphs and sentences count in the window's second half, lest a title be a chunk."""
    half = start + (limit - start) // 2
    for rank, ends in enumerate(borders):
        end = ends[i - 1] if (i := bisect_right(ends, limit)) else 0
        if end > max(beyond, half if rank < 2 else start):
            return end
    end = limit
    while end > max(beyond, half) and _joined(text, end):
        end -= 1
    return end if end > max(beyond, half) else limit


def _restart(ruler: _Ruler, at_words: bool, start: int, end: int, overlap: int) -> int:
    """Where the next window starts: `overlap` units before `end`, after `start`; `at_words`: at the next word if one is near."""
    text, cuts, counts = ruler.text, ruler.cuts, ruler.counts
    goal = counts[bisect_left(cuts, end)] - overlap
    again = max(bisect_left(counts, goal), bisect_right(cuts, start))
    position = _after_space(text, cuts[again])
    if at_words and position < end and not text[position - 1].isspace():
        word = re.compile(r"\S*+\s*+").match(text, position, end)
        if word and word.end() <= position + (end - position) // 2:
            position = word.end()
    while position < end and _joined(text, position):
        position += 1
    return _after_space(text, min(position, end))


def _joined(text: str, position: int) -> bool:
    """Whether a cut at `position` would part a character from its combining mark, variation selector or joiner."""
    if not 0 < position < len(text) or (text[position] < "\u0300" and text[position - 1] < "\u0300"):
        return False
    return text[position] in _JOINERS or text[position - 1] in _JOINERS or unicodedata.category(text[position]).startswith("M")
