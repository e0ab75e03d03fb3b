"""What a query costs: with its embedding at 1,000 chunks, and the search alone against numpy and LanceDB's flat search.

The stored vectors are random (an exact scan costs the same whatever they are); the questions and the embedder that turns them
into vectors are real. All three searches run in turn in one process; ratios are those of their medians.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lancedb
import numpy as np

from ragkit.corpus import read_tasks
from ragkit.models import open_embedder
from ragkit.profile import REPOSITORY
from ragkit.records import Chunk
from ragkit.retrieval import Index, build_index

GOAL_MS = 50.0


class RandomVectors:
    """Stands in for an embedder while an index is built."""

    def __init__(self, identity: dict[str, Any], dimension: int, seed: int):
        self.identity, self.dimension = identity, dimension
        self._rng = np.random.default_rng(seed)

    def encode_passages(self, texts: Sequence[str], truncate: bool = False) -> np.ndarray:
        vectors = self._rng.standard_normal((len(texts), self.dimension)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def random_index(count: int, embedder: Any, folder: Path, seed: int) -> Index:
    text = "A chunk's worth of words. " * 30
    chunks = [
        Chunk(f"r{i:07d}::0", f"r{i:07d}", f"Title {i}", None, "2024-07-01", None, text, 0, len(text)) for i in range(count)
    ]
    return build_index(chunks, RandomVectors(embedder.identity, embedder.dimension, seed), folder)


def milliseconds(work: Callable[[Any], object], argument: Any) -> float:
    start = time.perf_counter()
    work(argument)
    return 1e3 * (time.perf_counter() - start)


def summary(times: Sequence[float]) -> dict[str, float]:
    return {"median_ms": float(np.median(times)), "p95_ms": float(np.percentile(times, 95)), "queries": len(times)}


def numpy_top(vectors: np.ndarray, query: np.ndarray, k: int) -> np.ndarray:
    scores = vectors @ query
    best = np.argpartition(-scores, k)[:k]
    return best[np.argsort(-scores[best])]


def search_alone(index: Index, queries: np.ndarray, k: int) -> dict[str, Any]:
    table: Any = lancedb.connect(str(index.folder)).open_table("chunks")
    vectors = np.array(index.vectors)
    ways: dict[str, Callable[[np.ndarray], object]] = {
        "numpy": lambda query: numpy_top(vectors, query, k),
        "ragkit": lambda query: index.search(query, k),
        "lancedb_flat": lambda query: table.search(query).distance_type("cosine").limit(k).to_list(),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for query in [*queries[:5], *queries]:  # the first five warm up
        for name, way in ways.items():
            times[name].append(milliseconds(way, query))
    found = {name: summary(values[5:]) for name, values in times.items()}
    batch = milliseconds(lambda rows: index.search_many(rows, k), queries) / len(queries)
    medians = {name: values["median_ms"] for name, values in found.items()}
    return {
        "vectors": len(index),
        **found,
        "ragkit_search_many_ms_a_query": batch,
        "ratio_ragkit_to_numpy": medians["ragkit"] / medians["numpy"],
        "ratio_ragkit_to_lancedb": medians["ragkit"] / medians["lancedb_flat"],
    }


def measure(profile: str, tasks: Path, sizes: Sequence[int], queries: int, k: int, seed: int) -> dict[str, Any]:
    questions = [task.question for task in read_tasks(tasks)]
    questions = [questions[i % len(questions)] for i in range(queries)]
    with open_embedder(profile) as embedder, tempfile.TemporaryDirectory() as folder:
        indexes = [random_index(size, embedder, Path(folder) / str(size), seed) for size in sizes]
        for question in questions[:5]:
            embedder.encode_queries([question])
        whole = [
            milliseconds(lambda text: indexes[0].search(embedder.encode_queries([text])[0], k), question)
            for question in questions
        ]
        vectors = embedder.encode_queries(questions)
        return {
            "k": k,
            "embedding_included": {"chunks": sizes[0], **summary(whole), "goal_median_ms": GOAL_MS},
            "search_alone": [search_alone(index, vectors, k) for index in indexes],
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/query_latency.py --queries 200 --json",
    )
    parser.add_argument("--profile", default="cpu", help="whose embedder (default: cpu)")
    parser.add_argument(
        "--tasks", type=Path, default=REPOSITORY / "data" / "tasks" / "sda_qualitative_tasks.jsonl", help="whose questions"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="vectors in the indexes")
    parser.add_argument("--queries", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--k", type=int, default=5, help="hits a query (default: 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    words = parser.parse_args()
    result = measure(words.profile, words.tasks, words.sizes, words.queries, words.k, words.seed)
    if words.json:
        print(json.dumps(result, indent=1))
        return
    whole = result["embedding_included"]
    print(
        f"embedding included, {whole['chunks']} chunks: median {whole['median_ms']:.2f} ms, p95 {whole['p95_ms']:.2f} ms "
        f"(goal: median below {GOAL_MS:.0f} ms)"
    )
    for row in result["search_alone"]:
        print(f"search alone, {row['vectors']} vectors:")
        for name in ("numpy", "ragkit", "lancedb_flat"):
            print(f"  {name:13} median {row[name]['median_ms']:7.3f} ms   p95 {row[name]['p95_ms']:7.3f} ms")
        print(f"  search_many   {row['ragkit_search_many_ms_a_query']:.3f} ms a query")
        print(f"  ragkit / numpy {row['ratio_ragkit_to_numpy']:.2f}   ragkit / lancedb {row['ratio_ragkit_to_lancedb']:.3f}")


if __name__ == "__main__":
    main()
