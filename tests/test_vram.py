"""The memory budget: closed forms by hand, published sizes, properties, bad input."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragkit.errors import InputError
from ragkit.vram import (
    GIB,
    WEIGHT_FORMATS,
    ModelSpec,
    activation_interval,
    card_gib_from_marketing,
    compare_with_observations,
    format_plan,
    kv_bytes_per_token,
    kv_tokens,
    parameters,
    plan,
    specs_from_table,
    vllm_flags,
    weight_bytes,
    weight_parts,
)

DATA = Path(__file__).parents[1] / "data"
QWEN3_8B = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40960,
}
MLA = {**QWEN3_8B, "model_type": "deepseek_v2", "kv_lora_rank": 512, "qk_rope_head_dim": 64}
TINY = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_size": 256,
    "intermediate_size": 512,
    "vocab_size": 100,
    "tie_word_embeddings": True,
    "max_position_embeddings": 64,
}


def read(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def specs() -> dict[str, ModelSpec]:
    return specs_from_table(read("model_configs.csv"))


@pytest.fixture(scope="module")
def qwen() -> ModelSpec:
    return ModelSpec.from_config(QWEN3_8B)


@pytest.fixture(scope="module")
def bge() -> ModelSpec:
    return ModelSpec.from_config(DATA / "configs" / "bge-small-en-v1.5.json")


@pytest.fixture(scope="module")
def comparisons(specs):
    return compare_with_observations(read("vllm_memory_observations.csv"), specs)


class TestWeights:
    def test_a_tiny_model_by_hand(self):
        spec = ModelSpec.from_config(TINY)
        linear = (256 + 2 * 128) * 256 + 256 * 256 + 2 * 512 * 256 + 512 * 256
        norms, table, rope = 3 * 256, 128 * 256, 64 * 128  # two norms and a final one; 100 rows padded to 128; head_dim 256 / 2
        assert weight_bytes(spec, "bf16") == 2 * (linear + norms + table + rope)
        assert parameters(spec) == linear + norms + 100 * 256

    @pytest.mark.parametrize(
        ("dtype", "by_hand"),
        [
            ("fp16", 2 * 589_824),
            ("fp8", 589_824 + 4 * (4 * 2 + 2 * 2 + 8 * 2 + 2 * 4)),
            ("awq", 294_912 + 9_216 + 2_304),
            ("gptq", 294_912 + 9_216 + 2_304 + 4 * (256 + 256 + 256 + 512)),
            ("nvfp4", 294_912 + 36_864),
            ("bnb-nf4", 294_912 + 9_216),
            ("q8_0", 18_432 * 34),
        ],
    )
    def test_each_format_by_hand(self, dtype, by_hand):
        """Matrices of 512 x 256, 256 x 256, 1024 x 256 and 256 x 512: 589,824 elements; at most 12 tensors are rounded up."""
        spec = ModelSpec.from_config(TINY)
        assert 0 <= weight_parts(spec, dtype)["linear layers"] - by_hand < 16 * 512

    @pytest.mark.parametrize(("dtype", "gib"), [("bf16", 15.27), ("fp8", 8.80), ("awq", 5.71)])
    def test_qwen3_8b_within_one_percent(self, qwen, dtype, gib):
        assert weight_bytes(qwen, dtype) / GIB == pytest.approx(gib, rel=0.01)

    def test_bge_small_is_not_what_fills_a_card(self, bge):
        assert weight_bytes(bge, "fp16") / GIB == pytest.approx(0.06, abs=0.005)

    def test_embeddings_stay_16_bit_under_4_bit_formats(self, qwen):
        assert {weight_parts(qwen, d)["embeddings and head"] for d in ("bf16", "awq", "gptq", "nvfp4", "bnb-nf4")} == {
            weight_parts(qwen, "bf16")["embeddings and head"]
        }
        assert weight_bytes(qwen, "awq") > 1.3 * parameters(qwen) / 2

    def test_a_tied_head_counts_once(self, qwen):
        tied = replace(qwen, tie_word_embeddings=True)
        assert parameters(qwen) - parameters(tied) == 151936 * 4096

    def test_every_published_parameter_total(self, specs):
        """Exact for every covered model; the published totals of rerankers hold a classifier's output row besides."""
        rows, heads = read("model_configs.csv"), {"BAAI/bge-reranker-v2-m3": 1025, "BAAI/bge-reranker-base": 769}
        checked = 0
        for row in rows:
            if row["model_type"] in {"qwen3_moe", "deepseek_v2", "llama4_text", "mllama"} or "vision tower" in row["note"]:
                continue
            assert parameters(specs[row["model"]]) + heads.get(row["model"], 0) == int(row["total_parameters"]), row["model"]
            checked += 1
        assert checked == 50

    def test_two_cards_halve_the_linear_layers_but_not_the_rope_cache(self, qwen):
        one, two = weight_parts(qwen, "bf16"), weight_parts(qwen, "bf16", tensor_parallel=2)
        assert two["linear layers"] == pytest.approx(one["linear layers"] / 2, rel=0.001)
        assert two["rope cache"] == one["rope cache"] == 40960 * 128 * 2

    @pytest.mark.parametrize("dtype", [d for d in WEIGHT_FORMATS if d not in {"bf16", "fp16"}])
    def test_quantised_is_smaller(self, specs, dtype):
        for name in ("Qwen/Qwen3-8B", "Qwen/Qwen2.5-1.5B-Instruct", "meta-llama/Llama-3.1-8B", "facebook/opt-125m"):
            assert weight_bytes(specs[name], dtype) < weight_bytes(specs[name], "bf16")

    def test_unknown_is_refused(self, qwen, specs):
        with pytest.raises(InputError, match="choose from bf16"):
            weight_bytes(qwen, "int3")
        with pytest.raises(InputError, match="not covered"):
            weight_bytes(specs["deepseek-ai/DeepSeek-V2-Lite"], "bf16")
        with pytest.raises(InputError, match="mixture of experts"):
            weight_bytes(ModelSpec.from_config({**QWEN3_8B, "num_experts": 128}), "bf16")
        with pytest.raises(InputError, match="'mamba'"):
            weight_bytes(replace(qwen, model_type="mamba"), "bf16")


class TestCache:
    @pytest.mark.parametrize(
        ("name", "size"),
        [
            ("Qwen/Qwen3-8B", 147_456),
            ("Qwen/Qwen2.5-1.5B-Instruct", 28_672),
            ("meta-llama/Llama-3.1-8B", 131_072),
            ("Qwen/Qwen1.5-7B-Chat", 2 * 32 * 32 * 128 * 2),  # every head
            ("google/gemma-2b", 2 * 18 * 1 * 256 * 2),  # one for all
            ("deepseek-ai/DeepSeek-V2-Lite", 27 * 576 * 2),  # latent
            ("BAAI/bge-small-en-v1.5", 0),
        ],
    )
    def test_bytes_per_token(self, specs, name, size):
        assert kv_bytes_per_token(specs[name]) == size

    def test_every_row_of_the_table(self, specs):
        for row in read("model_configs.csv"):
            assert kv_bytes_per_token(specs[row["model"]]) == int(row["kv_bytes_per_token_16bit"]), row["model"]

    def test_formats(self, qwen):
        assert kv_bytes_per_token(qwen, "fp8") == 147_456 // 2
        assert kv_bytes_per_token(qwen, "q8_0") == 147_456 // 2 * 34 // 32
        with pytest.raises(InputError, match="fp4"):
            kv_bytes_per_token(qwen, "fp4")

    def test_cards_divide_heads_but_not_a_latent(self, qwen):
        latent = ModelSpec.from_config(MLA)
        assert kv_bytes_per_token(qwen, tensor_parallel=4) == 147_456 // 4
        assert kv_bytes_per_token(qwen, tensor_parallel=16) == 147_456 // 8  # fewer heads than cards: repeated
        assert kv_bytes_per_token(latent, tensor_parallel=4) == kv_bytes_per_token(latent) == 36 * 576 * 2
        with pytest.raises(InputError, match="tensor_parallel 3"):
            kv_bytes_per_token(qwen, tensor_parallel=3)

    def test_vllm_on_a_cpu_printed_585_blocks_of_128(self, specs):
        assert kv_tokens(2 * GIB, specs["Qwen/Qwen2.5-1.5B-Instruct"], block_size=128) == 585 * 128 == 74_880

    def test_whole_blocks(self, qwen):
        block = 16 * 147_456
        assert [kv_tokens(n, qwen) for n in (0, block - 1, block, 2 * block - 1)] == [0, 0, 16, 16]

    @given(st.integers(0, 2**38), st.integers(0, 2**34), st.sampled_from([1, 16, 128]))
    def test_never_more_than_the_bytes_hold(self, available, more, block):
        spec = ModelSpec.from_config(QWEN3_8B)
        tokens = kv_tokens(available, spec, block_size=block)
        assert tokens % block == 0
        assert tokens * 147_456 <= available < (tokens + block) * 147_456
        assert kv_tokens(available + more, spec, block_size=block) >= tokens

    def test_bad_input(self, qwen, bge):
        with pytest.raises(InputError, match="keeps no KV cache"):
            kv_tokens(GIB, bge)
        for wrong in (-1, float("nan"), float("inf"), True, "2"):
            with pytest.raises(InputError, match="available_bytes"):
                kv_tokens(wrong, qwen)
        with pytest.raises(InputError, match="block_size"):
            kv_tokens(GIB, qwen, block_size=0)


class TestConfig:
    def test_path_folder_and_mapping_agree(self, tmp_path, qwen):
        folder = tmp_path / "Qwen3-8B"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(QWEN3_8B), encoding="utf-8")
        for given_as in (folder, folder / "config.json", str(folder)):
            assert replace(ModelSpec.from_config(given_as), name=qwen.name) == qwen
        assert ModelSpec.from_config(folder).name == "Qwen3-8B"

    def test_derives_what_follows(self):
        spec = ModelSpec.from_config({k: v for k, v in TINY.items() if k != "num_key_value_heads"})
        assert (spec.num_key_value_heads, spec.head_dim) == (2, 128)
        untold = {k: v for k, v in TINY.items() if k != "tie_word_embeddings"}
        assert ModelSpec.from_config(untold).tie_word_embeddings is False
        assert ModelSpec.from_config({**untold, "model_type": "gemma", "head_dim": 128}).tie_word_embeddings is True

    def test_an_unused_window_is_none(self):
        assert ModelSpec.from_config({**TINY, "sliding_window": 32}).sliding_window == 32
        assert ModelSpec.from_config({**TINY, "sliding_window": 32, "use_sliding_window": False}).sliding_window is None

    @pytest.mark.parametrize("key", ["model_type", "num_hidden_layers", "num_attention_heads", "hidden_size", "head_dim"])
    @pytest.mark.parametrize("wrong", ["absent", None, "", -1, 0, 1.5, True, "32", float("nan"), []])
    def test_missing_or_wrong_is_refused(self, key, wrong):
        config = {k: v for k, v in QWEN3_8B.items() if k != key} | ({} if wrong == "absent" else {key: wrong})
        if key == "model_type" and wrong == "32":
            wrong = config[key] = ""
        with pytest.raises(InputError, match=key):
            ModelSpec.from_config(config)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"num_key_value_heads": 5}, "no multiple"),
            ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
            ({"layer_types": ["linear_attention"]}, "linear_attention"),
            ({"layer_types": 3}, "must be a list"),
            ({"mamba_d_state": 16}, "mamba_d_state"),
            ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
            ({"kv_lora_rank": -1}, "kv_lora_rank"),
            ({"sliding_window": -4}, "sliding_window"),
            ({"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
            ({"num_hidden_layers": -36}, "num_hidden_layers"),
        ],
    )
    def test_what_does_not_fit_together_is_refused(self, change, words):
        with pytest.raises(InputError, match=words):
            ModelSpec.from_config({**QWEN3_8B, **change})

    @pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"model_type": ', b"[" * 100_000])
    def test_a_file_that_is_no_configuration(self, tmp_path, content):
        path = tmp_path / "config.json"
        path.write_bytes(content)
        with pytest.raises(InputError) as error:
            ModelSpec.from_config(path)
        assert "\n" not in str(error.value)

    def test_no_file_and_no_path(self, tmp_path):
        for wrong in (tmp_path / "none.json", tmp_path, "nul\0byte", 3, None):
            with pytest.raises(InputError):
                ModelSpec.from_config(wrong)

    def test_two_towers_are_refused(self):
        with pytest.raises(InputError, match="text_config"):
            ModelSpec.from_config({"model_type": "gemma3", "text_config": QWEN3_8B})

    def test_bundled_configurations_agree_with_the_table(self, specs):
        paths = sorted((DATA / "configs").glob("*.json"))
        assert len(paths) >= 8
        for path in paths:
            spec = ModelSpec.from_config(path)
            assert spec.name.endswith(path.stem)
            assert json.loads(path.read_text(encoding="utf-8"))["_source"]
            assert spec.name == "Qwen/Qwen2.5-Coder-1.5B" or spec == specs[spec.name]


class TestPlan:
    @pytest.mark.parametrize(("dtype", "placement"), [("bf16", "impossible"), ("fp8", "co-resident"), ("awq", "co-resident")])
    def test_qwen3_8b_beside_bge_small_on_a_16_gb_card(self, qwen, bge, dtype, placement):
        result = plan(15.55, (qwen, dtype), (bge, "fp16"))
        assert (result.placement, result.fits) == (placement, placement != "impossible")
        assert result.limiting == "generator weights"
        assert (result.kv_tokens >= 8192) is result.fits

    def test_the_sum_by_hand(self, qwen, bge):
        """0.86 of the card is the generator's: what its weights, activations and graphs leave is the pool (equation 1.7)."""
        result = plan(15.55, (qwen, "awq"), (bge, "fp16"), max_num_seqs=16, enforce_eager=True)
        assert result.shares == {"generator": 0.86, "embedder": 0.04}
        pool = 0.86 * 15.55 * GIB - weight_bytes(qwen, "awq") - 0.5 * GIB
        assert result.kv_tokens == int(pool // (16 * 147_456)) * 16
        terms = {line.name: line.bytes for line in result.lines}
        assert terms["KV cache"] == 8192 * 147_456
        assert terms["KV cache"] + terms["KV cache, rest of the share"] == result.kv_tokens * 147_456

    def test_placements_in_order(self, qwen, bge):
        def at(card: float, **choice: bool) -> str:
            return plan(card, (qwen, "awq"), (bge, "fp16"), max_num_seqs=16, **choice).placement

        assert [at(12.0), at(9.3), at(9.3, live=True), at(8.0)] == ["co-resident", "time-shared", "embedder-on-cpu", "impossible"]

    def test_an_embedder_larger_than_the_card_goes_to_the_cpu(self, qwen):
        tiny = ModelSpec.from_config(TINY)
        assert plan(12.0, (tiny, "bf16"), (qwen, "bf16"), max_model_len=64).placement == "embedder-on-cpu"

    @given(
        card=st.floats(4, 96),
        dtype=st.sampled_from(WEIGHT_FORMATS),
        length=st.integers(1, 40_000),
        utilization=st.floats(0.05, 1.0),
        live=st.booleans(),
    )
    def test_what_fits_never_exceeds_the_card_nor_the_shares_one(self, card, dtype, length, utilization, live):
        spec, small = ModelSpec.from_config(QWEN3_8B), ModelSpec.from_config(TINY)
        result = plan(card, (spec, dtype), (small, "fp16"), length, utilization, embedder_max_len=64, live=live)
        assert result.fits == (result.kv_tokens >= length) == (result.headroom_bytes >= 0)
        for phase in {line.phase for line in result.lines}:
            total = sum(line.bytes for line in result.lines if line.phase == phase)
            assert not result.fits or total <= card * GIB
        together = sum(result.shares.values()) if result.placement == "co-resident" else max([0, *result.shares.values()])
        assert together <= utilization + 1e-9
        assert result.kv_tokens <= result.kv_tokens_high

    @given(st.integers(1, 40_000), st.integers(1, 40_000), st.floats(6, 24))
    def test_a_longer_context_never_fits_better(self, one, other, card):
        spec, small = ModelSpec.from_config(QWEN3_8B), ModelSpec.from_config(TINY)
        order = ["impossible", "embedder-on-cpu", "time-shared", "co-resident"]
        short, long = (plan(card, (spec, "awq"), (small, "fp16"), n, embedder_max_len=64) for n in sorted((one, other)))
        assert order.index(long.placement) <= order.index(short.placement)

    def test_a_decoder_that_embeds_needs_a_cache_too(self, qwen, specs):
        result = plan(15.55, (qwen, "awq"), (specs["Qwen/Qwen3-Embedding-0.6B"], "bf16"))
        assert {line.name: line.bytes for line in result.lines}["embedder KV cache"] == 512 * 114_688

    def test_flags(self, qwen, bge):
        flags = vllm_flags(plan(15.55, (qwen, "awq"), (bge, "fp16"), kv_dtype="fp8", enforce_eager=True))
        assert flags["embedder"][:2] == ("--runner", "pooling")
        words = " ".join(flags["generator"])
        for part in ("--gpu-memory-utilization 0.86", "--max-model-len 8192", "--kv-cache-dtype fp8", "--enforce-eager"):
            assert part in words
        assert "embedder" not in vllm_flags(plan(9.3, (qwen, "awq"), (bge, "fp16"), max_num_seqs=16, live=True))
        with pytest.raises(InputError, match="lacks"):
            vllm_flags(plan(15.55, (qwen, "bf16"), (bge, "fp16")))

    def test_the_table_holds_every_line(self, qwen, bge):
        result = plan(15.55, (qwen, "bf16"), (bge, "fp16"))
        text = format_plan(result)
        assert all(line.name in text and line.note in text for line in result.lines)
        assert "impossible" in text
        assert len({len(row) for row in text.splitlines() if row.startswith("|")}) == 1

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"card_gib": 0}, "card_gib"),
            ({"card_gib": float("nan")}, "card_gib"),
            ({"card_gib": -16}, "card_gib"),
            ({"utilization": 1.01}, "utilization"),
            ({"utilization": 0}, "utilization"),
            ({"max_model_len": 0}, "max_model_len"),
            ({"max_model_len": 40_961}, "40960 positions"),
            ({"embedder_max_len": 513}, "512 positions"),
            ({"max_num_seqs": 0}, "max_num_seqs"),
            ({"max_num_batched_tokens": -1}, "max_num_batched_tokens"),
            ({"kv_dtype": "int2"}, "int2"),
            ({"generator": "Qwen3-8B"}, "ModelSpec"),
        ],
    )
    def test_bad_input(self, qwen, bge, change, words):
        good = {"card_gib": 15.55, "generator": (qwen, "awq"), "embedder": (bge, "fp16")}
        with pytest.raises(InputError, match=words):
            plan(**{**good, **change})

    def test_an_encoder_cannot_generate(self, bge):
        with pytest.raises(InputError, match="encoder"):
            plan(15.55, (bge, "fp16"), (bge, "fp16"), max_model_len=128)


def test_what_cuda_sees_of_a_card():
    assert card_gib_from_marketing(16) == (15.51, 15.98)
    low, high = card_gib_from_marketing(12)
    assert (low, high) == pytest.approx((12 * 15.51 / 16, 12 * 15.98 / 16))
    for wrong in (0, -16, float("nan"), "16"):
        with pytest.raises(InputError, match="size in GB"):
            card_gib_from_marketing(wrong)


def test_the_sampler_rules_the_activation_peak_of_many_sequences(qwen):
    """A public log of 1024 sequences over 151,936 words reports 5.56 GiB."""
    assert activation_interval(qwen, 1024, 1)[1] / GIB == pytest.approx(5.56, rel=0.01)
    batch = 2 * 2048 * (3 * 12288 + 2 * 4096)
    assert activation_interval(qwen, 1024)[1] - activation_interval(qwen, 1024, 1)[1] == batch * 2047 // 2048
    assert activation_interval(qwen, 1, 16) == (int(0.2 * GIB), int(0.5 * GIB))


class TestObservations:
    @pytest.mark.parametrize(("quantity", "share"), [("weights", 0.89), ("tokens", 0.95)])
    def test_within_one_percent_of_public_logs(self, comparisons, quantity, share):
        errors = [abs(c.error) for c in comparisons if c.quantity == quantity and c.error is not None]
        assert len(errors) >= 26
        assert sum(error <= 0.01 for error in errors) / len(errors) >= share

    def test_nothing_is_dropped_in_silence(self, comparisons):
        assert all((c.error is None) == bool(c.reason) for c in comparisons)
        reported = [row for row in read("vllm_memory_observations.csv") if row["weights_gib"]]
        assert len(reported) == sum(c.quantity == "weights" for c in comparisons)

    def test_a_cell_that_is_no_number(self):
        with pytest.raises(InputError, match="num_hidden_layers is 'many'"):
            specs_from_table([{"model": "m", "model_type": "llama", "num_hidden_layers": "many"}])
