"""The memory budget of a card: bytes of weights, of KV cache, and where two models can live. Arithmetic on a model's config.json.

It holds the book's equations 1.6 and 1.7, and says as an interval what no arithmetic can know (activations, CUDA contexts).
It never loads a model, never asks a device or the network, and never fills a gap in a configuration with a guess.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

from ragkit.errors import InputError

KIB, MIB, GIB = 2**10, 2**20, 2**30
VOCABULARY_MULTIPLE = 64
"""vLLM pads the rows of the embedding and of the head to a multiple of this."""
CUDA_CONTEXT_GIB = (0.30, 0.55)
"""One per process, outside the share that a server claims (public logs)."""
CUDA_GRAPHS_GIB = (0.0, 0.7)
"""What captured graphs take on cards up to 32 GB (public logs; one of 1.56 lies outside). Zero with `--enforce-eager`."""
ACTIVATION_GIB = (0.2, 0.5)
"""The profiled peak where neither the sampler nor a long batch dominates (public logs)."""
SAMPLER_COPIES = 9.65
"""Float32 copies of max_num_seqs × vocabulary alive at once in the torch sampler (fitted to public logs)."""
T4_GIB = 14.56
"""What CUDA sees on a T4-class card: sold as 16 GB, part of it kept for error correction."""

_KV_BYTES = {
    **dict.fromkeys(("auto", "bf16", "fp16"), Fraction(2)),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), Fraction(1)),
    "q8_0": Fraction(34, 32),
}
_SOLD_AS = {8: (7.65, 7.99), 16: (15.51, 15.98), 24: (22.04, 23.99), 32: (31.36, 31.96), 80: (79.15, 79.22)}


@dataclass(frozen=True, slots=True)
class _Family:
    """What a model type has beyond the sizes in its configuration."""

    encoder: bool = False
    gated: bool = True  # gate, up and down projections; else up and down
    qkv_bias: bool = False
    linear_bias: bool = False  # on the other projections
    norms: int = 2  # a layer's norms of hidden_size
    norm_bias: bool = False
    qk_norm: str = ""  # "head": one head_dim vector each for q and k; "full": over all heads
    positions: int | None = None  # rows of the learned position table beyond max_position_embeddings; None: rotary
    types: int = 0  # rows of the token-type table where the configuration has no type_vocab_size
    embedding_norm: bool = False
    pooler: bool = False
    tied: bool | None = None  # transformers' default for tie_word_embeddings, which config.json leaves out where it agrees
    own_head_dim: bool = False  # head_dim is not hidden_size / heads, so it cannot be derived


_BERT = _Family(
    encoder=True,
    gated=False,
    qkv_bias=True,
    linear_bias=True,
    norm_bias=True,
    positions=0,
    types=2,
    embedding_norm=True,
    pooler=True,
)
_FAMILIES = {
    "llama": _Family(tied=False),
    "mistral": _Family(tied=False),
    "phi3": _Family(tied=False),
    "qwen2": _Family(qkv_bias=True, tied=False),
    "qwen3": _Family(qk_norm="head", tied=False, own_head_dim=True),
    "olmo2": _Family(qk_norm="full", tied=False),
    "gemma": _Family(tied=True, own_head_dim=True),
    "gemma2": _Family(norms=4, tied=True, own_head_dim=True),
    "gemma3_text": _Family(norms=4, qk_norm="head", tied=True, own_head_dim=True),
    "opt": _Family(gated=False, qkv_bias=True, linear_bias=True, norm_bias=True, positions=2, tied=True),
    "falcon": _Family(gated=False, norms=1, norm_bias=True, tied=True),
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": replace(_BERT, types=1),
    "modernbert": _Family(encoder=True, embedding_norm=True),
}
_ENCODERS = {name for name, family in _FAMILIES.items() if family.encoder}
_ENCODERS |= {"distilbert", "mpnet", "nomic_bert", "electra", "camembert", "deberta-v2"}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_HYBRID = ("full_attention_interval", "mamba_d_state", "mamba_d_ssm", "ssm_cfg", "attn_layer_indices", "conv_L_cache")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The sizes of one model that its memory depends on, named as in config.json.

    `kv_lora_rank` is set for latent attention (MLA), whose cache is one vector per token and layer instead of one per head.
    `experts` counts a mixture's experts (0: dense). `head_dim`, `num_key_value_heads` were derived where the file has none.
    """

    name: str
    model_type: str
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    sliding_window: int | None = None
    attention_bias: bool = False
    rotary_dim: int = 0
    type_vocab_size: int = 0
    experts: int = 0

    @property
    def is_encoder(self) -> bool:
        """Whether the model reads a text in one pass and keeps no KV cache."""
        return self.model_type in _ENCODERS

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | str | PathLike[str]) -> ModelSpec:
        """Read a Hugging Face config.json, given as a mapping, as its path or as the folder that holds it.

        Derived where absent: `num_key_value_heads` (= heads), `head_dim` (= hidden_size / heads, except in families that choose
        it freely), `tie_word_embeddings` (the family's default in transformers, which the file leaves out).

        Raises
        ------
        InputError
            No such file, bad JSON, a missing key that cannot be derived, a size that is not a positive whole number, a hybrid of
            attention and state-space layers, or a composite of a text and another tower.
        """
        found, name = _read_config(config)
        return _spec(found, name)


def _read_config(config: Mapping[str, Any] | str | PathLike[str]) -> tuple[Mapping[str, Any], str]:
    if isinstance(config, Mapping):
        return config, str(config.get("_name_or_path") or config.get("model_type") or "model")
    if not isinstance(config, (str, PathLike)):
        raise InputError(f"a model configuration is a mapping or a path, not {type(config).__name__}")
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"model configuration {path} cannot be read ({error.strerror}): give the path of a config.json"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"model configuration {path} is not JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise InputError(f"model configuration {path} holds a {type(content).__name__}, not an object: give a config.json")
    fallback = path.parent.name if path.name == "config.json" else path.stem
    return content, str(content.get("_name_or_path") or fallback)


def _spec(config: Mapping[str, Any], name: str) -> ModelSpec:
    def size(*keys: str, default: int | None = None) -> int:
        for key in keys:
            if (value := config.get(key)) is not None:
                return _whole(f"{name}: {key}", value)
        if default is None:
            raise InputError(f"{name}: the configuration has no {keys[0]}: give the model's whole config.json")
        return default

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise InputError(f"{name}: the configuration has no model_type (got {model_type!r}): give the model's whole config.json")
    if "num_hidden_layers" not in config and isinstance(config.get("text_config"), Mapping):
        raise InputError(f"{name}: {model_type} has several towers: give its text_config (it leaves the others out)")
    if hybrid := [key for key in _HYBRID if config.get(key) is not None]:
        raise InputError(f"{name}: {hybrid[0]} marks layers other than attention, which are not covered here")
    layer_types = config.get("layer_types") or []
    if not isinstance(layer_types, (list, tuple)):
        raise InputError(f"{name}: layer_types is {layer_types!r}: it must be a list")
    if other := [kind for kind in layer_types if kind not in ("full_attention", "sliding_attention")]:
        raise InputError(f"{name}: layer_types has {other[0]!r}, which is not covered here")
    family = _FAMILIES.get(model_type, _Family())
    hidden, heads = size("hidden_size"), size("num_attention_heads")
    default_kv = 1 if model_type == "falcon" and config.get("multi_query") else heads
    kv_heads = size("num_key_value_heads", "num_kv_heads", default=default_kv)
    latent = size("kv_lora_rank", default=0) if config.get("kv_lora_rank") is not None else None
    rope_dim = size("qk_rope_head_dim") if latent else None
    if heads % kv_heads:
        raise InputError(f"{name}: {heads} attention heads are no multiple of {kv_heads} key-value heads: check them")
    can_derive = hidden % heads == 0 and not family.own_head_dim
    head_dim = size("head_dim", default=hidden // heads if can_derive or latent else None)
    tied = config.get("tie_word_embeddings")
    tied = family.tied if tied is None else tied
    if not isinstance(tied, bool | None):
        raise InputError(f"{name}: tie_word_embeddings is {tied!r}: it must be true or false")
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    middle = 4 * hidden if model_type == "falcon" else None
    rotary = config.get("partial_rotary_factor")
    rotary = 1.0 if rotary is None else _number(f"{name}: partial_rotary_factor", rotary, high=1.0)
    return ModelSpec(
        name=name,
        model_type=model_type,
        num_hidden_layers=size("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=hidden,
        intermediate_size=size("intermediate_size", "ffn_dim", "ffn_hidden_size", default=middle),
        vocab_size=size("vocab_size"),
        max_position_embeddings=size("max_position_embeddings"),
        tie_word_embeddings=bool(tied),
        kv_lora_rank=latent,
        qk_rope_head_dim=rope_dim,
        sliding_window=None if window is None else _whole(f"{name}: sliding_window", window),
        attention_bias=config.get("attention_bias") is True,
        rotary_dim=rope_dim or int(head_dim * rotary),
        type_vocab_size=size("type_vocab_size", default=family.types) if family.types else 0,
        experts=next((size(key) for key in _EXPERTS if config.get(key)), 0),
    )


def _whole(name: str, value: Any, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{name} is {value!r}: it must be a whole number of at least {low}")
    return value


def _number(name: str, value: Any, high: float = math.inf, zero: bool = False) -> float:
    real = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
    good = real and (value > 0 or (zero and value == 0))
    if not good or value > high:
        bound = f" and at most {high:g}" if high < math.inf else ""
        raise InputError(f"{name} is {value!r}: it must be a finite number {'of at least' if zero else 'above'} 0{bound}")
    return float(value)


# --- weights --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tensor:
    part: str  # "linear layers", "embeddings and head", "norms and biases", "rope cache"
    rows: int
    columns: int = 1
    count: int = 1


# A linear layer's tensors in bytes, by weight format: what is quantised, then its scales, zeros and order.


def _linear_16bit(rows: int, columns: int) -> tuple[int, ...]:
    return (2 * rows * columns,)


def _linear_fp8(rows: int, columns: int) -> tuple[int, ...]:
    return rows * columns, 4 * _ceil(rows, 128) * _ceil(columns, 128)


def _linear_awq(rows: int, columns: int) -> tuple[int, ...]:
    groups = _ceil(columns, 128)
    return _ceil(rows * columns, 2), 2 * rows * groups, _ceil(rows * groups, 2)


def _linear_gptq(rows: int, columns: int) -> tuple[int, ...]:
    return *_linear_awq(rows, columns), 4 * columns


def _linear_nvfp4(rows: int, columns: int) -> tuple[int, ...]:
    return _ceil(rows * columns, 2), _ceil(rows * columns, 16)


def _linear_nf4(rows: int, columns: int) -> tuple[int, ...]:
    return _ceil(rows * columns, 2), _ceil(rows * columns, 64)


def _linear_q8_0(rows: int, columns: int) -> tuple[int, ...]:
    return (34 * _ceil(rows * columns, 32),)


_LINEAR = {
    "bf16": _linear_16bit,
    "fp16": _linear_16bit,
    "fp8": _linear_fp8,
    "awq": _linear_awq,
    "gptq": _linear_gptq,
    "nvfp4": _linear_nvfp4,
    "bnb-nf4": _linear_nf4,
    "q8_0": _linear_q8_0,
}
WEIGHT_FORMATS = tuple(_LINEAR)


def parameters(spec: ModelSpec) -> int:
    """Count the model's parameters, the head once where it is tied, without the padding of the vocabulary.

    Raises
    ------
    InputError
        The architecture's tensors are not known.
    """
    return sum(t.rows * t.columns * t.count for t in _tensors(spec, 1, spec.vocab_size) if t.part != "rope cache")


def weight_parts(spec: ModelSpec, dtype: str, tensor_parallel: int = 1) -> dict[str, int]:
    """Bytes of the loaded weights on one card, by part of the model.

    Linear layers take the format's bytes; embeddings, head, norms and biases stay 16-bit (in `q8_0` embeddings and head are 8-bit
    too). The rotary cache (positions × rotary dimensions × 2 bytes) belongs to the loaded model.

    Raises
    ------
    InputError
        An unknown format, an architecture whose tensors are not known, or heads that the cards cannot share.
    """
    if dtype not in _LINEAR:
        raise InputError(f"weight format {dtype!r} is unknown: choose from {', '.join(WEIGHT_FORMATS)}")
    formats = {"linear layers": _LINEAR[dtype], "embeddings and head": _linear_q8_0 if dtype == "q8_0" else _linear_16bit}
    parts = dict.fromkeys(("linear layers", "embeddings and head", "norms and biases", "rope cache"), 0)
    vocabulary = VOCABULARY_MULTIPLE * _ceil(spec.vocab_size, VOCABULARY_MULTIPLE)
    for tensor in _tensors(spec, tensor_parallel, vocabulary):
        stored = formats.get(tensor.part, _linear_16bit)(tensor.rows, tensor.columns)
        parts[tensor.part] += tensor.count * sum(map(_allocated, stored))
    return parts


def weight_bytes(spec: ModelSpec, dtype: str, tensor_parallel: int = 1) -> int:
    """Bytes of the loaded weights on one card: the sum of `weight_parts`.

    Parameters
    ----------
    dtype
        One of `WEIGHT_FORMATS`: bf16, fp16, fp8 (blocks of 128 × 128), awq and gptq (4 bit, groups of 128), nvfp4, bnb-nf4, q8_0.
    tensor_parallel
        Cards that share the model.

    Raises
    ------
    InputError
        As `weight_parts`.
    """
    return sum(weight_parts(spec, dtype, tensor_parallel).values())


def _tensors(spec: ModelSpec, cards: int, vocabulary: int) -> Iterator[_Tensor]:
    """One card's tensors, projections merged as vLLM merges them (q, k and v; gate and up)."""
    if spec.model_type not in _FAMILIES or spec.experts or spec.kv_lora_rank:
        attention = "latent attention" if spec.kv_lora_rank else f"model_type {spec.model_type!r}"
        kind = "a mixture of experts" if spec.experts else attention
        raise InputError(f"{spec.name}: the weights of {kind} are not covered: known are {', '.join(_FAMILIES)}")
    family, hidden, layers = _FAMILIES[spec.model_type], spec.hidden_size, spec.num_hidden_layers
    kv_heads = _kv_heads_on_one_card(spec, cards)
    query = spec.num_attention_heads // cards * spec.head_dim
    qkv, middle = query + 2 * kv_heads * spec.head_dim, _ceil(spec.intermediate_size, cards)
    up = (2 if family.gated else 1) * middle
    for rows, columns in ((qkv, hidden), (hidden, query), (up, hidden), (hidden, middle)):
        yield _Tensor("linear layers", rows, columns, layers)
    if family.qkv_bias or spec.attention_bias:
        yield _Tensor("norms and biases", qkv, count=layers)
    if family.linear_bias or spec.attention_bias:
        yield _Tensor("norms and biases", hidden, count=layers)
    if family.linear_bias:
        yield _Tensor("norms and biases", up, count=layers)
        yield _Tensor("norms and biases", hidden, count=layers)
    if family.qk_norm:
        per_head = family.qk_norm == "head"
        yield _Tensor("norms and biases", spec.head_dim if per_head else query, count=layers)
        yield _Tensor("norms and biases", spec.head_dim if per_head else kv_heads * spec.head_dim, count=layers)
    # A BERT closes each layer with its norms; ModernBERT's first layer leans on the embedding's; decoders have a final one.
    norms = family.norms * layers + family.embedding_norm + (family.positions is None or not family.encoder)
    norms -= spec.model_type == "modernbert"
    yield _Tensor("norms and biases", hidden, count=norms * (2 if family.norm_bias else 1))
    tables = 1 if family.encoder or spec.tie_word_embeddings else 2
    yield _Tensor("embeddings and head", _ceil(vocabulary, cards), hidden, tables)
    if family.positions is None:
        yield _Tensor("rope cache", spec.max_position_embeddings, spec.rotary_dim)
    else:
        yield _Tensor("embeddings and head", spec.max_position_embeddings + family.positions, hidden)
    if spec.type_vocab_size:
        yield _Tensor("embeddings and head", spec.type_vocab_size, hidden)
    if family.pooler:
        yield _Tensor("linear layers", hidden, hidden)
        yield _Tensor("norms and biases", hidden)


def _allocated(size: int) -> int:
    """What PyTorch counts for a tensor: steps of 512 B; from 10 MiB on, a remainder under 1 MiB stays with its block."""
    size = 512 * _ceil(size, 512)
    whole = 2 * MIB * _ceil(size, 2 * MIB)
    return whole if size >= 10 * MIB and whole - size <= MIB else size


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


# --- KV cache -------------------------------------------------------------------------------------------------------


def kv_bytes_per_token(spec: ModelSpec, kv_dtype: str = "auto", tensor_parallel: int = 1) -> int:
    """Bytes that one token keeps in the KV cache of one card, over all layers.

    2 · layers · key-value heads · head_dim · bytes; with latent attention layers · (kv_lora_rank + qk_rope_head_dim) · bytes,
    which cards do not divide; 0 for an encoder. Layers with a sliding window are counted in full: a bound from above.

    Raises
    ------
    InputError
        An unknown `kv_dtype`, or heads that the cards cannot share.
    """
    if kv_dtype not in _KV_BYTES:
        raise InputError(f"KV format {kv_dtype!r} is unknown: choose from {', '.join(_KV_BYTES)}")
    heads = _kv_heads_on_one_card(spec, tensor_parallel)
    if spec.is_encoder:
        return 0
    latent = (spec.kv_lora_rank or 0) + (spec.qk_rope_head_dim or 0)
    elements = latent if spec.kv_lora_rank else 2 * heads * spec.head_dim
    return math.ceil(spec.num_hidden_layers * elements * _KV_BYTES[kv_dtype])


def _kv_heads_on_one_card(spec: ModelSpec, cards: int) -> int:
    """Key-value heads are divided among the cards, and repeated where there are fewer heads than cards."""
    _whole("tensor_parallel", cards)
    heads, many = spec.num_key_value_heads, max(spec.num_key_value_heads, cards)
    if spec.num_attention_heads % cards or many % min(heads, cards):
        shared = f"{spec.name}'s {spec.num_attention_heads} heads ({heads} key-value)"
        raise InputError(f"tensor_parallel {cards} does not divide {shared}: choose a divisor")
    return max(1, heads // cards)


def kv_tokens(
    available_bytes: float, spec: ModelSpec, kv_dtype: str = "auto", tensor_parallel: int = 1, block_size: int = 16
) -> int:
    """Tokens that `available_bytes` of one card hold, in whole blocks of `block_size` tokens over all layers.

    vLLM's block is 16 tokens on a GPU and 128 on a CPU.

    Raises
    ------
    InputError
        Negative or non-finite bytes, a block under one token, or a model without a KV cache.
    """
    available = _number("available_bytes", available_bytes, zero=True)
    block = _whole("block_size", block_size) * kv_bytes_per_token(spec, kv_dtype, tensor_parallel)
    if not block:
        raise InputError(f"{spec.name} is an encoder and keeps no KV cache: ask for a generator's")
    return int(available // block) * block_size


# --- what can only be bounded ---------------------------------------------------------------------------------------


def activation_interval(
    spec: ModelSpec, max_num_seqs: int = 256, max_num_batched_tokens: int = 2048, sampler: bool = True
) -> tuple[int, int]:
    """Bytes (low, high) of the activation peak: it depends on kernels and versions, so it is an interval and not a figure.

    High is the larger of the usual half GiB and the sum of the torch sampler's 9.65 float32 copies of max_num_seqs × vocabulary
    and one layer's intermediate results over a batch of `max_num_batched_tokens`. Versions that profile a whole context at once
    go beyond it: give them that many tokens.
    """
    logits = SAMPLER_COPIES * _whole("max_num_seqs", max_num_seqs) * spec.vocab_size * 4 if sampler else 0.0
    batch = 2 * _whole("max_num_batched_tokens", max_num_batched_tokens) * (3 * spec.intermediate_size + 2 * spec.hidden_size)
    low, usual = (int(gib * GIB) for gib in ACTIVATION_GIB)
    return low, max(usual, int(logits) + batch)


def card_gib_from_marketing(gigabytes: int) -> tuple[float, float]:
    """GiB (low, high) that CUDA sees on a card sold as so many GB: 15.51 to 15.98 for 16 (a T4 is a case apart, `T4_GIB`).

    Sizes of which no public log is at hand are scaled from the 16 GB card.

    Raises
    ------
    InputError
        A size that is not a positive number.
    """
    size = _number("the card's size in GB", gigabytes)
    low, high = _SOLD_AS[16]
    return _SOLD_AS.get(int(size) if size == int(size) else 0, (size * low / 16, size * high / 16))


# --- the plan -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One term of the sum. `bytes` is the careful (upper) end, `low` the other; `phase` is what stands on the card with it."""

    name: str
    bytes: int
    low: int
    phase: str
    note: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Where two models can live on one card, and every term that says so.

    `placement` is "co-resident", "time-shared", "embedder-on-cpu" or "impossible". `lines` are the terms of the arrangement;
    those of one `phase` stand on the card at once. `kv_tokens` is the generator's pool with every interval at its upper end (0
    where it does not fit), `kv_tokens_high` with each at its lower end. `shares` are the two servers'
    `--gpu-memory-utilization` (0: not on the card). `limiting` names the largest term of the fullest phase; `headroom_bytes` is
    what that phase leaves of the card, or, negative, what the share of an impossible generator lacks.
    """

    card_gib: float
    generator: tuple[ModelSpec, str]
    embedder: tuple[ModelSpec, str]
    max_model_len: int
    embedder_max_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_dtype: str
    enforce_eager: bool
    placement: str
    lines: tuple[Line, ...]
    kv_tokens: int
    kv_tokens_high: int
    shares: dict[str, float]
    limiting: str
    headroom_bytes: int

    @property
    def fits(self) -> bool:
        """Whether there is any arrangement in which the generator runs."""
        return self.placement != "impossible"


def plan(
    card_gib: float,
    generator: tuple[ModelSpec, str],
    embedder: tuple[ModelSpec, str],
    max_model_len: int = 8192,
    utilization: float = 0.9,
    kv_dtype: str = "auto",
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    embedder_max_len: int = 512,
    enforce_eager: bool = False,
    live: bool = False,
) -> Plan:
    """Place a generator and an embedder on one card (equations 1.6 and 1.7), with every interval taken at its upper end.

    Tried in this order: both at once; one after the other (not when `live`: questions that arrive while the generator runs need
    both); the embedder on the CPU. The generator fits where its share holds one request of `max_model_len` tokens.

    Parameters
    ----------
    card_gib
        GiB that CUDA sees, not the GB on the box (`card_gib_from_marketing`).
    generator, embedder
        (spec, weight format).
    utilization
        The most that the servers' shares may claim together, in (0, 1].
    embedder_max_len
        Longest text to embed, in tokens; sizes the cache of an embedder that is a decoder.

    Raises
    ------
    InputError
        A number out of range, an encoder as the generator, or a length beyond a model's positions.
    """
    card = int(_number("card_gib", card_gib) * GIB)
    most = _number("utilization", utilization, high=1.0)
    for role, pair, length in (("generator", generator, max_model_len), ("embedder", embedder, embedder_max_len)):
        _check_model(role, pair, length)
    if generator[0].is_encoder:
        raise InputError(f"generator {generator[0].name} is an encoder: it cannot write an answer")
    graphs = (0, 0) if enforce_eager else tuple(int(gib * GIB) for gib in CUDA_GRAPHS_GIB)
    context = tuple(int(gib * GIB) for gib in CUDA_CONTEXT_GIB)
    needs = _generator_lines(generator, max_model_len, kv_dtype, max_num_seqs, max_num_batched_tokens, graphs, context)
    embeds = _embedder_lines(embedder, embedder_max_len, max_num_batched_tokens, context)

    block = 16 * kv_bytes_per_token(generator[0], kv_dtype)
    both = _shares(card, most, needs, embeds)
    alone = _shares(card, most, needs, ())
    first = _shares(card, most, (), embeds)
    if both:
        placement, shares, on_card = "co-resident", both, (*_phase(needs, "both"), *_phase(embeds, "both"))
    elif alone and first and not live:
        placement, shares = "time-shared", {**first, "generator": alone["generator"]}
        on_card = (*_phase(embeds, "A: embed"), *_phase(needs, "B: generate"))
    else:
        placement, shares, on_card = "embedder-on-cpu" if alone else "impossible", alone or {}, _phase(needs, "generator alone")
    pool = [_pool(card, shares.get("generator", 0.0), needs, end) // block * 16 if alone else 0 for end in ("bytes", "low")]
    if alone and (rest := pool[0] // 16 * block - _named(needs, "KV cache").bytes) > 0:
        phase = next(line.phase for line in on_card if line.name == "KV cache")
        on_card += (Line("KV cache, rest of the share", rest, rest, phase, f"{pool[0]:,} tokens in all"),)
    limiting, headroom = _limits(card, on_card)
    if not alone:
        least, total = _hundredths(card, most, needs, ())
        headroom = -(least["generator"] - total) * card // 100
    return Plan(
        card_gib=float(card_gib),
        generator=generator,
        embedder=embedder,
        max_model_len=max_model_len,
        embedder_max_len=embedder_max_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_dtype=kv_dtype,
        enforce_eager=enforce_eager,
        placement=placement,
        lines=on_card,
        kv_tokens=pool[0],
        kv_tokens_high=pool[1],
        shares=shares,
        limiting=limiting,
        headroom_bytes=headroom,
    )


def _check_model(role: str, pair: tuple[ModelSpec, str], length: int) -> None:
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], ModelSpec)):
        raise InputError(f"{role} is {pair!r}: give (ModelSpec, weight format)")
    name = "max_model_len" if role == "generator" else "embedder_max_len"
    if _whole(name, length) > pair[0].max_position_embeddings:
        raise InputError(f"{name} {length} exceeds {pair[0].name}'s {pair[0].max_position_embeddings} positions: lower it")


def _generator_lines(
    generator: tuple[ModelSpec, str],
    length: int,
    kv_dtype: str,
    seqs: int,
    batched: int,
    graphs: tuple[int, ...],
    context: tuple[int, ...],
) -> tuple[Line, ...]:
    spec, dtype = generator
    weights = weight_bytes(spec, dtype)
    cache = _ceil(length, 16) * 16 * kv_bytes_per_token(spec, kv_dtype)
    low, high = activation_interval(spec, seqs, batched)
    return (
        Line("generator weights", weights, weights, "", f"{spec.name}, {dtype}"),
        Line("KV cache", cache, cache, "", f"one request of {length:,} tokens, {kv_bytes_per_token(spec, kv_dtype):,} B each"),
        Line("generator activations", high, low, "", f"interval; {seqs} sequences"),
        Line("CUDA graphs", graphs[1], graphs[0], "", "interval"),
        Line("generator CUDA context", context[1], context[0], "", "interval; outside the share"),
    )


def _embedder_lines(embedder: tuple[ModelSpec, str], length: int, batched: int, context: tuple[int, ...]) -> tuple[Line, ...]:
    spec, dtype = embedder
    weights = weight_bytes(spec, dtype)
    low, high = activation_interval(spec, 1, batched, sampler=False)
    lines = [
        Line("embedder weights", weights, weights, "", f"{spec.name}, {dtype}"),
        Line("embedder activations", high, low, "", "interval"),
        Line("embedder CUDA context", context[1], context[0], "", "interval; outside the share"),
    ]
    if cache := _ceil(length, 16) * 16 * kv_bytes_per_token(spec):
        lines.insert(1, Line("embedder KV cache", cache, cache, "", f"a decoder; one text of {length:,} tokens"))
    return tuple(lines)


def _phase(lines: Iterable[Line], phase: str) -> tuple[Line, ...]:
    return tuple(Line(line.name, line.bytes, line.low, phase, line.note) for line in lines)


def _named(lines: Iterable[Line], name: str) -> Line:
    return next(line for line in lines if line.name == name)


def _claimed(lines: Iterable[Line], end: str = "bytes") -> int:
    """Bytes that must lie within a server's share: all but its CUDA context."""
    return sum(getattr(line, end) for line in lines if not line.name.endswith("CUDA context"))


def _shares(card: int, most: float, needs: tuple[Line, ...], embeds: tuple[Line, ...]) -> dict[str, float] | None:
    """The servers' shares in hundredths, or None: the embedder takes what it needs, the generator the rest."""
    least, total = _hundredths(card, most, needs, embeds)
    if sum(least.values()) > total:
        return None
    generator = total - least["embedder"] if needs else 0
    return {"generator": generator / 100, "embedder": least["embedder"] / 100}


def _hundredths(card: int, most: float, needs: tuple[Line, ...], embeds: tuple[Line, ...]) -> tuple[dict[str, int], int]:
    """What each server needs at least and what all may claim, in hundredths of the card."""
    contexts = sum(line.bytes for line in (*needs, *embeds) if line.name.endswith("CUDA context"))
    least = {"embedder": _ceil(100 * _claimed(embeds), card), "generator": _ceil(100 * _claimed(needs), card)}
    return least, math.floor(round(100 * min(most, 1 - contexts / card), 9))


def _pool(card: int, share: float, needs: tuple[Line, ...], end: str) -> int:
    """Bytes left for the KV cache of a share, every interval at one end."""
    others = _claimed(needs, end) - _named(needs, "KV cache").bytes
    return max(0, math.floor(card * share) - others)


def _limits(card: int, lines: tuple[Line, ...]) -> tuple[str, int]:
    def total(phase: str) -> int:
        return sum(line.bytes for line in lines if line.phase == phase)

    fullest = max({line.phase for line in lines}, key=lambda phase: (total(phase), phase))
    largest = max((line for line in lines if line.phase == fullest and "rest" not in line.name), key=lambda line: line.bytes)
    return largest.name, card - total(fullest)


def vllm_flags(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Each server's command-line words after `python -m vllm.entrypoints.openai.api_server`, for the plan's placement.

    Keys: "embedder" (port 8001, absent where it runs on the CPU) and "generator" (port 8000). Start them one after the other, the
    embedder first, and wait for its `/health`: two that start at once count each other's memory.

    Raises
    ------
    InputError
        The plan is impossible.
    """
    if not plan.fits:
        missing = -plan.headroom_bytes / GIB
        raise InputError(
            f"{plan.generator[0].name} {plan.generator[1]} lacks {missing:.2f} GiB: choose a smaller format or model"
        )
    flags = {}
    if plan.shares["embedder"]:
        flags["embedder"] = ("--runner", "pooling", *_server(plan.embedder, 8001, plan.shares["embedder"], plan.embedder_max_len))
    generator = [*_server(plan.generator, 8000, plan.shares["generator"], plan.max_model_len)]
    generator += ["--max-num-seqs", str(plan.max_num_seqs), "--max-num-batched-tokens", str(plan.max_num_batched_tokens)]
    generator += ["--kv-cache-dtype", plan.kv_dtype] if plan.kv_dtype.startswith("fp8") else []
    generator += ["--enforce-eager"] if plan.enforce_eager else []
    flags["generator"] = tuple(generator)
    return flags


def _server(model: tuple[ModelSpec, str], port: int, share: float, length: int) -> tuple[str, ...]:
    spec, dtype = model
    return (
        *("--model", spec.name, "--port", str(port), "--gpu-memory-utilization", f"{share:.2f}", "--max-model-len", str(length)),
        *(("--dtype", {"bf16": "bfloat16", "fp16": "float16"}[dtype]) if dtype in {"bf16", "fp16"} else ()),
    )


def format_plan(plan: Plan) -> str:
    """The plan as a Markdown table, aligned for a terminal too: every line in GiB, each phase's sum, the placement."""
    rows = [("on the card", "term", "GiB", "note")]
    for phase in dict.fromkeys(line.phase for line in plan.lines):
        lines = [line for line in plan.lines if line.phase == phase]
        rows += [(phase, line.name, _span(line.low, line.bytes), line.note) for line in lines]
        low, high = sum(line.low for line in lines), sum(line.bytes for line in lines)
        rows.append((phase, "sum", _span(low, high), f"of {plan.card_gib:.2f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    text = ["| " + " | ".join(_aligned(row, widths)) + " |" for row in rows]
    text.insert(1, "|" + "|".join("-" * (w + 1) + (":" if i == 2 else "-") for i, w in enumerate(widths)) + "|")
    missing = f", {-plan.headroom_bytes / GIB:.2f} GiB short" if plan.headroom_bytes < 0 else ""
    text += ["", f"placement: {plan.placement}{missing}; limiting: {plan.limiting}; KV pool: {plan.kv_tokens:,} tokens"]
    return "\n".join(text)


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [
        cell.rjust(width) if column == 2 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _span(low: int, high: int) -> str:
    return f"{high / GIB:.2f}" if low == high else f"{low / GIB:.2f} to {high / GIB:.2f}"


# --- against what others saw ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prediction beside one public report: weights in GiB or KV tokens. `reason` says why there is no prediction, else ""."""

    observation: str
    quantity: str
    predicted: float | None
    reported: float
    reason: str

    @property
    def error(self) -> float | None:
        """(predicted − reported) / reported; None where nothing was predicted."""
        return None if self.predicted is None else (self.predicted - self.reported) / self.reported


def specs_from_table(rows: Iterable[Mapping[str, str]]) -> dict[str, ModelSpec]:
    """Read the rows of `data/model_configs.csv` (config.json's keys as columns, empty where the file has none), by model name.

    Raises
    ------
    InputError
        As `ModelSpec.from_config`, or a cell that is neither a whole number nor true or false.
    """
    specs = {}
    for row in rows:
        config: dict[str, Any] = {"_name_or_path": row["model"], "model_type": row["model_type"]}
        for key in ModelSpec.__slots__:
            if key not in {"name", "model_type"} and row.get(key):
                config[key] = _cell(f"{row['model']}: {key}", row[key])
        specs[row["model"]] = ModelSpec.from_config(config)
    return specs


def _cell(name: str, text: str) -> int | bool:
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name} is {text!r}: it must be a whole number, true or false") from None


def compare_with_observations(
    observations: Iterable[Mapping[str, str]], specs: Mapping[str, ModelSpec]
) -> tuple[Comparison, ...]:
    """Predict the weights and the KV tokens of public reports (rows of `data/vllm_memory_observations.csv`).

    A row's `config` names its entry of `specs`, `weight_format` is one of `WEIGHT_FORMATS`; tokens are predicted from the KV
    bytes that the row reports, so they test the cache's arithmetic and not the activation peak. Rows that report neither
    quantity give nothing; rows that cannot be predicted keep their reason, so the denominators can be read.
    """
    out = []
    for row in observations:
        cards, spec = int(row["tensor_parallel"] or 1), specs.get(row["config"])
        if row["weights_gib"]:
            reason = _why_no_weights(row, spec)
            value = None if reason or spec is None else weight_bytes(spec, row["weight_format"], cards) / GIB
            out.append(Comparison(row["observation"], "weights", value, float(row["weights_gib"]), reason))
        tokens = float(row["kv_tokens"] or 0) or float(row["blocks"] or 0) * float(row["block_size"] or 16)
        if tokens:
            reason = _why_no_tokens(row, spec)
            size = float(row["kv_gib"] or 0) * GIB
            block = int(row["block_size"] or 16)
            value = None if reason or spec is None else float(kv_tokens(size, spec, row["kv_dtype"] or "auto", cards, block))
            out.append(Comparison(row["observation"], "tokens", value, tokens, reason))
    return tuple(out)


def _why_no_weights(row: Mapping[str, str], spec: ModelSpec | None) -> str:
    if spec is None:
        return "configuration not public"
    if row["weight_format"] not in _LINEAR:
        return f"format not covered: {row['weight_dtype'] or 'not reported'}"
    return row["weights_exclusion"]


def _why_no_tokens(row: Mapping[str, str], spec: ModelSpec | None) -> str:
    if spec is None:
        return "configuration not public"
    if not row["kv_gib"] or float(row["kv_gib"]) <= 0:
        return "KV bytes not reported"
    return row["tokens_exclusion"]
