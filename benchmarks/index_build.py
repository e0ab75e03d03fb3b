"""What an index costs beyond its vectors: `build_index` against a bare `SentenceTransformer.encode` of the same chunks.

Both run in one process, in turn, `--repeats` times. The figure is the median of the paired ratios of wall time; the goal is at
most 1.15. The ratio of processor time stands beside it: on a machine that does other work the two differ, and neither settles it.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ragkit.corpus import read_snapshot
from ragkit.models import model_path, open_embedder
from ragkit.profile import REPOSITORY
from ragkit.records import Chunk
from ragkit.retrieval import build_index

GOAL = 1.15


def generated_chunks(folder: Path, count: int, words: int, seed: int) -> list[Chunk]:
    """Chunks of 20 to `words` words made of shuffled sentences of the articles in `folder`: real language, any number of them."""
    articles = read_snapshot(folder).articles
    sentences = [s for article in articles for s in re.split(r"(?<=[.!?])\s+", article.text) if 3 <= len(s.split()) <= 40]
    chance = random.Random(seed)
    chunks = []
    for number in range(count):
        wanted, text = chance.randint(20, words), ""
        while len(text.split()) < wanted:
            text = f"{text} {chance.choice(sentences)}".strip()
        chunks.append(Chunk(f"g{number:06d}::0", f"g{number:06d}", "Generated", None, None, None, text, 0, len(text)))
    return chunks


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds (all threads) of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(profile: str, articles: Path, count: int, words: int, repeats: int, seed: int) -> dict:
    from sentence_transformers import SentenceTransformer

    chunks = generated_chunks(articles, count, words, seed)
    texts = [chunk.text for chunk in chunks]
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "build": []}
    with open_embedder(profile) as embedder:
        tokens = [len(embedder.tokenizer.encode(text)) for text in texts]
        model = SentenceTransformer(str(model_path(embedder.identity["model"])), device="cpu", local_files_only=True)
        model.encode(texts[:32], show_progress_bar=False)
        embedder.encode_passages(texts[:32])
        for turn in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                runs: list[tuple[str, Callable[[], object]]] = [
                    ("bare", partial(model.encode, texts, show_progress_bar=False, normalize_embeddings=True)),
                    ("build", partial(build_index, chunks, embedder, folder)),
                ]
                for name, work in runs if turn % 2 == 0 else runs[::-1]:
                    taken[name].append(seconds(work))
                if turn == 0:
                    index = build_index(chunks, embedder, folder)
                    bare = model.encode(
                        [chunk.text for chunk in index.chunks], show_progress_bar=False, normalize_embeddings=True
                    )
                    difference = float(np.abs(index.vectors - bare).max())
    pairs = list(zip(taken["bare"], taken["build"], strict=True))
    ratios = [build[0] / bare[0] for bare, build in pairs]
    processor = [build[1] / bare[1] for bare, build in pairs]
    return {
        "chunks": count,
        "tokens_mean": statistics.fmean(tokens),
        "bare_encode_seconds": [bare[0] for bare, _ in pairs],
        "build_index_seconds": [build[0] for _, build in pairs],
        "ratios": ratios,
        "ratio_median": statistics.median(ratios),
        "processor_ratios": processor,
        "processor_ratio_median": statistics.median(processor),
        "goal": GOAL,
        "largest_difference_of_a_component": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/index_build.py --chunks 256 --repeats 5 --json",
    )
    parser.add_argument("--profile", default="cpu", help="whose embedder; in-process only (default: cpu)")
    parser.add_argument("--articles", type=Path, default=REPOSITORY / "data" / "articles", help="texts to draw sentences from")
    parser.add_argument("--chunks", type=int, default=512, help="how many (default: 512)")
    parser.add_argument("--words", type=int, default=140, help="most words wanted of one chunk (default: 140)")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of runs (default: 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    words = parser.parse_args()
    result = measure(words.profile, words.articles, words.chunks, words.words, words.repeats, words.seed)
    if words.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['chunks']} chunks of {result['tokens_mean']:.0f} tokens on average")
    for bare, build, ratio in zip(result["bare_encode_seconds"], result["build_index_seconds"], result["ratios"], strict=True):
        print(f"bare encode {bare:7.2f} s   build_index {build:7.2f} s   ratio {ratio:.3f}")
    print(
        f"median ratio {result['ratio_median']:.3f} (goal: at most {GOAL}); "
        f"of processor time {result['processor_ratio_median']:.3f}"
    )


if __name__ == "__main__":
    main()
