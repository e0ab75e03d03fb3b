"""What an exact search costs: ragkit's against FAISS IndexFlatIP, one numpy product with argpartition, and LanceDB's flat search.

The same vectors of real text and the same questions, embedding excluded; one by one and as a batch. Goals: one question at 10,000
vectors takes at most twice FAISS plus 1 ms; a batch at most 1.5 times the numpy product with its top k.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import faiss
import lancedb
import numpy as np
from turns import milliseconds, ratio, shown, take_turns
from windows import Stored, Windows, add_options, add_search_options, read_windows

from ragkit.models import Embedder, open_embedder
from ragkit.records import Hit
from ragkit.retrieval import Index, build_index

SINGLE_FACTOR, SINGLE_MS = 2.0, 1.0  # of FAISS flat, at GOAL_SIZE
BATCH_FACTOR = 1.5  # of numpy
GOAL_SIZE = 10_000  # for both: at a thousand vectors what is made of the hits weighs more than the search
ANSWER_MS = 50.0  # a question's embedding and search together, at the smallest size

Search = Callable[[np.ndarray], Any]  # unit queries, shape (q, d), to places of vectors, shape (q, k); ragkit gives its hits


def numpy_top(vectors: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Places of the k largest products a query, best first, shape (q, k): one matrix product, argpartition, a sort of k."""
    scores = queries @ vectors.T
    best = np.argpartition(scores, len(vectors) - k, axis=1)[:, len(vectors) - k :]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


def lancedb_flat(table: Any, queries: np.ndarray, k: int) -> np.ndarray:
    """LanceDB's own scan in one call (it takes a matrix of queries too); only the place comes back, neither text nor vector."""
    query = queries[0] if len(queries) == 1 else queries
    search = table.search(query).distance_type("cosine").bypass_vector_index().limit(k).select(["position", "_distance"])
    return np.asarray(search.to_arrow()["position"].to_numpy().reshape(len(queries), k))


def searches(index: Index, k: int) -> dict[str, Search]:
    """The ways to search one index, and FAISS over a copy of its vectors."""
    vectors = np.array(index.vectors)
    flat = faiss.IndexFlatIP(index.dimension)
    flat.add(vectors)
    table = lancedb.connect(str(index.folder)).open_table("chunks")
    return {
        "ragkit": lambda queries: [index.search(queries[0], k)] if len(queries) == 1 else index.search_many(queries, k),
        "faiss": lambda queries: flat.search(queries, k)[1],
        "numpy": lambda queries: numpy_top(vectors, queries, k),
        "lancedb": lambda queries: lancedb_flat(table, queries, k),
    }


def one_by_one(search: Search, queries: np.ndarray) -> list[Any]:
    return [search(queries[place : place + 1])[0] for place in range(len(queries))]


def agreement(index: Index, ways: dict[str, Search], queries: np.ndarray) -> dict[str, int]:
    """Of how many queries each way, asked one by one, finds the same set of places as ragkit's batch."""
    place = {chunk.chunk_id: place for place, chunk in enumerate(index.chunks)}

    def places(found: Any) -> set[int]:
        return {place[one.chunk.chunk_id] if isinstance(one, Hit) else int(one) for one in found}

    ours = [places(hits) for hits in ways["ragkit"](queries)]
    return {
        name: sum(places(found) == own for found, own in zip(one_by_one(way, queries), ours, strict=True))
        for name, way in ways.items()
    }


def measure_size(windows: Windows, k: int, singles: int, turns: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results (what was found) and timings at one number of windows."""
    index = build_index(windows.chunks, Stored(windows), folder)  # type: ignore[arg-type]
    ways = searches(index, k)
    queries, some = windows.queries, windows.queries[:singles]
    found = {"vectors": len(index), "dimension": index.dimension, "same_as_ragkit": agreement(index, ways, queries)}

    single = take_turns({name: lambda way=way: one_by_one(way, some) for name, way in ways.items()}, turns)  # type: ignore[misc]
    batch = take_turns({name: lambda way=way: way(queries) for name, way in ways.items()}, turns)  # type: ignore[misc]
    pairs = zip(single["ragkit"], single["faiss"], strict=True)
    beyond = [1000 * (ours - SINGLE_FACTOR * theirs) / singles for ours, theirs in pairs]
    timings: dict[str, Any] = {
        "single_ms": milliseconds(single, singles),
        "batch_ms_a_query": milliseconds(batch, len(queries)),
        "single_ms_beyond_twice_faiss": statistics.median(beyond),
        **{f"single_ragkit_over_{name}": ratio(single["ragkit"], single[name]) for name in ways if name != "ragkit"},
        **{f"batch_ragkit_over_{name}": ratio(batch["ragkit"], batch[name]) for name in ways if name != "ragkit"},
    }
    timings["single_goal_met"] = timings["single_ms_beyond_twice_faiss"] <= SINGLE_MS
    timings["batch_goal_met"] = timings["batch_ragkit_over_numpy"]["median"] <= BATCH_FACTOR
    return found, timings


def measure_answer(embedder: Embedder, windows: Windows, k: int, turns: int, folder: Path) -> dict[str, Any]:
    """A question's way from text to hits, its embedding included."""
    index = build_index(windows.chunks, Stored(windows), folder)  # type: ignore[arg-type]
    questions = windows.questions
    taken = take_turns(
        {
            "embed_and_search": lambda: [index.search(embedder.encode_queries([text])[0], k) for text in questions],
            "embed": lambda: [embedder.encode_queries([text]) for text in questions],
        },
        turns,
    )
    return {"vectors": len(index), **{f"{name}_ms": value for name, value in milliseconds(taken, len(questions)).items()}}


def measure(
    embedder: Embedder, windows: Windows, sizes: Sequence[int], k: int, singles: int, turns: int, work: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results, equal in every run, and timings, by `nSIZE`."""
    results: dict[str, Any] = {"k": k, "batch": len(windows.queries)}
    timings: dict[str, Any] = {}
    for size in sizes:
        part = windows.part(size)
        with tempfile.TemporaryDirectory(dir=work) as folder:
            results[f"n{size}"], timings[f"n{size}"] = measure_size(part, k, singles, turns, Path(folder))
            if size == min(sizes):
                timings["answer"] = measure_answer(embedder, part, k, turns, Path(folder))
    return results, timings


def report(results: dict[str, Any], timings: dict[str, Any]) -> str:
    """The table, with each goal and whether it was met."""
    lines = [f"Exact search, top {results['k']}, milliseconds a question (median over turns); ratios with their range over turns"]
    for key in [key for key in results if key.startswith("n")]:
        found, times = results[key], timings[key]
        lines.append(f"\n{found['vectors']:,} x {found['dimension']}")
        for name, single in times["single_ms"].items():
            lines.append(
                f"  {name:8} single {single:8.3f}   batch of {results['batch']} {times['batch_ms_a_query'][name]:8.4f}   "
                f"same hits as ragkit {found['same_as_ragkit'][name]}/{results['batch']}"
            )
        for name in ("faiss", "numpy", "lancedb"):
            lines.append(
                f"  ragkit / {name:8} single {shown(times[f'single_ragkit_over_{name}'])}   "
                f"batch {shown(times[f'batch_ragkit_over_{name}'])}"
            )
        beyond = f"single beyond {SINGLE_FACTOR:g} x faiss: {times['single_ms_beyond_twice_faiss']:+.3f} ms"
        if found["vectors"] == GOAL_SIZE:
            lines.append(f"  {beyond} (goal: at most {SINGLE_MS:g}, {_met(times['single_goal_met'])})")
            lines.append(f"  batch: goal at most {BATCH_FACTOR} x numpy, {_met(times['batch_goal_met'])}")
        else:
            lines.append(f"  {beyond} (no goal at this size)")
    answer = timings["answer"]
    whole = answer["embed_and_search_ms"]
    lines.append(
        f"\nembedding included, {answer['vectors']:,} vectors: {whole:.2f} ms a question, of which embedding "
        f"{answer['embed_ms']:.2f} (goal: below {ANSWER_MS:g}, {_met(whole < ANSWER_MS)})"
    )
    return "\n".join(lines)


def _met(goal: bool) -> str:
    return "met" if goal else "NOT met"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/exact_search.py --sizes 1000 10000   (prints; only run.py stores)",
    )
    add_options(parser)
    add_search_options(parser)
    words = parser.parse_args()
    with open_embedder(words.profile) as embedder:
        windows = read_windows(embedder, words.articles, words.tasks, max(words.sizes), words.queries, words.work)
        print(report(*measure(embedder, windows, words.sizes, words.k, words.singles, words.turns, words.work)))


if __name__ == "__main__":
    main()
