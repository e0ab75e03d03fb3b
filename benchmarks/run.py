"""All benchmarks in one run, printed and stored: `benchmarks.json` (sizes, agreement, cosines), its `.timings.json`, a receipt.

Exact search, index building, approximate search, in this order, in one process. A part alone: its own file, which only prints.
The first run embeds the windows (minutes); later ones find their vectors.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import approximate_search
import exact_search
import index_build
from windows import LENGTHS, STRIDE, add_options, add_search_options, read_windows

from ragkit.errors import RagkitError
from ragkit.lab import write_metrics, write_timings
from ragkit.lab.receipts import write_receipt
from ragkit.models import open_embedder
from ragkit.profile import REPOSITORY

NAME = "benchmarks"


def parser() -> argparse.ArgumentParser:
    one = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/run.py            (minutes)\n"
        "         python benchmarks/run.py --million --hnsw   (everything)",
    )
    add_options(one)
    add_search_options(one)
    index_build.add_build_options(one)
    approximate_search.add_approximate_options(one)
    one.add_argument("--artifacts", type=Path, default=REPOSITORY / "artifacts", help="where results are stored")
    return one


def run(words: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure, print each table when it is there, and store: results and timings."""
    started, clock = datetime.now(UTC), time.perf_counter()
    words.work.mkdir(parents=True, exist_ok=True)
    with open_embedder(words.profile) as embedder:
        windows = read_windows(embedder, words.articles, words.tasks, max(words.sizes), words.queries, words.work)
        exact, exact_times = exact_search.measure(embedder, windows, words.sizes, words.k, words.singles, words.turns, words.work)
    print(exact_search.report(exact, exact_times), flush=True)
    build, build_times = index_build.measure(words.profile, words.articles, words.chunks, words.build_turns, words.work)
    print("\n" + index_build.report(build, build_times), flush=True)
    approximate = approximate_search.run(words, windows)
    print("\n" + approximate_search.report(approximate), flush=True)
    results = {
        "windows": {
            "count": len(windows.chunks),
            "tokens": list(LENGTHS),
            "stride": STRIDE,
            "digest": windows.digest,
            "articles": len({chunk.article_id for chunk in windows.chunks}),
            "questions": len(windows.questions),
        },
        "exact": exact,
        "build": build,
    }
    # An approximate index is trained from a random start that LanceDB does not let one fix: its recall differs between two
    # runs, so it lies with the timings.
    timings = {"exact": exact_times, "build": build_times, "approximate": approximate}
    write_metrics(NAME, results, words.profile, words.artifacts)
    write_timings(NAME, timings, words.profile, words.artifacts)
    write_receipt(
        NAME,
        words.profile,
        started=started,
        seconds=time.perf_counter() - clock,
        data=[words.articles, words.tasks, *sorted(Path(__file__).parent.glob("*.py"))],
        used=[windows.identity],
        root=REPOSITORY,
        artifacts=words.artifacts,
    )
    return results, timings


def main() -> int:
    """Exit status 0, or 1 where the work failed. A missed goal is printed and stored, it is no failure of the run."""
    words = parser().parse_args()
    try:
        run(words)
    except RagkitError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
