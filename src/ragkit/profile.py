"""A machine's choices: which models, where they run, how large things are. Read from `profiles/NAME.yaml`, validated, hashed.

Nothing else in the package asks which machine it is on.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ragkit.errors import InputError

REPOSITORY = Path(__file__).resolve().parents[2]
ARMS = ("A0", "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EmbedderChoice(_Part):
    """The embedding model: `backend` in this process ("openvino", or "sentence-transformers" in float32, as published figures
    are made) or any OpenAI-compatible server ("openai").
    """

    model: str
    backend: Literal["openvino", "sentence-transformers", "openai"] = "openvino"
    base_url: str | None = None
    batch_size: int = Field(32, ge=1)
    timeout_seconds: float = Field(120.0, gt=0)


class ReaderChoice(_Part):
    """The generator: `max_new_tokens` and `context_tokens` (cap on the prompt's context) count the reader's own tokens.

    `batch_size` prompts are answered together in process, `concurrency` requests are under way at once at a server.
    """

    model: str
    backend: Literal["openvino", "transformers", "openai"] = "openvino"
    base_url: str | None = None
    max_new_tokens: int = Field(256, ge=1)
    temperature: float = Field(0.0, ge=0)
    context_tokens: int = Field(1600, ge=64)
    timeout_seconds: float = Field(120.0, gt=0)
    batch_size: int = Field(8, ge=1)
    concurrency: int = Field(1, ge=1)
    extra_body: dict = Field(default_factory=dict)


class ChunkingChoice(_Part):
    """How articles are cut; sizes count the embedder's tokens, special ones included, unless `unit` is characters."""

    strategy: Literal["tokens", "headings", "recursive"] = "tokens"
    size: int = Field(256, ge=8)
    overlap: int = Field(32, ge=0)
    unit: Literal["tokens", "characters"] = "tokens"


class RerankChoice(_Part):
    """Who scores the first `candidates` hits again, question and chunk together.

    `backend` is a cross-encoder in this process (`model`: a registered name, a local folder or a hub id), a server's `/rerank`
    (`model` and `base_url`), or a reader asked for relevance (`model`: another reader than the profile's).
    """

    backend: Literal["cross-encoder", "server", "reader"]
    model: str | None = None
    base_url: str | None = None
    candidates: int = Field(50, ge=1)
    batch_size: int = Field(16, ge=1)
    timeout_seconds: float = Field(120.0, gt=0)

    @model_validator(mode="after")
    def _whole(self) -> RerankChoice:
        if self.backend != "reader" and not self.model:
            raise ValueError(f"the {self.backend} backend needs a model such as BAAI/bge-reranker-base")
        if (self.backend == "server") != bool(self.base_url):
            needs = "needs a" if self.backend == "server" else "takes no"
            raise ValueError(f"the {self.backend} backend {needs} base_url such as http://localhost:8002/v1")
        return self


class RetrievalChoice(_Part):
    """How chunks are found, how many are given to the reader (`k`), and the cosine below which none is.

    `candidates` of each list are fused by a hybrid. `tokenizer`, `k1` and `b` are BM25's. Rerank is off unless it is chosen.
    """

    method: Literal["dense", "bm25", "hybrid"] = "dense"
    k: int = Field(5, ge=1)
    min_cosine: float | None = Field(0.30, ge=-1, le=1)
    candidates: int = Field(100, ge=1)
    tokenizer: Literal["names", "plain"] = "names"
    k1: float = Field(1.2, ge=0, allow_inf_nan=False)
    b: float = Field(0.75, ge=0, le=1)
    rerank: RerankChoice | None = None

    @model_validator(mode="after")
    def _whole(self) -> RetrievalChoice:
        if self.rerank is not None and self.rerank.candidates < self.k:
            raise ValueError(f"rerank.candidates {self.rerank.candidates} must not be below k {self.k}: retrieve wide, keep few")
        return self

    @property
    def dense_only(self) -> bool:
        """Whether the index alone answers: no words are counted and nothing is scored again."""
        return self.method == "dense" and self.rerank is None


class EvaluationChoice(_Part):
    """What is measured: the frozen snapshot and tasks (paths from the repository's root), the split and the arms.

    `limit` keeps the first tasks only (scale for tests); `primary` is the comparison declared before looking. `rung` says what
    arm A5 changes in the profile's retrieval, `k` and `min_cosine` excepted, which A4 and A5 share.
    """

    snapshot: str = "data/articles_snapshot.parquet"
    tasks: str = "data/tasks/sda_qualitative_tasks.jsonl"
    split: Literal["dev", "test", "all"] = "dev"
    limit: int | None = Field(None, ge=1)
    arms: tuple[str, ...] = ("A0", "A1", "A4", "A6")
    primary: tuple[str, str] = ("A4", "A1")
    rung: dict[str, Any] = Field(default_factory=lambda: {"method": "hybrid"})
    seed: int = 0

    @field_validator("arms", "primary")
    @classmethod
    def _known_arms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [arm for arm in value if arm not in ARMS]
        if unknown:
            raise ValueError(f"unknown arm {unknown[0]!r}: choose from {', '.join(ARMS)}")
        return value


class Profile(_Part):
    """A whole profile. `digest` names its content; two files that say the same thing have the same digest."""

    name: str
    embedder: EmbedderChoice
    reader: ReaderChoice
    chunking: ChunkingChoice = ChunkingChoice()
    retrieval: RetrievalChoice = RetrievalChoice()
    evaluation: EvaluationChoice = EvaluationChoice()

    @model_validator(mode="after")
    def _whole(self) -> Profile:
        if self.chunking.overlap >= self.chunking.size:
            raise ValueError(f"chunking.overlap {self.chunking.overlap} must be below chunking.size {self.chunking.size}")
        for part in (self.embedder, self.reader):
            if part.backend == "openai" and not part.base_url:
                raise ValueError(f"{part.model}: the openai backend needs a base_url such as http://localhost:8000/v1")
        shared = sorted({"k", "min_cosine"} & self.evaluation.rung.keys())
        if shared:
            raise ValueError(f"evaluation.rung changes {shared[0]}, which A4 and A5 share: set retrieval.{shared[0]}")
        try:
            _ = self.rung
        except ValidationError as error:
            raise ValueError(f"evaluation.rung: {_first_fault(error)}") from error
        return self

    @property
    def rung(self) -> RetrievalChoice:
        """The retrieval of arm A5: the profile's own with what `evaluation.rung` changes."""
        return RetrievalChoice.model_validate({**self.retrieval.model_dump(), **self.evaluation.rung})

    def with_retrieval(self, **changes: Any) -> Profile:
        """The same choices with these of `retrieval` changed.

        Raises
        ------
        InputError
            A value is unknown or out of range.
        """
        return _validated(f"profile {self.name}", {**self.model_dump(), "retrieval": {**self.retrieval.model_dump(), **changes}})

    def in_float32(self) -> Profile:
        """The same choices with the in-process embedder in float32, the arithmetic of published figures."""
        if self.embedder.backend == "openai":
            return self
        return self.model_copy(update={"embedder": self.embedder.model_copy(update={"backend": "sentence-transformers"})})

    @property
    def digest(self) -> str:
        """SHA-256 (64 hex) over the validated content."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def profile_path(name: str | Path) -> Path:
    """Where a profile lies: a path as given, else `profiles/NAME.yaml` of the working directory or of the repository.

    Raises
    ------
    InputError
        No such profile; the message lists those there are.
    """
    given = Path(name)
    if given.suffix in {".yaml", ".yml"}:
        if given.is_file():
            return given
        raise InputError(f"profile file {given} does not exist")
    folders = [Path.cwd() / "profiles", REPOSITORY / "profiles"]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise InputError(f"unknown profile {str(name)!r}: choose from {', '.join(known) or 'none found'}, or give a .yaml path")


def resolve(path: str | Path) -> Path:
    """A path of a profile as a file: as given from the working directory, else from the repository's root."""
    given = Path(path)
    return given if given.is_absolute() or given.exists() else REPOSITORY / given


def load_profile(profile: str | Path | Profile) -> Profile:
    """Read and validate a profile by name or path; a `Profile` is returned as it is.

    Raises
    ------
    InputError
        The file is missing, is not YAML, or a value is unknown or out of range.
    """
    if isinstance(profile, Profile):
        return profile
    path = profile_path(profile)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"profile {path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise InputError(f"profile {path} is empty or not a mapping: give at least embedder and reader")
    return _validated(f"profile {path.name}", {"name": path.stem, **content})


def _validated(what: str, content: dict[str, Any]) -> Profile:
    try:
        return Profile(**content)
    except ValidationError as error:
        raise InputError(f"{what}: {_first_fault(error)}") from error


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "profile"
    return f"{place}: {first['msg']}"
