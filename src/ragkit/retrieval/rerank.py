"""Rerank: retrieve wide, score each question-chunk pair jointly, keep the best. A cross-encoder, a server or a reader scores.

It never searches, never changes a cosine, and never hides a score that could not be read.
"""

from __future__ import annotations

import gc
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ragkit.errors import InputError, ServiceError
from ragkit.models import ensure, open_reader
from ragkit.models.client import ServerClient
from ragkit.models.text import is_unicode
from ragkit.models.weights import find_model, sha256_of
from ragkit.profile import Profile, RerankChoice
from ragkit.records import Hit

Scores = list[float | None]

_ASK = (
    "How relevant is the passage to the question, on a scale from 0 (not relevant) to 10 (it answers the question)? "
    "Reply with the number only."
)
_ANSWER_TOKENS = 4  # "10" and what a model may put behind it
_GRADE = re.compile(r"(10|[0-9])(?:/10)?\.?")
_WEIGHTS = ("*.json", "*.txt", "*.model", "*.safetensors")  # no pickles and no Python: what is fetched is data
_HUB_SECONDS = 5.0


class _Engine(Protocol):
    """What scores a question with each of some texts; None for a score that it could not read."""

    def scores(self, question: str, texts: Sequence[str]) -> Scores: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reranked:
    """Hits in their new order, ranks from 1, cosines as they were; the wall time of scoring them, and how many had no score."""

    hits: list[Hit]
    milliseconds: float
    unparsable: int


class Reranker:
    """Joint scores of question and text. Made by `open_reranker`; a context manager that frees the model at its end.

    Attributes
    ----------
    identity : dict
        All that a score depends on besides the pair, as plain JSON values.
    """

    def __init__(self, identity: dict[str, Any], engine: _Engine) -> None:
        self.identity = identity
        self._engine: _Engine | None = engine

    def scores(self, question: str, texts: Sequence[str]) -> Scores:
        """One score for each text, higher is more relevant (comparable within one question only); None where it cannot be read.

        Raises
        ------
        InputError
            The question is not valid Unicode, or a pair is longer than the model takes.
        ServiceError
            The model or server failed, its scores are not one finite number a text, or the reranker was closed.
        """
        if self._engine is None:
            raise ServiceError(f"reranker {self.identity['model']} is closed: open it again with open_reranker")
        if not is_unicode(question):
            raise InputError("the question is not valid Unicode (a lone surrogate): repair its encoding")
        scores = self._engine.scores(question, texts) if texts else []
        if len(scores) != len(texts) or any(score is not None and not math.isfinite(score) for score in scores):
            raise ServiceError(
                f"{self.identity['model']} gave {len(scores)} scores for {len(texts)} texts, or one that is not finite: "
                "is it a reranker?"
            )
        return scores

    def close(self) -> None:
        """Free the model, or the server's connections; scoring afterwards raises ServiceError."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            gc.collect()

    def __enter__(self) -> Reranker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rerank(question: str, hits: Sequence[Hit], reranker: Reranker, n: int | None = None, candidates: int = 50) -> Reranked:
    """Score the first `candidates` hits jointly with the question and keep the n best of all.

    Equal scores keep their former order; a hit without a readable score comes after all that have one, and hits beyond
    `candidates`, which are not scored, come last in their former order.

    Parameters
    ----------
    hits : best first, many more than n: what is not among them cannot be brought back.
    n : how many to keep, all by default.

    Raises
    ------
    InputError, ServiceError
        As `Reranker.scores`.

    References
    ----------
    Nogueira and Cho (2019), "Passage re-ranking with BERT", arXiv:1901.04085.
    """
    first = list(hits[:candidates])
    started = time.perf_counter()
    scores = reranker.scores(question, [hit.chunk.text for hit in first])
    milliseconds = 1000 * (time.perf_counter() - started)
    order = sorted(range(len(first)), key=lambda place: -math.inf if (score := scores[place]) is None else score, reverse=True)
    kept = [*(first[place] for place in order), *hits[candidates:]][:n]
    ranked = [replace(hit, rank=rank) for rank, hit in enumerate(kept, start=1)]
    return Reranked(ranked, milliseconds, sum(score is None for score in scores))


def open_reranker(profile: Profile, choice: RerankChoice | None = None, *, progress: bool = True) -> Reranker:
    """The reranker of a profile, ready to score; weights are fetched if they are not there yet.

    Parameters
    ----------
    choice : another than the profile's `retrieval.rerank`.
    progress : show the fetch.

    Raises
    ------
    InputError
        No rerank is chosen, or the model named is no reranker (no reader, for the reader backend).
    ServiceError
        Weights cannot be fetched or read.
    """
    choice = choice or profile.retrieval.rerank
    if choice is None:
        raise InputError(f"profile {profile.name} chooses no rerank: set retrieval.rerank")
    if choice.backend == "reader":
        reader = _Reader(profile, choice, progress)
        return Reranker(reader.identity, reader)
    assert choice.model is not None
    if choice.backend == "server":
        served = _Served(choice)
        return Reranker({"backend": "server", "model": choice.model, "weights": None}, served)
    folder = _weights(choice.model, progress)
    name, digest = _named(choice.model), [sha256_of(path) for path in sorted(folder.glob("*.safetensors"))]
    return Reranker({"backend": "cross-encoder", "model": name, "weights": digest}, _CrossEncoder(name, folder, choice))


def _named(model: str) -> str:
    """A model's name without the path of this machine."""
    return Path(model).name if Path(model).is_dir() else model


def _weights(model: str, progress: bool) -> Path:
    """The folder of a cross-encoder: a local one, a pinned one of the registry, else the hub's or its local cache's.

    Only pinned weights are compared with a known sha256; of others the identity says which bytes they were.
    """
    if Path(model).is_dir():
        return Path(model)
    entry = find_model(model)
    if entry is not None and entry.kind != "reranker":
        raise InputError(f"{entry.name} is a {entry.kind}, not a reranker: name one such as BAAI/bge-reranker-base")
    if entry is not None and entry.files:
        return ensure(entry.name, progress)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(model, allow_patterns=list(_WEIGHTS), etag_timeout=_HUB_SECONDS))
    except HFValidationError as error:
        raise InputError(f"rerank model {model!r} is neither a folder nor a hub id: correct rerank.model") from error
    # The client's own errors, offline mode and a full disk: all are OSError, or one of the two others, by its version.
    except (OSError, HfHubHTTPError, ValueError) as error:
        raise ServiceError(
            f"could not fetch the reranker {model} ({type(error).__name__}): connect once, give a folder that holds it as "
            "rerank.model, or choose the backend reader or server"
        ) from error


class _CrossEncoder:
    """sentence-transformers' CrossEncoder on this machine's CPU in float32; its scores are logits, which do not saturate."""

    def __init__(self, name: str, folder: Path, choice: RerankChoice) -> None:
        import torch
        from safetensors import SafetensorError
        from sentence_transformers import CrossEncoder

        from ragkit.models.quiet import quiet_loading

        try:
            with quiet_loading():
                self._model: Any = CrossEncoder(
                    str(folder),
                    device="cpu",
                    local_files_only=True,
                    model_kwargs={"dtype": torch.float32, "use_safetensors": True},
                )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            said = next(iter(str(error).splitlines()), "")[:120]
            raise ServiceError(f"{name} cannot be read as a cross-encoder ({said}): give a folder of safetensors") from error
        if self._model.num_labels != 1:
            raise InputError(f"{name} has {self._model.num_labels} outputs a pair, not one score: it classifies, name a reranker")
        self._name = name
        self._activation = torch.nn.Identity()
        self._batch_size = choice.batch_size

    def scores(self, question: str, texts: Sequence[str]) -> Scores:
        pairs = [(question, text) for text in texts]
        lengths = [len(ids) for ids in self._model.tokenizer(pairs, truncation=False, verbose=False)["input_ids"]]
        limit = self._model.max_seq_length
        if limit is not None and max(lengths) > limit:
            raise InputError(
                f"question and chunk of {max(lengths)} tokens exceed the {limit} of {self._name}: cut smaller chunks"
            )
        found = self._model.predict(pairs, batch_size=self._batch_size, show_progress_bar=False, activation_fn=self._activation)
        return [float(score) for score in found]

    def close(self) -> None:
        del self._model


class _Served:
    """Any server with a `/rerank` in the form of Jina and vLLM: {model, query, documents} -> results[index, relevance_score]."""

    def __init__(self, choice: RerankChoice) -> None:
        assert choice.base_url is not None
        assert choice.model is not None
        self._client = ServerClient(choice.base_url, (choice.model,), choice.timeout_seconds)
        self._batch_size = choice.batch_size

    def scores(self, question: str, texts: Sequence[str]) -> Scores:
        return [
            score
            for start in range(0, len(texts), self._batch_size)
            for score in self._batch(question, list(texts[start : start + self._batch_size]))
        ]

    def _batch(self, question: str, texts: list[str]) -> Scores:
        with self._client.faults():
            body = {"model": self._client.model, "query": question, "documents": texts}
            answer: Any = self._client.api.post("/rerank", body=body, cast_to=object)
            if not isinstance(answer, dict) or not isinstance(answer.get("results"), list):
                raise ValueError("a rerank answer without results")
            pairs = [(row.get("index"), row.get("relevance_score")) for row in answer["results"]]
        found = {place: score for place, score in pairs if _is_score(place, score)}
        if len(pairs) != len(texts) or found.keys() != set(range(len(texts))):
            raise self._client.failure(
                f"gave {len(found)} usable scores for {len(texts)} documents", "look at its log; it must score each document once"
            )
        return [float(found[place]) for place in range(len(texts))]

    def close(self) -> None:
        self._client.close()


def _is_score(place: Any, score: Any) -> bool:
    if isinstance(place, bool) or isinstance(score, bool):
        return False
    return isinstance(place, int) and isinstance(score, int | float) and math.isfinite(score)


class _Reader:
    """A reader asked how well a passage answers the question, 0 to 10, pair by pair; small models give few distinct grades.

    It is opened for this alone, since an answer of four tokens is another setting than the profile's.
    """

    def __init__(self, profile: Profile, choice: RerankChoice, progress: bool) -> None:
        changes: dict[str, Any] = {"max_new_tokens": _ANSWER_TOKENS, "temperature": 0.0, "batch_size": choice.batch_size}
        if choice.model:
            changes["model"] = choice.model
        reader = profile.reader.model_copy(update=changes)
        self._reader = open_reader(profile.model_copy(update={"reader": reader}), progress=progress)
        self.identity = {**self._reader.identity, "backend": "reader", "runs_on": profile.reader.backend, "asked": _ASK}

    def scores(self, question: str, texts: Sequence[str]) -> Scores:
        prompts = [grade_prompt(question, text) for text in texts]
        return [read_grade(completion.text) for completion in self._reader.answer(prompts, progress=False)]

    def close(self) -> None:
        self._reader.close()


def grade_prompt(question: str, text: str) -> list[dict[str, str]]:
    """What a reader is asked about one pair: passage, question, scale, in this order, which small models follow best."""
    # A chat template's control tokens ("<|im_end|>") would end the message from inside a passage: data must stay data.
    pair = f"Passage: {text}\n\nQuestion: {question}".replace("<|", "< |")
    return [{"role": "user", "content": f"{pair}\n\n{_ASK}"}]


def read_grade(text: str) -> float | None:
    """The grade of an answer whose first line is a whole number from 0 to 10 ("7", "7.", "7/10") and nothing else; else None."""
    lines = text.strip().splitlines()
    found = _GRADE.fullmatch(lines[0].strip()) if lines else None
    return float(found[1]) if found else None
