"""Grade the candidates of dense search, BM25 and their hybrid with a reranker, for a sample of the development split's questions.

    python benchmarks/rerank.py --questions 24 --model qwen2.5-coder-0.5b-instruct --runs-on transformers

It writes `metrics/rerank.json` (the grades, by question and chunk) and its timings after each question, and goes on from there
when it is started again. It compares nothing: that is chapter 04's, which reads the grades. The test split is never opened.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

from ragkit.errors import InputError
from ragkit.lab import read_metric, write_metrics, write_timings
from ragkit.profile import RerankChoice, RetrievalChoice, load_profile
from ragkit.records import Task
from ragkit.retrieval.frozen import Frozen, open_frozen
from ragkit.retrieval.rerank import Reranker, open_reranker
from ragkit.retrieval.search import open_retriever

METHODS = ("dense", "bm25", "hybrid")


def sample(tasks: tuple[Task, ...], size: int) -> list[Task]:
    """Tasks with evidence in the order of their ids' hashes, the first `size`: a larger sample holds the smaller one."""
    return sorted((t for t in tasks if t.golds), key=lambda t: hashlib.sha256(t.task_id.encode()).hexdigest())[:size]


def pools(frozen: Frozen, profile: Any, tasks: list[Task], candidates: int) -> list[dict[str, str]]:
    """For each task the texts of all methods' candidates by chunk id, dense search's first."""
    places = [frozen.tasks.index(task) for task in tasks]
    found: list[dict[str, str]] = [{} for _ in tasks]
    for method in METHODS:
        retriever = open_retriever(frozen.index, profile, RetrievalChoice(method=method, candidates=max(100, candidates)))
        lists = retriever.search_many([task.question for task in tasks], frozen.vectors[places], candidates)
        for pool, one in zip(found, lists, strict=True):
            pool.update({hit.chunk.chunk_id: hit.chunk.text for hit in one.hits})
    return found


def grade(reranker: Reranker, question: str, pool: dict[str, str], candidates: int) -> tuple[dict[str, float | None], float]:
    """Grades by chunk id, and the milliseconds of the first `candidates` (one list's worth) alone."""
    keys = list(pool)

    def graded(part: list[str]) -> dict[str, float | None]:
        return dict(zip(part, reranker.scores(question, [pool[key] for key in part]), strict=True))

    started = time.perf_counter()
    grades = graded(keys[:candidates])
    milliseconds = 1000 * (time.perf_counter() - started)
    return grades | graded(keys[candidates:]), milliseconds


def main() -> None:
    """Grade what has no grades yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="cpu")
    parser.add_argument("--artifacts", default="artifacts")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--backend", choices=("reader", "cross-encoder"), default="reader")
    parser.add_argument("--model")
    parser.add_argument(
        "--runs-on", choices=("openvino", "transformers", "openai"), help="where the reader runs, if not where the profile says"
    )
    given = parser.parse_args()

    profile = load_profile(given.profile)
    if given.runs_on:
        profile = profile.model_copy(update={"reader": profile.reader.model_copy(update={"backend": given.runs_on})})
    frozen = open_frozen(profile, given.artifacts)
    tasks = sample(frozen.select("dev"), given.questions)
    choice = RerankChoice(backend=given.backend, model=given.model, candidates=given.candidates)
    with open_reranker(profile, choice, progress=False) as reranker:
        same = {"index": frozen.index.manifest["key"], "candidates": given.candidates, "reranker": reranker.identity}
        grades, times = earlier(same, profile, given.artifacts)
        for task, pool in zip(tasks, pools(frozen, profile, tasks, given.candidates), strict=True):
            if grades.get(task.task_id, {}).keys() == pool.keys():
                continue
            grades[task.task_id], times[task.task_id] = grade(reranker, task.question, pool, given.candidates)
            write_metrics("rerank", {**same, "grades": grades}, profile, given.artifacts)
            write_timings(
                "rerank", {"ms_per_question": times, "mean_ms": sum(times.values()) / len(times)}, profile, given.artifacts
            )
            print(f"{task.task_id}: {len(pool)} pairs, {times[task.task_id]:.0f} ms for {given.candidates} of them", flush=True)


def earlier(same: dict[str, Any], profile: Any, artifacts: str) -> tuple[dict[str, Any], dict[str, float]]:
    """The grades and times that an earlier start left, where all that they depend on is the same."""
    try:
        kept = {name: read_metric(f"rerank:{name}", profile, artifacts) for name in (*same, "grades")}
        times = read_metric("rerank.timings:ms_per_question", profile, artifacts)
    except InputError:
        return {}, {}
    grades = kept.pop("grades")
    return (grades, times) if kept == same else ({}, {})


if __name__ == "__main__":
    main()
