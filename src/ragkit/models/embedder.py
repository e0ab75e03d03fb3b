"""The embedder: texts in, unit vectors out, in this process or through an OpenAI-compatible server.

Over-long texts are refused, or cut and counted when asked for; a vector that is zero or not finite is an error.
It never reaches for the network to load a model, and never changes the order of what it was given.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tqdm import tqdm

from ragkit.errors import InputError, ServiceError
from ragkit.models.client import ServerClient
from ragkit.models.quiet import quiet_loading
from ragkit.models.text import is_unicode
from ragkit.models.weights import ModelEntry, ensure, model_entry
from ragkit.profile import EmbedderChoice, Profile, load_profile

Vectors = NDArray[np.float32]
_LONG_WORK = 500


class _Engine(Protocol):
    """What turns prefixed texts of at most `max_tokens` tokens into vectors of any positive length."""

    dtype: str

    def vectors(self, texts: list[str]) -> Vectors: ...

    def close(self) -> None: ...


class Embedder:
    """Unit vectors of texts. Made by `open_embedder`; a context manager that frees the model at its end.

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
        The model's tokenizer, truncation and padding switched off.
    max_tokens : int
        The most tokens one text may have, special tokens included.
    dimension : int
        Length of a vector.
    truncated : int
        How many texts were cut since the embedder was opened.
    """

    def __init__(self, entry: ModelEntry, tokenizer: Tokenizer, engine: _Engine, batch_size: int) -> None:
        if entry.dimension is None:
            raise InputError(f"{entry.name} is a {entry.kind}, not an embedder: name an embedder in the profile")
        self._entry = entry
        self._engine: _Engine | None = engine
        self._batch_size = batch_size
        self.tokenizer = tokenizer
        self.max_tokens = entry.max_tokens
        self.dimension = entry.dimension
        self.truncated = 0
        self._dtype = engine.dtype

    @property
    def identity(self) -> dict[str, Any]:
        """All that a vector depends on, as plain JSON values; the machine is not part of it, the arithmetic is."""
        entry = self._entry
        return {
            "model": entry.name,
            "weights": entry.sha256,
            "dimension": self.dimension,
            "max_tokens": self.max_tokens,
            "pooling": entry.pooling,
            "normalise": True,
            "query_prefix": entry.query_prefix,
            "passage_prefix": entry.passage_prefix,
            "dtype": self._dtype,
        }

    def encode_passages(self, texts: Sequence[str], truncate: bool = False, progress: bool | None = None) -> Vectors:
        """Vectors of texts to be found, in the order given.

        Parameters
        ----------
        texts
            n texts; the model's passage prefix is put before each.
        truncate
            Cut a text over `max_tokens` and count it in `truncated`, instead of refusing it.
        progress
            Show a bar; by default where there are more than 500 texts.

        Returns
        -------
        float32 array of shape (n, dimension), C-contiguous, rows of unit Euclidean norm.

        Raises
        ------
        InputError
            A text is not a string, or over `max_tokens` (the message gives the count), or its vector is zero or not finite.
        ServiceError
            The server failed, or the embedder was closed.
        """
        return self._encode(texts, self._entry.passage_prefix, truncate, progress)

    def encode_queries(self, texts: Sequence[str], truncate: bool = False, progress: bool | None = None) -> Vectors:
        """Vectors of questions: as `encode_passages`, with the model's query prefix."""
        return self._encode(texts, self._entry.query_prefix, truncate, progress)

    def close(self) -> None:
        """Free the model, or the server's connections; encoding afterwards raises ServiceError."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            gc.collect()

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encode(self, texts: Sequence[str], prefix: str, truncate: bool, progress: bool | None) -> Vectors:
        if self._engine is None:
            raise ServiceError(f"embedder {self._entry.name} is closed: open it again with open_embedder")
        if isinstance(texts, str):
            raise InputError("texts is one string: give a list of strings")
        prefixed = [_prefixed(text, prefix, place) for place, text in enumerate(texts)]
        lengths = self._lengths(prefixed)
        too_long = [place for place, length in enumerate(lengths) if length > self.max_tokens]
        if too_long and not truncate:
            raise InputError(
                f"text {too_long[0]} has {lengths[too_long[0]]} tokens, over the {self.max_tokens} of {self._entry.name}, "
                f"special ones included ({len(too_long)} of {len(lengths)} texts): cut smaller chunks, or pass truncate=True"
            )
        for place in too_long:
            prefixed[place] = self._cut(prefixed[place])
        self.truncated += len(too_long)

        vectors = np.empty((len(prefixed), self.dimension), dtype=np.float32)
        # Batches of like length pad least; sorted by tokens they pad less than by characters, which pays for the counting.
        order = sorted(range(len(prefixed)), key=lambda place: -lengths[place])
        show = len(prefixed) > _LONG_WORK if progress is None else progress
        with tqdm(total=len(prefixed), unit="text", desc="embedding", disable=not show, leave=False) as bar:
            for group in _groups(order, self._batch_size):
                vectors[group] = self._unit(self._engine.vectors([prefixed[place] for place in group]), group)
                bar.update(len(group))
        return vectors

    def _lengths(self, texts: list[str]) -> list[int]:
        try:
            return [len(e) for group in _groups(texts, 1024) for e in self.tokenizer.encode_batch_fast(group)]
        except (TypeError, UnicodeEncodeError) as error:
            place = next((place for place, text in enumerate(texts) if not is_unicode(text)), 0)
            raise InputError(f"text {place} is not valid Unicode (a lone surrogate): repair its encoding") from error

    def _cut(self, text: str) -> str:
        """The longest beginning of a text that the model takes whole, found by the tokens' offsets in the text."""
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        keep = self.max_tokens - self.tokenizer.num_special_tokens_to_add(False)
        cut = text[: offsets[keep - 1][1]]
        while len(self.tokenizer.encode(cut)) > self.max_tokens:
            keep -= 1
            cut = text[: offsets[keep - 1][1]]
        return cut

    def _unit(self, vectors: Vectors, group: Sequence[int]) -> Vectors:
        if vectors.shape != (len(group), self.dimension):
            raise ServiceError(
                f"{self._entry.name} gave vectors of shape {vectors.shape}, expected {(len(group), self.dimension)}: "
                "the profile names another model than the one that runs"
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        usable = np.isfinite(norms[:, 0]) & (norms[:, 0] > 0)
        if not usable.all():
            place = group[int(np.argmin(usable))]
            raise ServiceError(
                f"{self._entry.name} gave a zero or non-finite vector for text {place}: check the text and the model"
            )
        return vectors / norms


def open_embedder(profile: str | Path | Profile, *, progress: bool = True) -> Embedder:
    """The embedder of a profile, ready to encode; weights are fetched (size said first) if they are not there yet.

    Parameters
    ----------
    profile
        A profile's name, the path of its file, or the profile itself.
    progress
        Show the fetch.

    Raises
    ------
    InputError
        Unknown profile or model, or a backend the model does not run on.
    ServiceError
        Weights cannot be fetched or differ from their pin.
    """
    choice = load_profile(profile).embedder
    entry = model_entry(choice.model)
    if entry.kind != "embedder":
        raise InputError(f"{entry.name} is a {entry.kind}, not an embedder: name an embedder in the profile")
    if choice.backend not in entry.backends:
        raise InputError(f"{entry.name} does not run on backend {choice.backend}: choose from {', '.join(entry.backends)}")
    tokenizer = _load_tokenizer(entry, progress)
    engine: _Engine
    if choice.backend == "openai":
        engine = _Served(entry, choice)
    elif choice.backend == "openvino":
        engine = _OpenVino(entry, ensure(entry.name, progress), tokenizer)
    else:
        engine = _Torch(ensure(entry.name, progress), choice)
    return Embedder(entry, tokenizer, engine, choice.batch_size)


class _Torch:
    """sentence-transformers on this machine's CPU, float32, loaded from a local folder only: what published figures used."""

    dtype = "float32"

    def __init__(self, folder: Path, choice: EmbedderChoice) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        with quiet_loading():
            single = {"dtype": torch.float32}
            self._model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=single)
        self._batch_size = choice.batch_size

    def vectors(self, texts: list[str]) -> Vectors:
        return np.asarray(self._model.encode(texts, batch_size=self._batch_size, show_progress_bar=False), dtype=np.float32)

    def close(self) -> None:
        del self._model


_OPENVINO_BATCH = 8  # texts at once: few enough that their states stay in the processor's cache


class _OpenVino:
    """The same weights compiled for this machine's CPU, in the precision that it is fastest in.

    Where the processor has no faster arithmetic that is float32. `benchmarks/index_build.py` prints the speed and the cosine to
    float32 (above .999): two machines may differ in the fourth digit of a cosine, so the identity names the arithmetic "auto".
    """

    dtype = "auto"

    def __init__(self, entry: ModelEntry, folder: Path, tokenizer: Tokenizer) -> None:
        # OpenVINO reports usage at import unless its telemetry package is absent; it has a stub for that case.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        import openvino
        import torch
        from transformers import AutoModel

        if entry.pooling not in _POOLINGS:
            raise InputError(f"{entry.name} pools by {entry.pooling!r}: the openvino backend knows {', '.join(_POOLINGS)}")
        self._pool = _POOLINGS[entry.pooling]
        self._tokenizer = tokenizer
        names = ("input_ids", "attention_mask", "token_type_ids")
        example = {name: torch.ones((1, 8), dtype=torch.int64) for name in names}
        with quiet_loading(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tracer's remarks on the model's own Python
            model = AutoModel.from_pretrained(str(folder), local_files_only=True, dtype=torch.float32).eval()
            converted = openvino.convert_model(model, example_input=example)
        self._compiled: Any = openvino.Core().compile_model(converted, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
        self._inputs = {port.get_any_name() for port in self._compiled.inputs}

    def vectors(self, texts: list[str]) -> Vectors:
        return np.concatenate([self._few(group) for group in _groups(texts, _OPENVINO_BATCH)])

    def _few(self, texts: list[str]) -> Vectors:
        encoded = self._tokenizer.encode_batch_fast(texts)
        width = max(len(one) for one in encoded)
        ids = np.zeros((len(texts), width), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, one in enumerate(encoded):
            ids[row, : len(one)], mask[row, : len(one)] = one.ids, 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._compiled({name: array for name, array in given.items() if name in self._inputs})[0]
        return self._pool(np.asarray(states, dtype=np.float32), mask)

    def close(self) -> None:
        del self._compiled


def _mean_pool(states: Vectors, mask: NDArray[np.int64]) -> Vectors:
    weights = mask[:, :, None].astype(np.float32)
    return (states * weights).sum(axis=1) / weights.sum(axis=1)


def _first_pool(states: Vectors, mask: NDArray[np.int64]) -> Vectors:
    return states[:, 0]


_POOLINGS = {"mean": _mean_pool, "cls": _first_pool}


class _Served:
    """Any server with an OpenAI-compatible `/embeddings`; its arithmetic is its own, so its vectors have their own identity."""

    dtype = "server"

    def __init__(self, entry: ModelEntry, choice: EmbedderChoice) -> None:
        assert choice.base_url is not None
        self._client = ServerClient(choice.base_url, (entry.hub_id, choice.model, entry.name), choice.timeout_seconds)
        self._batch_size = choice.batch_size

    def vectors(self, texts: list[str]) -> Vectors:
        return np.concatenate([self._batch(batch) for batch in _groups(texts, self._batch_size)])

    def _batch(self, texts: list[str]) -> Vectors:
        with self._client.faults():
            answer = self._client.api.embeddings.create(model=self._client.model, input=texts, encoding_format="float")
            rows = [row.embedding for row in sorted(answer.data, key=lambda row: row.index)]
        lengths = {len(row) for row in rows}
        if len(rows) != len(texts) or len(lengths) != 1:
            raise self._client.failure(
                f"gave {len(rows)} vectors of lengths {sorted(lengths)} for {len(texts)} texts", "look at its log"
            )
        with self._client.faults():
            return np.asarray(rows, dtype=np.float32)

    def close(self) -> None:
        self._client.close()


def _load_tokenizer(entry: ModelEntry, progress: bool) -> Tokenizer:
    # The files carry truncation at 128 tokens and padding of their own: both would falsify every count.
    source = model_entry(entry.tokenizer or entry.name)
    path = ensure(source.name, progress, only=("tokenizer.json",))
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _prefixed(text: object, prefix: str, place: int) -> str:
    if not isinstance(text, str):
        raise InputError(f"text {place} is a {type(text).__name__}: give strings")
    return prefix + text


def _groups(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
