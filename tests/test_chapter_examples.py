"""The examples that the chapters work by hand, and the calculations they share, held to the same numbers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from ragkit.corpus import chunk_article, measured_overlap
from ragkit.errors import InputError
from ragkit.evaluation.sweep import (
    context_rows,
    copies,
    hits_of,
    index_bytes,
    repeated_share,
    sentences,
    span_share,
    unseen_share,
    whole_articles,
    within_budget,
)
from ragkit.records import Article, Chunk, Gold, Hit, Task
from ragkit.retrieval import build_index

SENTENCE = "The crew sheltered while debris from the breakup passed the station."


def words_as_tokens(*texts: str) -> Tokenizer:
    """One token a word or mark, and [CLS] and [SEP] around a text, as a BERT has them."""
    split = pre_tokenizers.Whitespace()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    vocabulary = {word: number for number, word in enumerate(["[CLS]", "[SEP]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = split
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=None, special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return tokenizer


def chunk(start: int, end: int, article: str = "a", text: str | None = None) -> Chunk:
    return Chunk(f"{article}::{start}", article, "", None, None, None, text or "x" * (end - start), start, end)


def hits(*chunks: Chunk) -> list[Hit]:
    return [Hit(one, 1.0 - rank / 10, rank) for rank, one in enumerate(chunks, start=1)]


def task(*golds: Gold) -> Task:
    return Task("t1", "Who?", "x", (), golds)


class ByLength:
    """A text's vector is (its length, 1): no model, and near means of like length."""

    max_tokens, tokenizer, dimension, identity = 100, None, 2, {"model": "by-length"}

    def encode_passages(self, texts, truncate=False):
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


# 01_chunking --------------------------------------------------------------------------------------------------------


def test_the_sentence_of_the_chunking_chapter_is_cut_as_worked_out_by_hand():
    article = Article("toy", "", SENTENCE)
    tokenizer = words_as_tokens(SENTENCE)
    chunks = chunk_article(article, tokenizer, "tokens", size=8, overlap=2)
    assert [one.text for one in chunks] == [
        "The crew sheltered while debris from",
        "debris from the breakup passed the",
        "passed the station.",
    ]
    assert all(article.text[one.start : one.end] == one.text for one in chunks)
    assert [one.chunk_id for one in chunks] == ["toy::0", "toy::25", "toy::49"]
    assert measured_overlap(chunks, tokenizer) == (2, 2)


@given(words=st.integers(1, 60), room=st.integers(2, 12), overlap=st.integers(0, 1))
def test_a_window_of_w_tokens_steps_by_w_less_the_overlap(words, room, overlap):
    text = " ".join(f"w{number}" for number in range(words))
    chunks = chunk_article(Article("a", "", text), words_as_tokens(text), size=room + 2, overlap=overlap)
    steps = max(0, -(-(words - room) // (room - overlap)))  # 1 + ceil((T - w) / (w - o)) windows
    assert len(chunks) == 1 + steps


# 03_lancedb_index ---------------------------------------------------------------------------------------------------


def test_the_two_vectors_of_the_index_chapter_are_ranked_by_direction_and_not_by_distance(tmp_path):
    rows = {"far": (0.0, 8.0), "near": (3.0, 0.0)}

    class Table(ByLength):
        def encode_passages(self, texts, truncate=False):
            return np.array([rows[text] for text in texts], dtype=np.float32)

    chunks = [chunk(0, 1, name, name) for name in rows]
    found = build_index(chunks, Table(), tmp_path).search(np.array([3.0, 4.0]), 2)
    assert [(hit.chunk.text, round(hit.cosine, 6)) for hit in found] == [("far", 0.8), ("near", 0.6)]
    distances = {name: float(np.hypot(3 - x, 4 - y)) for name, (x, y) in rows.items()}
    assert distances == {"far": 5.0, "near": 4.0}


def test_equal_vectors_are_found_in_the_order_of_their_ids_however_they_arrived(tmp_path):
    names = [f"copy-{letter}" for letter in "gbhdafce"]
    twins = [chunk(0, 4, name, "same") for name in names]
    for place, some in enumerate((twins, twins[::-1])):
        found = build_index(some, ByLength(), tmp_path / str(place)).search_many(np.array([[1.0, 2.0]] * 9), 5)
        assert {tuple(hit.chunk.article_id for hit in row) for row in found} == {tuple(sorted(names)[:5])}


# The calculations they share ----------------------------------------------------------------------------------------


def test_the_share_of_a_span_is_the_union_of_what_its_chunks_hold():
    texts = {"a": "abcde fghij", "b": "klmno"}
    one = task(Gold("a", 2, 8))  # "cde fg": five characters that count
    assert span_share(one, hits(chunk(0, 4)), texts) == 2 / 5
    assert span_share(one, hits(chunk(0, 4), chunk(3, 5), chunk(2, 3)), texts) == 3 / 5
    assert span_share(one, hits(chunk(0, 5), chunk(6, 11)), texts) == 1.0  # the space between two chunks is no loss
    assert span_share(one, hits(chunk(0, 11, "b")), texts) == 0.0
    assert span_share(task(Gold("a", 0, 5), Gold("b", 0, 5)), hits(chunk(0, 5)), texts) == 1 / 2


def test_what_a_better_hit_has_brought_counts_as_repeated():
    assert repeated_share([]) == 0.0
    assert repeated_share(hits(chunk(0, 10), chunk(10, 20), chunk(5, 15, "b"))) == 0.0
    assert repeated_share(hits(chunk(0, 10), chunk(6, 16))) == 4 / 20
    assert repeated_share(hits(chunk(0, 10), chunk(0, 10), chunk(0, 10))) == 20 / 30


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10), st.sampled_from("ab")), min_size=1, max_size=8))
def test_repeated_is_what_the_union_lacks_in_any_order(windows):
    found = hits(*(chunk(start, start + length, article) for start, length, article in windows))
    union = {(one.chunk.article_id, place) for one in found for place in range(one.chunk.start, one.chunk.end)}
    total = sum(length for _, length, _ in windows)
    assert repeated_share(found) == repeated_share(found[::-1]) == pytest.approx(1 - len(union) / total)


def test_copies_count_the_chunks_that_hold_a_gold_whole():
    one, other = Gold("a", 4, 8), Gold("b", 4, 8)
    assert copies([one], [chunk(0, 6), chunk(6, 12)]) == 0  # parted between the two
    assert copies([one], [chunk(0, 8), chunk(4, 12), chunk(0, 12, "b")]) == 2
    assert copies([one, other], [chunk(0, 8), chunk(0, 12, "b"), chunk(4, 12, "b")]) == 2  # the best served
    assert copies([], [chunk(0, 9)]) == copies([Gold("a")], [chunk(0, 9)]) == 0


def test_a_sentence_keeps_initials_decimals_and_the_heading_before_it():
    text = 'A title\n\nThe U.S. Navy saw 2.5 km. It fell!\n\n## Causes\n\nWhy? "Nobody knows." Then approx. noon:\n- one\n- two'
    article = Article("a", "A title", text, "u", "2025-01-01", "NASA")
    cut = sentences(article, words_as_tokens(text), 100)
    assert [one.text for one in cut] == [
        "A title\n\nThe U.S. Navy saw 2.5 km.",
        "It fell!",
        "## Causes\n\nWhy?",
        '"Nobody knows."',
        "Then approx. noon:",
        "- one",
        "- two",
    ]
    assert all(text[one.start : one.end] == one.text and one.chunk_id == f"a::{one.start}" for one in cut)
    assert (cut[0].title, cut[0].url, cut[0].source, cut[0].heading) == ("A title", "u", "NASA", None)


@given(st.text(alphabet="aB1.!? \n-", max_size=60), st.integers(3, 6))
def test_sentences_are_slices_in_order_that_fit_and_leave_no_letter_out(text, size):
    article = Article("a", "", text)
    tokenizer = words_as_tokens(text)
    cut = sentences(article, tokenizer, size)
    assert all(text[one.start : one.end] == one.text and len(tokenizer.encode(one.text)) <= size for one in cut)
    assert all(before.end <= after.start for before, after in pairwise(cut))
    assert "".join("".join(one.text.split()) for one in cut) == "".join(text.split())


def test_what_a_model_does_not_read_is_in_no_vector_unless_a_neighbour_shows_it():
    article = Article("a", "", "aa bb cc dd")
    tokenizer = words_as_tokens(article.text)
    whole = whole_articles([article])
    assert unseen_share(whole, [article], tokenizer, 6) == 0.0
    assert unseen_share(whole, [article], tokenizer, 5) == 1 / 4  # room for three tokens beside [CLS] and [SEP]
    assert unseen_share([*whole, chunk(6, 11, text="cc dd")], [article], tokenizer, 5) == 0.0
    assert unseen_share([], [article], tokenizer, 5) == 1.0
    assert unseen_share([], [], tokenizer, 5) == 0.0


def test_a_budget_keeps_the_first_hits_and_cuts_the_last_to_fit():
    tokenizer = words_as_tokens("one two three four")
    first, second = chunk(0, 7, text="one two"), chunk(8, 18, text="three four")
    found = hits(first, second)
    assert [hit.chunk for hit in within_budget(found, tokenizer, 2)] == [first]
    assert within_budget(found, tokenizer, 4) == within_budget(found, tokenizer, 99) == found
    kept, cut = within_budget(found, tokenizer, 3)
    assert (kept, cut.rank) == (found[0], 2)
    assert (cut.chunk.text, cut.chunk.start, cut.chunk.end, cut.chunk.chunk_id) == ("three", 8, 13, second.chunk_id)
    with pytest.raises(InputError, match="budget is 0"):
        within_budget(found, tokenizer, 0)


def test_a_share_without_a_span_or_its_article_is_refused():
    with pytest.raises(InputError, match="no gold span"):
        span_share(task(Gold("a")), [], {"a": "text"})
    with pytest.raises(InputError, match="'b' is not among the texts"):
        span_share(task(Gold("b", 0, 2)), [], {"a": "text"})


def test_context_rows_count_the_text_of_the_first_k_chunks_and_leave_out_tasks_without_golds():
    articles = [Article("a", "", "one two three four")]
    tokenizer = words_as_tokens(articles[0].text)
    first, second = chunk(0, 7, text="one two"), chunk(8, 18, text="three four")
    tasks = [task(Gold("a", 0, 13)), Task("t2", "What?", "", (), (), "unanswerable", False)]
    found = [hits(first, second), hits(second, first)]
    (row,) = context_rows(tasks, found, 1, articles, tokenizer)
    assert (row["task_id"], row["context_tokens"], row["article_hit"]) == ("t1", 2, 1.0)
    assert (row["span_share"], row["repeated_share"], row["matches"], row["copies"]) == (6 / 11, 0.0, 1, 0)
    (row,) = context_rows(tasks, found, 2, articles, tokenizer)
    assert (row["context_tokens"], row["span_share"], row["matches"], row["copies"]) == (4, 1.0, 2, 0)


def test_a_chunk_cut_to_a_budget_counts_as_what_is_left_of_it():
    articles = [Article("a", "", "one two three four")]
    tokenizer = words_as_tokens(articles[0].text)
    found = hits(chunk(0, 18, text=articles[0].text))
    tasks = [task(Gold("a", 0, 18)), replace(task(Gold("a", 0, 18)), task_id="t2")]
    rows = context_rows(tasks, [found, within_budget(found, tokenizer, 2)], 1, articles, tokenizer)
    assert [(row["context_tokens"], row["span_share"]) for row in rows] == [(4, 1.0), (2, 6 / 15)]


def test_a_whole_article_is_one_chunk_and_an_index_holds_vectors_and_text():
    articles = [Article("a", "Ü", "Ü\n\nbody", "u", "2025-01-01", "NASA"), Article("b", "t", "t")]
    whole = whole_articles(articles)
    assert [one.text for one in whole] == [article.text for article in articles]
    assert (whole[0].chunk_id, whole[0].url, whole[0].source, whole[0].end) == ("a::0", "u", "NASA", 7)
    assert index_bytes(whole, 3) == 2 * 3 * 4 + 8 + 1


def test_hits_of_an_index_that_is_thrown_away_equal_those_of_one_that_is_kept(tmp_path):
    chunks = [chunk(start, start + start + 1) for start in range(6)]
    vectors = np.array([[1.0, 1.0], [5.0, 1.0]])
    kept = build_index(chunks, ByLength(), tmp_path).search_many(vectors, 3)
    assert hits_of(chunks, ByLength(), vectors, 3) == kept
