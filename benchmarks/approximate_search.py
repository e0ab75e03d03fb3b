"""Where an approximate index starts to pay: LanceDB's against the exact scan in recall, time, build and bytes; its distance trap.

Recall@k and the cosine that is lost are measured against the exact top k of the same questions; a million vectors are generated.
The trap: what LanceDB returns as a cosine distance is not 1 - cosine once an index compresses (lancedb#3530).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from exact_search import lancedb_flat, numpy_top
from lancedb.index import HnswSq, IvfFlat, IvfPq, IvfRq
from turns import milliseconds, ratio, seconds, shown, take_turns
from windows import Windows, add_options, add_search_options, read_windows, size

from ragkit.models import open_embedder
from ragkit.profile import load_profile

WANTED_RECALL = 0.95
NOISE = 0.5  # Euclidean length of what is added to a window's unit vector to generate another


@dataclass(frozen=True)
class Setting:
    """How an index is asked: partitions looked into, times k hits scored again from the stored vectors, HNSW's ef."""

    nprobes: int
    refine: int | None = None
    ef: int | None = None

    @property
    def name(self) -> str:
        parts = {"nprobes": self.nprobes, "refine": self.refine, "ef": self.ef}
        return "_".join(f"{name}{value}" for name, value in parts.items() if value is not None)


@dataclass(frozen=True)
class Kind:
    """A kind of index: its configuration from the number of vectors, and the settings that are measured."""

    config: Callable[[int], Any]
    settings: tuple[Setting, ...]


def partitions(count: int) -> int:
    """About the square root of the number of vectors, LanceDB's documented default (release 0.40 itself makes far fewer)."""
    return max(1, round(count**0.5))


_COMPRESSED = tuple(Setting(n, r) for n, r in ((1, None), (20, None), (1, 10), (5, 10), (20, 10), (50, 10), (50, 50)))
KINDS = {
    "IVF_PQ": Kind(lambda count: IvfPq(distance_type="cosine", num_partitions=partitions(count)), _COMPRESSED),
    "IVF_RQ": Kind(lambda count: IvfRq(distance_type="cosine", num_partitions=partitions(count)), _COMPRESSED),
    "IVF_FLAT": Kind(
        lambda count: IvfFlat(distance_type="cosine", num_partitions=partitions(count)),
        tuple(Setting(n) for n in (1, 5, 20, 50)),
    ),
    "HNSW_SQ": Kind(
        lambda count: HnswSq(distance_type="cosine"), tuple(Setting(20, r, e) for e, r in ((20, None), (100, None), (100, 5)))
    ),
}
DEFAULT_KINDS = ("IVF_PQ", "IVF_RQ", "IVF_FLAT")


def generated(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`count` unit vectors: one of `vectors`, drawn at random, plus Gaussian noise of length about `NOISE`, scaled to norm 1.

    So they gather where real text does, at a cosine of about 0.9 to the window they came from.
    """
    chance = np.random.default_rng(seed)
    made = vectors[chance.integers(0, len(vectors), count)]
    for start in range(0, count, 50_000):
        block = made[start : start + 50_000]
        block += chance.standard_normal(block.shape, dtype=np.float32) * np.float32(NOISE / block.shape[1] ** 0.5)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    return made


def write_table(vectors: np.ndarray, folder: Path) -> Any:
    """One LanceDB table of `position` and `vector`."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    columns = {"position": pa.array(range(len(vectors)), pa.int64()), "vector": flat}
    return lancedb.connect(str(folder)).create_table("vectors", pa.table(columns))


@contextmanager
def indexed(table: Any, config: Any) -> Iterator[dict[str, float]]:
    """An index on the table while it lasts; gives the seconds of its building and its bytes."""
    taken = seconds(lambda: table.create_index("vector", config=config, name="approximate"))
    yield {"build_seconds": taken, "bytes": next(index.size_bytes for index in table.list_indices())}
    table.drop_index("approximate")


def ask(table: Any, query: np.ndarray, k: int, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Positions and the distances that LanceDB names, nearest first, each of shape (at most k,)."""
    search = table.search(query).distance_type("cosine").nprobes(setting.nprobes).limit(k).select(["position", "_distance"])
    if setting.refine is not None:
        search = search.refine_factor(setting.refine)
    if setting.ef is not None:
        search = search.ef(setting.ef)
    found = search.to_arrow()
    return found["position"].to_numpy(), found["_distance"].to_numpy()


def quality(
    table: Any, vectors: np.ndarray, queries: np.ndarray, exact: np.ndarray, setting: Setting, min_cosine: float
) -> dict[str, float]:
    """What a setting finds and what its distances say, over all queries.

    `recall`: share of the exact top k found. `cosine_lost`: mean cosine of the best that exist less that of as many found.
    `distance_over_truth`: median of LanceDB's distance over 1 - cosine, the cosine recomputed from the stored vectors.
    `wrongly_refused`: of the hits whose cosine reaches the threshold, the share that 1 - distance puts below it.
    """
    k = exact.shape[1]
    recalls, lost, over, above, refused = [], [], [], 0, 0
    for query, best in zip(queries, exact, strict=True):
        places, distances = ask(table, query, k, setting)
        cosines = vectors[places] @ query
        recalls.append(len(set(places.tolist()) & set(best.tolist())) / k)
        lost.append(float(np.mean(vectors[best[: len(places)]] @ query) - np.mean(cosines)) if len(places) else 1.0)
        over.extend((distances / (1 - cosines)).tolist())
        above += int((cosines >= min_cosine).sum())
        refused += int(((cosines >= min_cosine) & (1 - distances < min_cosine)).sum())
    return {
        "recall": statistics.fmean(recalls),
        "cosine_lost": statistics.fmean(lost),
        "distance_over_truth": statistics.median(over) if over else 0.0,
        "wrongly_refused": refused / above if above else 0.0,
    }


def measure(
    vectors: np.ndarray,
    queries: np.ndarray,
    kinds: Sequence[str],
    k: int,
    singles: int,
    turns: int,
    min_cosine: float,
    work: Path,
) -> dict[str, Any]:
    """All kinds of index on one set of vectors, one after the other, each in turns with the two exact scans."""
    exact = numpy_top(vectors, queries, k)
    some = queries[:singles]
    measured: dict[str, Any] = {"vectors": len(vectors), "k": k, "kinds": {}}
    with tempfile.TemporaryDirectory(dir=work) as folder:
        table = write_table(vectors, Path(folder))
        scans: dict[str, Callable[[], object]] = {
            "exact": lambda: [numpy_top(vectors, query[None, :], k) for query in some],
            "lancedb_flat": lambda: [lancedb_flat(table, query[None, :], k) for query in some],
        }
        for kind in kinds:
            with indexed(table, KINDS[kind].config(len(vectors))) as index:
                rows = {
                    setting.name: quality(table, vectors, queries, exact, setting, min_cosine) for setting in KINDS[kind].settings
                }
                asked = {
                    setting.name: lambda setting=setting: [ask(table, query, k, setting) for query in some]
                    for setting in KINDS[kind].settings
                }
                taken = take_turns({**scans, **asked}, turns)
            times = milliseconds(taken, singles)
            for name, row in rows.items():
                saved = times["exact"] - times[name]
                row["ms"] = times[name]
                row["over_exact"] = ratio(taken[name], taken["exact"])  # type: ignore[assignment]
                row["over_lancedb_flat"] = ratio(taken[name], taken["lancedb_flat"])  # type: ignore[assignment]
                # None: however many are asked, the build is never paid back
                row["queries_that_pay_the_build"] = 1000 * index["build_seconds"] / saved if saved > 0 else None  # type: ignore[assignment]
            measured["kinds"][kind] = {
                **index,
                "bytes_over_vectors": index["bytes"] / vectors.nbytes,
                "exact_ms": times["exact"],
                "lancedb_flat_ms": times["lancedb_flat"],
                "build_over_exact_query": 1000 * index["build_seconds"] / times["exact"],
                "settings": rows,
                "cheapest": cheapest(rows),
            }
    return measured


def cheapest(rows: dict[str, Any]) -> dict[str, Any] | None:
    """Of the settings that reach the wanted recall the one with the smallest ratio to the exact scan; it pays below 1."""
    enough = {name: row for name, row in rows.items() if row["recall"] >= WANTED_RECALL}
    if not enough:
        return None
    name = min(enough, key=lambda name: enough[name]["over_exact"]["median"])
    over = enough[name]["over_exact"]["median"]
    flat = enough[name]["over_lancedb_flat"]["median"]
    return {"setting": name, "over_exact": over, "pays": over < 1, "pays_over_lancedb_flat": flat < 1}


def report(measured: dict[str, Any]) -> str:
    """The tables, one for each set of vectors and kind of index."""
    lines = ["Approximate search against the exact scan of the same vectors (one numpy product with its top k)"]
    for name, one in measured.items():
        lines.append(f"\n{name}: {one['vectors']:,} vectors, top {one['k']}")
        for kind, row in one["kinds"].items():
            lines.append(
                f"  {kind}: built in {row['build_seconds']:.1f} s ({row['build_over_exact_query']:,.0f} exact searches), "
                f"{row['bytes'] / 2**20:.1f} MiB ({row['bytes_over_vectors']:.2f} of the vectors); "
                f"exact {row['exact_ms']:.2f} ms, LanceDB flat {row['lancedb_flat_ms']:.2f} ms"
            )
            for setting, found in row["settings"].items():
                pays = found["queries_that_pay_the_build"]
                lines.append(
                    f"    {setting:18} recall {found['recall']:.3f}  cosine lost {found['cosine_lost']:.4f}  "
                    f"{found['ms']:8.3f} ms  "
                    f"/ exact {shown(found['over_exact'])}  / flat {found['over_lancedb_flat']['median']:.2f}  "
                    f"distance / (1 - cos) {found['distance_over_truth']:.3f}  refused wrongly {found['wrongly_refused']:.0%}  "
                    + (f"build paid after {pays:,.0f} questions" if pays is not None else "never pays")
                )
            best = row["cheapest"]
            lines.append(
                f"    recall {WANTED_RECALL} at least: "
                + (f"{best['setting']}, {best['over_exact']:.2f} of the exact scan's time" if best else "no setting reaches it")
            )
    return "\n".join(lines)


def add_approximate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hnsw", action="store_true", help="HNSW_SQ too (its build takes minutes at 100,000)")
    parser.add_argument(
        "--million", dest="generated", action="store_const", const=1_000_000, help="a million generated vectors too"
    )
    parser.add_argument("--generated", type=size, metavar="N", help="N generated vectors too, IVF_PQ only")
    parser.add_argument("--seed", type=int, default=0, help="of the generated vectors (default: 0)")


def run(words: argparse.Namespace, windows: Windows) -> dict[str, Any]:
    """What the words ask for: every size of windows, then the generated vectors."""
    kinds = [*DEFAULT_KINDS, *(["HNSW_SQ"] if words.hnsw else [])]
    min_cosine = load_profile(words.profile).retrieval.min_cosine or 0.0

    def measured(vectors: np.ndarray, kinds: Sequence[str]) -> dict[str, Any]:
        return measure(vectors, windows.queries, kinds, words.k, words.singles, words.turns, min_cosine, words.work)

    found = {f"windows_{size}": measured(windows.part(size).vectors, kinds) for size in words.sizes}
    if words.generated:
        made = generated(windows.vectors, words.generated, words.seed)
        found[f"generated_{words.generated}"] = measured(made, ["IVF_PQ"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/approximate_search.py --sizes 10000 --million   (prints; only run.py stores)",
    )
    add_options(parser)
    add_search_options(parser)
    add_approximate_options(parser)
    words = parser.parse_args()
    with open_embedder(words.profile) as embedder:
        windows = read_windows(embedder, words.articles, words.tasks, max(words.sizes), words.queries, words.work)
    print(report(run(words, windows)))


if __name__ == "__main__":
    main()
