"""The benchmark's own checks: overlap by hand, clusters, splits that keep articles whole, prompts without evidence."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragkit.errors import InputError
from ragkit.evaluation.benchmark import (
    assign_splits,
    clusters,
    freeze_split,
    is_frozen,
    question_overlap,
    random_article_prompts,
    read_freeze,
    same_questions,
    similar_articles,
    split_digest,
    task_articles,
)
from ragkit.records import Chunk, Gold, Task

TEXT = "Station dodges\n\nOn 19 November 2024 the docked Progress 89 freighter fired its engines for 5 minutes to avoid debris."


def task(key, *articles, question="What?", answerable=True, near=(), split="dev"):
    golds = tuple(Gold(article, 0, 3) for article in articles)
    return Task(key, question, "a" if answerable else "", (), golds, answerable=answerable, near=near, split=split)


def chunk(article, start=0, text="words here"):
    return Chunk(f"{article}::{start}", article, article, None, None, None, text, start, start + len(text))


@pytest.mark.parametrize(
    ("question", "shared"),
    [
        ("For how long did Progress 89 thrust on 19 November 2024?", ()),
        ("For how many minutes did the engine of Progress 89 fire?", ("engin", "fire", "minut")),
        ("What was avoided by the Station?", ("avoid",)),  # a name that the span does not use is no content word of the question
        ("Firing?", ("fire",)),  # the first word of a question has its capital for another reason
    ],
)
def test_overlap_counts_stems_and_no_names(question, shared):
    asked = Task("t", question, "5 minutes", (), (Gold("a", 16, len(TEXT)),))
    assert question_overlap(asked, {"a": TEXT}).shared == shared


def test_two_tasks_that_ask_the_same_in_other_word_forms_are_found():
    tasks = [
        task("a", question="When did the engine fire?"),
        task("b", question="When did engines fire?"),
        task("c", question="Who?"),
    ]
    assert same_questions(tasks) == [("a", "b", 1.0)]


def test_articles_are_compared_by_their_mean_vectors():
    chunks = [chunk("a"), chunk("a", 5), chunk("b"), chunk("c")]
    vectors = np.array([[1, 0], [0, 1], [1, 1], [1, -1]], dtype=np.float32)
    assert similar_articles(chunks, vectors, 0.9) == [("a", "b", pytest.approx(1.0))]
    with pytest.raises(InputError, match="4 chunks and 3 vectors"):
        similar_articles(chunks, vectors[:3], 0.9)


def test_clusters_hang_together_through_links():
    assert clusters([("a", "b"), ("b", "c")], ["z"]) == [("a", "b", "c"), ("z",)]
    assert clusters([]) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=2), st.booleans()), min_size=1, max_size=40),
    st.sets(st.sampled_from("abcdefghij"), max_size=4),
    st.integers(0, 5),
)
def test_no_article_is_on_both_sides_and_what_was_looked_at_stays(rows, seen, wanted):
    tasks = [
        task(f"t{n}", *articles) if answerable else task(f"t{n}", answerable=False, near=tuple(articles))
        for n, (articles, answerable) in enumerate(rows)
    ]
    try:
        side = assign_splits(tasks, (wanted, wanted // 2), dev_articles=seen)
    except InputError:
        return
    sides = {}
    for one in tasks:
        for article in task_articles(one):
            sides.setdefault(article, set()).add(side[one.task_id])
    assert all(len(found) == 1 for found in sides.values())
    assert all(sides.get(article, {"dev"}) == {"dev"} for article in seen)
    assert sum(one.answerable and side[one.task_id] == "test" for one in tasks) >= wanted


def test_a_test_split_that_cannot_be_filled_is_refused():
    with pytest.raises(InputError, match="only 1 answerable"):
        assign_splits([task("t", "a")], (2, 0))


def test_the_digest_of_a_split_is_of_that_split_alone():
    one, other = task("t1", "a", split="test"), task("t2", "b")
    assert split_digest([one, other], "test") == split_digest([one], "test") != split_digest([other], "dev")


def test_a_frozen_split_can_be_frozen_again_but_not_replaced(tmp_path):
    one, other = task("t1", "a", split="test"), task("t2", "b", split="test")
    file = tmp_path / "frozen.json"
    freeze = freeze_split([one], "test", file, date(2026, 11, 30))
    assert (freeze["answerable"], freeze["frozen_on"]) == (1, "2026-11-30")
    assert freeze_split([one, task("t3", "c")], "test", file, date(2026, 12, 1)) == freeze == read_freeze(file)
    assert is_frozen([one, task("t3", "c")], freeze)
    assert not is_frozen([one, other], freeze)
    with pytest.raises(InputError, match="froze other tasks on 2026-11-30"):
        freeze_split([one, other], "test", file, date(2026, 12, 1))
    with pytest.raises(InputError, match="nothing to freeze"):
        freeze_split([one], "dev", tmp_path / "new.json", date(2026, 12, 1))


def test_a_task_without_evidence_is_asked_with_one_other_article():
    chunks = [chunk("gold", text="the answer"), chunk("b", text="of b"), chunk("b", 9, text="more of b"), chunk("c", text="of c")]
    first, again = (random_article_prompts([task("t", "gold")] * 1, chunks, 10**6, len, seed=1) for _ in range(2))
    assert first == again
    (prompt,) = first
    assert [chunk.article_id for chunk in prompt.context] in (["b", "b"], ["c"])
    assert "the answer" not in prompt.messages[1]["content"]
