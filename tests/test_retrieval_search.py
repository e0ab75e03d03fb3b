"""Retrieval by choice: what each method ranks, whose cosine a hit carries, that filters run first, what rerank moves."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragkit.answering import answer_question
from ragkit.errors import InputError
from ragkit.profile import Profile, RetrievalChoice, load_profile
from ragkit.records import Chunk, Completion
from ragkit.retrieval import Found, Retriever, build_index, build_lexical, open_retriever, rerank_times, search_hybrid
from ragkit.retrieval.rerank import Reranker
from test_retrieval_index import HashEmbedder

WORDS = ("orbit", "debris", "X-37B", "launch", "Soyuz", "solar", "the", "25544")
QUESTION = st.lists(st.sampled_from([*WORDS, "nowhere"]), max_size=5).map(" ".join)
METHODS = ("dense", "bm25", "hybrid")
EMBEDDER = HashEmbedder()


def make_chunk(number: int) -> Chunk:
    draw = np.random.default_rng(number)
    text = " ".join([*draw.choice(WORDS, size=4), f"n{number}"])
    source, date = ("NASA", "ESA")[number % 2], f"2024-0{1 + number % 3}-01"
    return Chunk(f"a{number:02d}::0", f"a{number:02d}", f"Title {number}", None, date, None, text, 0, len(text), source)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build_index([make_chunk(number) for number in range(24)], EMBEDDER, tmp_path_factory.mktemp("search"))


def vector_of(question: str) -> np.ndarray:
    return EMBEDDER.encode_queries([question])[0]


class Engine:
    """Scores a text by a hash of the pair, some as unreadable; keeps how many pairs it saw."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def scores(self, question, texts):
        self.seen.append(len(texts))
        drawn = [hashlib.sha256(f"{question}|{text}".encode()).digest()[0] for text in texts]
        return [None if byte % 7 == 0 else byte % 5 for byte in drawn]

    def close(self) -> None:
        pass


def retriever(index, method="dense", rerank=None, **choices) -> Retriever:
    chosen = RetrievalChoice(method=method, rerank=rerank and {"backend": "reader", **rerank}, **choices)
    return Retriever(index, chosen, Reranker({"model": "hash"}, Engine()) if rerank else None)


# --- methods -----------------------------------------------------------------------------------------------------------------


def test_each_method_is_the_search_that_it_names(index):
    question = "debris of the X-37B"
    vector = vector_of(question)
    lexical = build_lexical(index.chunks, "plain", 0.9, 0.4)
    found = {
        method: retriever(index, method, tokenizer="plain", k1=0.9, b=0.4, candidates=9).search(question, vector, 6).hits
        for method in METHODS
    }
    assert found["dense"] == index.search(vector, 6)
    assert [hit.chunk for hit in found["bm25"]] == [hit.chunk for hit in lexical.search(question, 6)]
    fused = search_hybrid(index, lexical, question, vector, 6, candidates=9)
    assert [hit.chunk for hit in found["hybrid"]] == [hit.chunk for hit in fused]
    assert len({tuple(hit.chunk.chunk_id for hit in hits) for hits in found.values()}) == 3


@given(QUESTION, st.sampled_from(METHODS), st.integers(1, 30), st.sampled_from([None, {"source": "ESA"}]), st.booleans())
def test_a_hit_carries_the_cosine_of_a_dense_search_to_the_last_bit(index, question, method, k, where, reranked):
    vector = vector_of(question)
    dense = {hit.chunk: hit.cosine for hit in index.search(vector, len(index))}
    found = retriever(index, method, {"candidates": 8} if reranked else None).search(question, vector, k, where)
    assert [hit.rank for hit in found.hits] == list(range(1, len(found.hits) + 1))
    assert len({hit.chunk.chunk_id for hit in found.hits}) == len(found.hits) <= k
    assert all(hit.cosine == dense[hit.chunk] for hit in found.hits)
    assert (found.rerank_ms is not None) == reranked


@given(QUESTION, st.sampled_from(METHODS), st.integers(1, 8), st.booleans())
def test_the_first_hits_do_not_depend_on_how_many_are_asked_for(index, question, method, k, reranked):
    one = retriever(index, method, {"candidates": 8} if reranked else None)
    vector = vector_of(question)
    assert one.search(question, vector, k).hits == one.search(question, vector, 24).hits[:k]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rerank", [None, {"candidates": 5}])
def test_a_filter_runs_before_every_search(index, method, rerank):
    question, where = "launch orbit debris solar Soyuz", {"source": "ESA", "published_at": (">=", "2024-02")}
    allowed = {chunk.chunk_id for chunk in index.chunks if chunk.source == "ESA" and chunk.published_at >= "2024-02"}
    found = retriever(index, method, rerank).search(question, vector_of(question), 5, where)
    assert {hit.chunk.chunk_id for hit in found.hits} <= allowed
    assert len(found.hits) == 5
    nothing = retriever(index, method, rerank).search(question, vector_of(question), 5, {"title": "no such title"})
    assert nothing.hits == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rerank", [None, {"candidates": 5}])
def test_many_questions_give_what_each_gives(index, method, rerank):
    questions = ["orbit", "Soyuz launch", "", "the 25544"]
    vectors = EMBEDDER.encode_queries(questions)
    one = retriever(index, method, rerank)
    assert [f.hits for f in one.search_many(questions, vectors, 3)] == [
        one.search(question, vector, 3).hits for question, vector in zip(questions, vectors, strict=True)
    ]
    with pytest.raises(InputError, match="3 questions for 4 vectors"):
        one.search_many(questions[:3], vectors)
    with pytest.raises(InputError, match="questions for 4 vectors"):
        one.search_many("what", vectors)


def test_the_choices_own_k_is_the_default(index):
    assert len(retriever(index, "hybrid", k=3).search("orbit", vector_of("orbit")).hits) == 3
    assert len(retriever(index, k=4).search_many(["orbit"], EMBEDDER.encode_queries(["orbit"]))[0].hits) == 4
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="whole number"):
            retriever(index, "bm25").search("orbit", vector_of("orbit"), wrong)


def test_a_name_that_no_vector_knows_is_found_by_its_word(index):
    chunk = index.chunks[17]
    question = "what happened to n17"
    found = retriever(index, "bm25", k=1).search(question, vector_of(question))
    assert [hit.chunk for hit in found.hits] == [chunk]
    assert retriever(index, "bm25").search("nowhere at all", vector_of("x")).hits == []
    assert retriever(index, "hybrid").search("nowhere at all", vector_of("x"), 3).hits == index.search(vector_of("x"), 3)


def test_a_dense_search_loads_no_other_method(tmp_path):
    code = """
import sys
from ragkit.profile import load_profile
from ragkit.retrieval.search import Retriever
import ragkit.retrieval.frozen, ragkit.evaluation.experiment
others = ("bm25s", "ragkit.retrieval.lexical", "ragkit.retrieval.rerank", "sentence_transformers")
print([name for name in others if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


# --- rerank ------------------------------------------------------------------------------------------------------------------


def test_rerank_scores_the_candidates_and_no_more(index):
    engine = Engine()
    choice = RetrievalChoice(k=3, rerank={"backend": "reader", "candidates": 10})
    found = Retriever(index, choice, Reranker({"model": "hash"}, engine)).search("orbit", vector_of("orbit"))
    assert engine.seen == [10]
    wide = index.search(vector_of("orbit"), 10)
    scores = Engine().scores("orbit", [hit.chunk.text for hit in wide])
    order = sorted(range(10), key=lambda place: (scores[place] is None, -(scores[place] or 0), place))
    assert [hit.chunk for hit in found.hits] == [wide[place].chunk for place in order[:3]]
    assert found.unparsable == scores.count(None)
    assert found.rerank_ms >= 0


def test_a_reranker_belongs_to_a_choice_with_rerank(index):
    with pytest.raises(InputError, match="belongs to a choice"):
        Retriever(index, RetrievalChoice(), Reranker({"model": "hash"}, Engine()))
    with pytest.raises(InputError, match="belongs to a choice"):
        Retriever(index, RetrievalChoice(rerank={"backend": "reader"}))


def test_times_are_summed_up_where_rerank_was_on():
    assert rerank_times([Found([]), Found([])]) is None
    assert rerank_times([Found([], 10.0, 1), Found([], 30.0, 2)]) == {
        "questions": 2,
        "mean_ms": 20.0,
        "longest_ms": 30.0,
        "unparsable": 3,
    }


# --- the threshold -----------------------------------------------------------------------------------------------------------


class Words:
    """A reader whose tokens are words and whose answer is one sentence."""

    def __init__(self) -> None:
        self.asked: list = []

    def answer(self, prompts):
        self.asked.extend(prompts)
        return [Completion("It did [1].", "stop", 1, 1, 0.0) for _ in prompts]

    def count_tokens(self, text):
        return len(text.split())


def test_the_threshold_takes_hits_out_of_a_hybrid_list_wherever_they_rank(index):
    question = "n17 n3 n5 orbit"
    whole = retriever(index, "hybrid").search(question, EMBEDDER.encode_queries([question])[0], 8).hits
    bar = sorted(hit.cosine for hit in whole)[4]
    given = (index, EMBEDDER, Words())
    answer = answer_question(question, *given, k=8, min_cosine=bar, retriever=retriever(index, "hybrid"))
    assert list(answer.hits) == [hit for hit in whole if hit.cosine >= bar]
    assert [hit.rank for hit in answer.hits] != list(range(1, len(answer.hits) + 1))
    assert answer.citations[0].chunk_id == answer.hits[0].chunk.chunk_id
    refused = answer_question(question, *given, k=8, min_cosine=0.999, retriever=retriever(index, "hybrid"))
    assert (refused.refused, list(refused.hits)) == ("threshold", whole)
    assert refused.rerank_seconds is None
    timed = answer_question(question, *given, min_cosine=None, retriever=retriever(index, "bm25", {"candidates": 6}))
    assert 0 <= timed.rerank_seconds <= timed.retrieval_seconds
    unknown = answer_question("nowhere", *given, min_cosine=None, retriever=retriever(index, "bm25"))
    assert (unknown.refused, unknown.hits) == ("threshold", ())


def test_a_retriever_of_another_index_is_refused(index, tmp_path):
    other = build_index(list(index.chunks[:3]), EMBEDDER, tmp_path)
    with pytest.raises(InputError, match="another index"):
        answer_question("orbit", index, EMBEDDER, Words(), retriever=retriever(other))


# --- profiles ----------------------------------------------------------------------------------------------------------------


def test_the_default_is_dense_without_rerank():
    choice = load_profile("cpu").retrieval
    assert (choice.method, choice.rerank, choice.dense_only) == ("dense", None, True)
    assert not choice.model_copy(update={"method": "bm25"}).dense_only
    assert not RetrievalChoice(rerank={"backend": "reader"}).dense_only


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "fuzzy"}, "retrieval.method"),
        ({"tokenizer": "words"}, "retrieval.tokenizer"),
        ({"k1": -1}, "retrieval.k1"),
        ({"k1": float("inf")}, "retrieval.k1"),
        ({"b": 1.5}, "retrieval.b"),
        ({"candidates": 0}, "retrieval.candidates"),
        ({"colour": 1}, "retrieval.colour"),
        ({"rerank": {"backend": "magic"}}, "retrieval.rerank.backend"),
        ({"rerank": {"backend": "reader", "colour": 1}}, "retrieval.rerank.colour"),
        ({"rerank": {"backend": "cross-encoder"}}, "needs a model"),
        ({"rerank": {"backend": "server", "model": "m"}}, "needs a base_url"),
        ({"rerank": {"backend": "reader", "base_url": "http://localhost/v1"}}, "takes no base_url"),
        ({"rerank": {"backend": "reader", "candidates": 4}}, "must not be below k 5"),
    ],
)
def test_a_wrong_choice_is_refused_with_its_place(changes, says):
    with pytest.raises(InputError, match=says):
        load_profile("cpu").with_retrieval(**changes)


def test_a_rung_changes_the_profiles_own_retrieval():
    profile = load_profile("cpu").with_retrieval(k=7, k1=0.9)
    assert profile.rung == profile.retrieval.model_copy(update={"method": "hybrid"})
    content = profile.model_dump()

    def with_rung(rung):
        return Profile(**{**content, "evaluation": {**content["evaluation"], "rung": rung}})

    assert with_rung({"rerank": {"backend": "reader"}}).rung.rerank.backend == "reader"
    for rung, says in (
        ({"k": 3}, "A4 and A5 share"),
        ({"min_cosine": None}, "share"),
        ({"method": "x"}, "evaluation.rung: method"),
    ):
        with pytest.raises(ValueError, match=says):
            with_rung(rung)


# --- the whole way -----------------------------------------------------------------------------------------------------------


def test_open_retriever_takes_the_profiles_choice_or_another(index):
    profile = load_profile("cpu").with_retrieval(method="bm25")
    with open_retriever(index, profile) as one, open_retriever(index, profile, profile.rung) as other:
        assert (one.choice.method, other.choice.method) == ("bm25", "hybrid")


@pytest.mark.models
def test_arm_a5_is_a4_with_other_hits(root, tmp_path):
    from ragkit.corpus import read_snapshot, read_tasks
    from ragkit.evaluation.experiment import evaluate

    articles = read_snapshot(root / "data/articles_snapshot.parquet").articles[:40]
    kept = {article.article_id for article in articles}
    tasks = [
        task
        for task in read_tasks(root / "data/tasks/sda_qualitative_tasks.jsonl")
        if task.golds and all(gold.article_id in kept for gold in task.golds)
    ][:3]
    report = evaluate("ci", articles, tasks, tmp_path, ("A4", "A5"), {})
    assert set(report["arms"]) == {"A4", "A5"}
    rows = {
        arm: [json.loads(line) for line in (tmp_path / f"{arm}.jsonl").read_text(encoding="utf-8").splitlines()]
        for arm in ("A4", "A5")
    }
    assert [row["task_id"] for row in rows["A4"]] == [row["task_id"] for row in rows["A5"]]
    assert any(a["context"] != b["context"] for a, b in zip(rows["A4"], rows["A5"], strict=True))
    assert all(
        a["prompt_sha256"] == b["prompt_sha256"] for a, b in zip(*rows.values(), strict=True) if a["context"] == b["context"]
    )
