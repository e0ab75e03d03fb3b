"""What building an index costs: `build_index` with each in-process embedder against a bare fp32 `SentenceTransformer.encode`.

The chunks are the book's own, as the profile cuts them. All take turns in one process; ratios are formed within a turn. Goal: the
profile's default backend at least 3 times as fast as the bare encode, the smallest cosine to its vectors above .999.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from turns import ratio, seconds, shown, take_turns
from windows import add_options, spread

from ragkit.corpus import read_snapshot
from ragkit.models import Embedder, model_path, open_embedder
from ragkit.profile import Profile, load_profile
from ragkit.records import Chunk
from ragkit.retrieval import build_index
from ragkit.retrieval.frozen import profile_chunks

SPEED_GOAL, PARITY_GOAL = 3.0, 0.999


def book_chunks(articles: Path, profile: Profile, embedder: Embedder, count: int) -> list[Chunk]:
    """At most `count` of the chunks that the profile's index has, evenly spread."""
    chunks = profile_chunks(profile, read_snapshot(articles).articles, embedder.tokenizer)
    return [chunks[place] for place in spread(len(chunks), min(count, len(chunks)))]


@contextmanager
def openvino_in_float32() -> Iterator[None]:
    """While it lasts, OpenVINO compiles for float32 instead of the processor's fastest arithmetic."""
    import openvino

    class Single(openvino.Core):
        def compile_model(self, model: Any, device: str, config: dict[str, Any]) -> Any:
            return super().compile_model(model, device, {**config, "INFERENCE_PRECISION_HINT": "f32"})

    with mock.patch("openvino.Core", Single):
        yield


def bare_encoders(model: str) -> dict[str, Callable[[Sequence[str]], np.ndarray]]:
    """sentence-transformers alone: fp32, which all are compared with, and bf16, its own way to be faster."""
    import torch
    from sentence_transformers import SentenceTransformer

    def loaded(dtype: torch.dtype) -> Callable[[Sequence[str]], np.ndarray]:
        one = SentenceTransformer(str(model_path(model)), device="cpu", local_files_only=True, model_kwargs={"dtype": dtype})
        return lambda texts: one.encode(list(texts), show_progress_bar=False, normalize_embeddings=True).astype(np.float32)

    return {"bare_fp32": loaded(torch.float32), "bare_bf16": loaded(torch.bfloat16)}


def parity(vectors: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Cosines of one text's two vectors: the smallest and the mean."""
    a, b = vectors.astype(np.float64), reference.astype(np.float64)
    cosines = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return {"smallest_cosine": float(cosines.min()), "mean_cosine": float(cosines.mean())}


def measure(profile: str, articles: Path, count: int, turns: int, work: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results (sizes, cosines) and timings, by backend."""
    chosen = load_profile(profile)
    with ExitStack() as stack:
        with openvino_in_float32():
            openvino_f32 = stack.enter_context(open_embedder(with_backend(chosen, "openvino")))
        embedders = {
            "openvino": stack.enter_context(open_embedder(with_backend(chosen, "openvino"))),
            "openvino_f32": openvino_f32,
            "sentence_transformers": stack.enter_context(open_embedder(chosen.in_float32())),
        }
        chunks = sorted(book_chunks(articles, chosen, openvino_f32, count), key=lambda chunk: chunk.chunk_id)
        texts = [chunk.text for chunk in chunks]
        tokens = [len(encoded) for encoded in openvino_f32.tokenizer.encode_batch_fast(texts)]
        bare = bare_encoders(chosen.embedder.model)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=work)))

        def build(name: str, rebuild: bool = True) -> np.ndarray:
            return build_index(chunks, embedders[name], folder / name, rebuild=rebuild).vectors

        ways: dict[str, Callable[[], np.ndarray]] = {
            **{name: lambda encode=encode: encode(texts) for name, encode in bare.items()},  # type: ignore[misc]
            **{name: lambda name=name: build(name) for name in embedders},  # type: ignore[misc]
        }
        # The first build of a process pays for the compilation of every new shape of batch: apart from the others.
        first = {name: seconds(lambda name=name: build(name)) for name in embedders}  # type: ignore[misc]
        reference = bare["bare_fp32"](texts)
        results: dict[str, Any] = {
            "chunks": len(chunks),
            "tokens_mean": statistics.fmean(tokens),
            "default_backend": chosen.embedder.backend,
            "bare_bf16": parity(bare["bare_bf16"](texts), reference),
            **{name: parity(build(name, rebuild=False), reference) for name in embedders},
        }
        taken = take_turns(ways, turns)
    timings: dict[str, Any] = {
        name: {
            "seconds": statistics.median(values),
            "chunks_a_second": len(chunks) / statistics.median(values),
            "times_as_fast": ratio(taken["bare_fp32"], values),
            **({"first_seconds": first[name]} if name in first else {}),
        }
        for name, values in taken.items()
    }
    default = chosen.embedder.backend.replace("-", "_")
    if default in timings:  # a served embedder has no goal here
        timings["goal_met"] = timings[default]["times_as_fast"]["median"] >= SPEED_GOAL
        results["parity_goal_met"] = results[default]["smallest_cosine"] > PARITY_GOAL
    return results, timings


def with_backend(profile: Profile, backend: str) -> Profile:
    """The profile with its embedder on another in-process backend."""
    return profile.model_copy(update={"embedder": profile.embedder.model_copy(update={"backend": backend})})


def report(results: dict[str, Any], timings: dict[str, Any]) -> str:
    """The table, with the goal and whether it was met."""
    lines = [
        f"Building an index of {results['chunks']} chunks of {results['tokens_mean']:.0f} tokens on average, "
        "against a bare fp32 encode (median over turns; first: the first build of the process)"
    ]
    for name in [name for name in timings if isinstance(timings[name], dict)]:
        row, same = timings[name], results.get(name)
        parts = [
            f"{name:22} {row['seconds']:6.2f} s {row['chunks_a_second']:6.0f} chunks/s",
            f"{shown(row['times_as_fast'])} times as fast",
        ]
        if same:
            parts.append(f"cosine to fp32: smallest {same['smallest_cosine']:.6f}, mean {same['mean_cosine']:.6f}")
        if "first_seconds" in row:
            parts.append(f"first {row['first_seconds']:.2f} s")
        lines.append("  " + "   ".join(parts))
    if "goal_met" in timings:
        speed, same = ("met" if goal else "NOT met" for goal in (timings["goal_met"], results["parity_goal_met"]))
        lines.append(
            f"  goal for {results['default_backend']}: at least {SPEED_GOAL:g} times as fast, {speed}; "
            f"smallest cosine above {PARITY_GOAL}, {same}"
        )
    return "\n".join(lines)


def add_build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chunks", type=int, default=256, help="at most this many chunks are built (default: 256)")
    parser.add_argument("--build-turns", type=int, default=3, help="turns of building after the one that warms up (default: 3)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/index_build.py --chunks 512   (prints; only run.py stores)",
    )
    add_options(parser)
    add_build_options(parser)
    words = parser.parse_args()
    words.work.mkdir(parents=True, exist_ok=True)
    print(report(*measure(words.profile, words.articles, words.chunks, words.build_turns, words.work)))


if __name__ == "__main__":
    main()
