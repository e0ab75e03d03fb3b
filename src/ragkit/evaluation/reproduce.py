"""Published figures measured again: a collection ranked by dense search, BM25 or both, scored, and held against the rows.

Whole documents, truncated by the embedder as the published runs did, and counted: this is the one place where the book truncates.
Nothing is fetched here, and no figure is ever taken from anywhere but a run.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ragkit.errors import InputError
from ragkit.evaluation.collections import Collection, read_collection
from ragkit.evaluation.metrics import (
    average_precision,
    hit_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
)
from ragkit.profile import REPOSITORY, Profile
from ragkit.records import Article, Chunk
from ragkit.retrieval.fusion import fuse
from ragkit.retrieval.lexical import build_lexical

if TYPE_CHECKING:
    from ragkit.models import Embedder

DEPTH = 1000  # documents ranked for each query, as trec_eval's users do
REPORTED = ("ndcg@10", "map@1000", "mrr@10", "recall@1", "recall@5", "recall@10", "recall@100", "hit@5")
_MEASURES: dict[str, Callable[[Sequence[str], Mapping[Any, float], int], float]] = {
    "ndcg": lambda ranked, gains, k: ndcg_at_k(ranked, gains, k),
    "map": lambda ranked, gains, k: average_precision(ranked, _relevant(gains), k),
    "mrr": lambda ranked, gains, k: reciprocal_rank(ranked, _relevant(gains), k),
    "recall": lambda ranked, gains, k: recall_at_k(ranked, _relevant(gains), k),
    "precision": lambda ranked, gains, k: precision_at_k(ranked, _relevant(gains), k),
    "hit": lambda ranked, gains, k: hit_at_k(ranked, _relevant(gains), k),
}

Run = dict[str, list[str]]


def _relevant(gains: Mapping[str, float]) -> set[str]:
    return {key for key, gain in gains.items() if gain > 0}


class Method(BaseModel):
    """How a collection is ranked: "dense" by `model`, "bm25" with its options (see `build_lexical`), "hybrid" by both, fused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["dense", "bm25", "hybrid"]
    model: str | None = None
    k1: float = 1.2
    b: float = 0.75
    tokenizer: Literal["plain", "names"] = "plain"
    variant: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = "lucene"

    @model_validator(mode="after")
    def _embeds(self) -> Method:
        if (self.model is None) != (self.name == "bm25"):
            raise ValueError("dense and hybrid name a model, bm25 has none")
        return self

    def __str__(self) -> str:
        """One line, such as ``BM25 plain, k1 1.5, b 0.75``."""
        variant = "" if self.variant == "lucene" else f", {self.variant}"
        lexical = f"BM25 {self.tokenizer}, k1 {self.k1:g}, b {self.b:g}{variant}"
        return {"dense": f"dense {self.model}", "bm25": lexical, "hybrid": f"dense {self.model} and {lexical}"}[self.name]


# Ranking ----------------------------------------------------------------------------------------------------------------------


def rank_collection(
    collection: Collection, method: Method, embedder: Embedder | None = None, folder: str | Path | None = None, depth: int = DEPTH
) -> Run:
    """Rank the documents for every query: {query id: document ids, best first, equal scores by id}, `depth` of them at most.

    An empty query finds nothing. In a BEIR collection the document that has the query's own id is left out, as BEIR does (its
    argument sets ask with documents). "hybrid" is the reciprocal rank fusion of both whole rankings.

    Parameters
    ----------
    embedder : for dense and hybrid; over-long texts are cut, and counted in `embedder.truncated`.
    folder : where the index of a dense search is kept; by default it is thrown away.

    Raises
    ------
    InputError
        A dense search without an embedder, or what the index and BM25 refuse.
    """
    runs = []
    if method.name != "bm25":
        if embedder is None:
            raise InputError(f"{method} needs an embedder: open {method.model}")
        with tempfile.TemporaryDirectory() as scratch:
            runs.append(_dense_run(collection, embedder, folder or scratch, depth + 1))
    if method.name != "dense":
        runs.append(_bm25_run(collection, method, depth + 1))
    own = collection.kind == "beir"
    ranked = {query: [[key for key in run[query] if not (own and key == query)] for run in runs] for query in collection.queries}
    if len(runs) == 1:
        return {query: lists[0][:depth] for query, lists in ranked.items()}
    return {query: [key for key, _ in fuse([one[:depth] for one in lists])][:depth] for query, lists in ranked.items()}


def _documents(articles: Sequence[Article]) -> list[Chunk]:
    """Whole documents under their own ids, so that ties go by them."""
    return [Chunk(a.article_id, a.article_id, a.title, None, None, None, a.text, 0, len(a.text)) for a in articles]


def _dense_run(collection: Collection, embedder: Embedder, folder: str | Path, depth: int) -> Run:
    from ragkit.retrieval.index import build_index

    index = build_index(_documents(collection.articles), embedder, folder, {"reproduce": True}, truncate=True)
    asked = {query: text for query, text in collection.queries.items() if text.strip()}
    found: Run = {query: [] for query in collection.queries}
    if asked:
        vectors = embedder.encode_queries(list(asked.values()), truncate=True)
        for query, hits in zip(asked, index.search_many(vectors, depth), strict=True):
            found[query] = [hit.chunk.article_id for hit in hits]
    return found


def _bm25_run(collection: Collection, method: Method, depth: int) -> Run:
    documents = _documents(collection.articles)
    index = build_lexical(documents, method.tokenizer, method.k1, method.b, method=method.variant)
    found = index.search_many(list(collection.queries.values()), depth)
    return {query: [one.chunk.article_id for one in hits] for query, hits in zip(collection.queries, found, strict=True)}


# Scoring ----------------------------------------------------------------------------------------------------------------------


def measure(name: str) -> Callable[[Sequence[str], Mapping[str, float]], float]:
    """The measure of one query by its name: ndcg, map, mrr, recall, precision or hit, then @ and the cut-off.

    Raises
    ------
    InputError
        Another name.
    """
    parts = re.fullmatch(r"([a-z]+)@([1-9]\d*)", name)
    if parts is None or parts[1] not in _MEASURES:
        raise InputError(f"measure {name!r} is unknown: give one of {', '.join(_MEASURES)} with a cut-off, such as ndcg@10")
    function, k = _MEASURES[parts[1]], int(parts[2])
    return lambda ranked, gains: function(ranked, gains, k)


def retrieval_report(
    run: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, float]], measures: Sequence[str] = REPORTED
) -> dict[str, float]:
    """Mean of every measure over the judged queries; a query that the run lacks counts zero.

    Raises
    ------
    InputError
        An unknown measure, or a query with nothing relevant.
    """
    return {
        name: float(np.mean([score(run.get(query, ()), gains) for query, gains in qrels.items()]))
        for name, score in ((name, measure(name)) for name in measures)
    }


# Published rows ---------------------------------------------------------------------------------------------------------------


class Published(BaseModel):
    """Figures that one source published for one set and one method; each is met within `tolerance`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: str
    method: Method
    figures: dict[str, float] = Field(min_length=1)
    tolerance: float = Field(gt=0, lt=1)
    source: str
    url: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _measurable(self) -> Published:
        for name, value in self.figures.items():
            measure(name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}: figures lie between 0 and 1")
        return self


@dataclass(frozen=True, slots=True)
class Outcome:
    """One published figure measured again. `truncated` counts texts that the embedder cut, 0 for BM25."""

    set: str
    method: str
    measure: str
    published: float
    got: float
    tolerance: float
    passed: bool
    queries: int
    documents: int
    truncated: int
    source: str
    url: str | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Published figures that were not measured, and why."""

    set: str
    method: str
    figures: int
    why: str


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What `reproduce` measured and skipped, and the identities of the embedders it used."""

    outcomes: tuple[Outcome, ...]
    skipped: tuple[Skipped, ...]
    used: tuple[dict[str, Any], ...]

    @property
    def missed(self) -> int:
        """How many figures were not met."""
        return sum(not one.passed for one in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: rows, skipped, how many passed and failed, and each set's sizes (`truncated`: the most of any method)."""
        sizes: dict[str, dict[str, int]] = {}
        for one in self.outcomes:
            size = sizes.setdefault(one.set, {"documents": one.documents, "queries": one.queries, "truncated": 0})
            size["truncated"] = max(size["truncated"], one.truncated)
        return {
            "rows": [asdict(one) for one in self.outcomes],
            "skipped": [asdict(one) for one in self.skipped],
            "passed": len(self.outcomes) - self.missed,
            "failed": self.missed,
            "sets": sizes,
        }

    def lines(self) -> list[str]:
        """One line a figure, one for what was skipped of each method, and the sum."""
        shown = [(one.set, one.method) for one in self.outcomes] + [(one.set, one.method) for one in self.skipped]
        wide = [max((len(pair[side]) for pair in shown), default=0) for side in (0, 1)]
        lines = [
            f"{one.set:<{wide[0]}}  {one.method:<{wide[1]}}  {one.measure:<11}  expected {one.published:.4f}  "
            f"got {one.got:.4f}  ± {one.tolerance:g}  {'pass' if one.passed else 'FAIL'}"
            for one in self.outcomes
        ]
        lines += [
            f"{one.set:<{wide[0]}}  {one.method:<{wide[1]}}  skipped, figures: {one.figures}; {one.why}" for one in self.skipped
        ]
        skipped = sum(one.figures for one in self.skipped)
        return [*lines, f"{len(self.outcomes) - self.missed} passed, {self.missed} failed, {skipped} skipped"]


def read_published(folder: str | Path = REPOSITORY / "data" / "published") -> tuple[Published, ...]:
    """Read `*.yaml`, each a list of `Published`, in order of the files' names.

    Raises
    ------
    InputError
        No such file, no YAML list, or an entry that is none.
    """
    paths = sorted(Path(folder).glob("*.yaml"))
    if not paths:
        raise InputError(f"{folder} holds no .yaml file of published figures")
    return tuple(entry for path in paths for entry in _read_entries(path))


def _read_entries(path: Path) -> list[Published]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(content, list):
        raise InputError(f"{path} is no list of published figures")
    entries = []
    for number, entry in enumerate(content, start=1):
        try:
            entries.append(Published.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}, entry {number}: {place + ': ' if place else ''}{first['msg']}") from error
    return entries


def reproduce(
    published: Sequence[Published],
    folders: Mapping[str, tuple[Path, str]],
    profile: Profile,
    say: Callable[[str], None] = lambda line: None,
) -> Reproduction:
    """Measure every published figure whose collection and weights are at hand; a method runs once for all its figures.

    Parameters
    ----------
    folders : set name -> (folder, kind) of the collections at hand. They are read first, so that a broken one is refused
        before minutes are spent.
    profile : its embedder, in float32, for figures of its model; other models run in this process.
    say : told what is being done, a line at a time.

    Raises
    ------
    InputError
        A collection that is there cannot be read.
    ServiceError
        Weights differ from their pin, or a server failed.
    """
    from ragkit.models import open_embedder

    wanted: dict[tuple[str, Method], list[Published]] = {}
    for entry in published:
        wanted.setdefault((entry.set, entry.method), []).append(entry)
    needed = {name for name, _ in wanted if name in folders}
    collections = {name: read_collection(folders[name][0], folders[name][1]) for name in sorted(needed)}
    for name, collection in collections.items():
        for note in collection.notes:
            say(f"{name}: {note}")

    outcomes: list[Outcome] = []
    skipped: list[Skipped] = []
    with ExitStack() as stack:
        opened: dict[str, Embedder] = {}
        for (name, method), entries in wanted.items():
            why = None if name in folders else "the collection is not at hand"
            why = why or _weights_lacking(method, profile)
            if why:
                skipped.append(Skipped(name, str(method), sum(len(entry.figures) for entry in entries), why))
                continue
            collection = collections[name]
            say(f"{name}, {method}: {len(collection.articles)} documents, {len(collection.queries)} queries")
            if method.model and method.model not in opened:
                opened[method.model] = stack.enter_context(open_embedder(_profile_of(method.model, profile)))
            embedder = opened[method.model] if method.model else None
            before = embedder.truncated if embedder else 0
            run = rank_collection(collection, method, embedder)
            truncated = embedder.truncated - before if embedder else 0
            for entry in entries:
                outcomes += _outcomes(entry, run, collection, truncated)
        used = tuple(embedder.identity for embedder in opened.values())
    return Reproduction(tuple(outcomes), tuple(skipped), used)


def _outcomes(entry: Published, run: Run, collection: Collection, truncated: int) -> list[Outcome]:
    got = retrieval_report(run, collection.qrels, tuple(entry.figures))
    return [
        Outcome(
            set=entry.set,
            method=str(entry.method),
            measure=name,
            published=value,
            got=got[name],
            tolerance=entry.tolerance,
            passed=abs(got[name] - value) <= entry.tolerance,
            queries=len(collection.queries),
            documents=len(collection.articles),
            truncated=truncated,
            source=entry.source,
            url=entry.url,
        )
        for name, value in entry.figures.items()
    ]


def _is_profiles(model: str, profile: Profile) -> bool:
    from ragkit.models.weights import find_model

    return find_model(model) is not None and find_model(model) == find_model(profile.embedder.model)


def _profile_of(model: str, profile: Profile) -> Profile:
    """The profile whose embedder a published figure of `model` is measured with: float32, and in this process unless served."""
    if _is_profiles(model, profile):
        return profile.in_float32()
    choice: dict[str, Any] = {"model": model, "backend": "sentence-transformers", "base_url": None}
    return profile.model_copy(update={"embedder": profile.embedder.model_copy(update=choice)})


def _weights_lacking(method: Method, profile: Profile) -> str | None:
    """Why a method's weights are not at hand, None where they are."""
    from ragkit.models.weights import find_model, list_models

    if method.model is None:
        return None
    entry = find_model(method.model)
    if entry is None:
        return f"{method.model} is not among this package's pinned models"
    if _is_profiles(method.model, profile) and profile.embedder.backend == "openai":
        return None
    if "sentence-transformers" not in entry.backends:
        return f"{method.model} runs behind a server only: give --profile with one that serves it"
    if not next(row.present for row in list_models() if row.name == entry.name):
        return f"the weights are not here: `ragkit models fetch {entry.name}`"
    return None
