# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The memory budget: what fits on a 16 GB card?
#
# **Claim.** Two models must live on one card: an embedder that turns text into vectors, and a generator that reads what was
# found. Whether they can is decided by the *generator's precision*. The embedder hardly counts, and plain arithmetic on a
# model's `config.json` says so before anything is downloaded.
#
# **Its limit.** Weights and KV cache are sums that can be checked, and below they are held against reports that others
# published. The activation peak and the CUDA context are not: they depend on kernels and versions, so they enter as intervals.
# **Nothing on this page was measured on a GPU**; it is computed, and compared with public logs.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | the idea of an embedder and a generator; nothing is downloaded, no GPU |
# | helpful | having once seen a server say "out of memory" |
# | time and memory | under a minute; no model is loaded (the receipt at the end has the figures) |
# | writes | `artifacts/PROFILE/metrics/02_vram_budget.json` |

# %% [markdown]
# In this notebook we
#
# 1. work out the bytes of one generator beside one embedder by hand, and let the package agree;
# 2. predict weights and KV tokens of public reports, and count how often we are right and how often we cannot say;
# 3. decide, for a list of models and formats, whether both live on the card at once, in turns, or not at all.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
card_gib: float = 15.55  # what CUDA sees of a card sold as 16 GB, not what the box says
max_model_len: int = 8192  # tokens of one request: prompt and answer
max_num_seqs: int = 16  # requests answered at once
utilization: float = 0.9  # the most that the servers may claim of the card together

# %%
import csv
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
from IPython.display import Markdown, display

from ragkit import vram
from ragkit.lab import figures, show_receipt, write_metrics
from ragkit.vram import GIB, ModelSpec

figures.use_book_style()


# %% tags=["hide-input"]
def table(*rows):
    """Show rows as a Markdown table; the first is the head."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    display(Markdown("\n".join([head, "|" + "---|" * len(rows[0]), *body])))


def rows_of(path):
    """Read a CSV file as a list of mappings."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# %% [markdown]
# ## By hand: one token, one layer, one card
#
# A **token** leaves a key and a value in every layer, for every key-value head. Qwen3-8B's configuration has all the factors.

# %%
qwen = ModelSpec.from_config("data/configs/Qwen3-8B.json")
bge = ModelSpec.from_config("data/configs/bge-small-en-v1.5.json")
qwen

# %%
layers, kv_heads, head_dim, two_bytes = 36, 8, 128, 2
by_hand = 2 * layers * kv_heads * head_dim * two_bytes  # a key and a value
assert by_hand == vram.kv_bytes_per_token(qwen)
text = f"One token costs **{by_hand:,} bytes**; one request of {max_model_len:,} tokens {by_hand * max_model_len / GIB:.2f} GiB."
display(Markdown(text))

# %% [markdown]
# The **weights** in AWQ: each element of a linear layer takes half a byte, each group of 128 elements a 16-bit scale and a
# 4-bit zero. The embedding and the head stay 16-bit, which "parameters × half a byte" forgets. Look at how much that is.

# %%
qkv, out = (32 + 2 * 8) * 128 * 4096, 4096 * 32 * 128
mlp = 3 * 4096 * 12288
linear = 36 * (qkv + out + mlp)
four_bit = linear // 2 + 2 * linear // 128 + linear // 256
embedding_and_head = 2 * 151936 * 4096 * two_bytes

# %%
naive = vram.parameters(qwen) / 2
agreed = vram.weight_bytes(qwen, "awq")
assert 0 <= agreed - four_bit - embedding_and_head < 0.005 * agreed  # norms, rope cache and rounding are the rest
text = (
    f"Linear layers {four_bit / GIB:.2f} GiB, embedding and head {embedding_and_head / GIB:.2f} GiB: with the rest "
    f"**{agreed / GIB:.2f} GiB**, against {naive / GIB:.2f} GiB by the short cut ({naive / agreed - 1:+.0%})."
)
display(Markdown(text))

# %% [markdown]
# The **embedder**, by {eq}`eq-embedder-memory`: parameters × bytes, activations, a context, and no KV cache, since an encoder
# reads its text in one pass.

# %%
embedder_bytes = vram.weight_bytes(bge, "fp16")
assert vram.kv_bytes_per_token(bge) == 0
text = (
    f"{vram.parameters(bge):,} parameters × {two_bytes} bytes: **{embedder_bytes / GIB:.2f} GiB**, "
    f"{embedder_bytes / GIB / card_gib:.1%} of this card."
)
display(Markdown(text))

# %% [markdown]
# ## Build: every term of the sum
#
# {eq}`eq-co-residency` adds weights, KV cache, embedder, activations and *two* contexts (each server is a process of its own),
# and asks for shares that sum to at most one. `plan` takes each interval at its upper end, so that what it calls possible has
# room to be wrong.


# %%
def plan_of(spec, dtype, **changes):
    """Place a generator beside bge-small under this chapter's parameters."""
    length = min(max_model_len, spec.max_position_embeddings)
    chosen = {"max_model_len": length, "utilization": utilization, "max_num_seqs": max_num_seqs, **changes}
    return vram.plan(chosen.pop("card_gib", card_gib), (spec, dtype), (bge, "fp16"), **chosen)


plans = {dtype: plan_of(qwen, dtype) for dtype in ("bf16", "fp8", "awq")}

# %%
display(Markdown(vram.format_plan(plans["awq"])))

# %% [markdown]
# The same sum for each precision. Look at the first bar's weights against the line of the card, and try to find the
# embedder's.


# %% tags=["hide-input"]
def bars(plan):
    """GiB of each stacked part of a plan, intervals at their upper end."""
    parts = vram.weight_parts(*plan.generator)
    lines = {line.name: line.bytes for line in plan.lines}
    table_part = parts["embeddings and head"]
    contexts = sum(size for name, size in lines.items() if name.endswith("CUDA context"))
    peaks = ("generator activations", "CUDA graphs", "embedder activations")
    return {
        "linear layers": lines["generator weights"] - table_part,
        "embedding and head": table_part,
        "KV cache": lines["KV cache"] + lines.get("KV cache, rest of the share", 0),
        "activations and graphs": sum(lines.get(name, 0) for name in peaks),
        "embedder weights": lines.get("embedder weights", 0),
        "CUDA contexts": contexts,
    }


# %% mystnb={"image": {"alt": "Three stacked horizontal bars of memory in GiB for Qwen3-8B in bf16, FP8 and AWQ beside a vertical line at the size of the card; the bf16 bar crosses the line with its weights nearly alone, the other two end before it, and the embedder's weights are a sliver"}, "figure": {"caption": "Memory of Qwen3-8B in three precisions, with bge-small beside it where both fit; intervals at their upper end, the KV cache as large as the share allows. The dashed line is what CUDA sees of the card. Computed, not measured.", "name": "fig-vram-stack"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(7.5, 3.6))
left = dict.fromkeys(plans, 0.0)
colours = list(figures.PALETTE.values())[:6]
for part, colour, hatch in zip(bars(plans["awq"]), colours, ["", "//", "", "..", "", "xx"], strict=True):
    widths = [bars(plan)[part] / GIB for plan in plans.values()]
    ax.barh(list(plans), widths, left=list(left.values()), color=colour, hatch=hatch, edgecolor="white", label=part)
    left = {dtype: start + width for (dtype, start), width in zip(left.items(), widths, strict=True)}
ax.axvline(card_gib, color="black", linestyle="--", label="the card")
ax.invert_yaxis()
ax.set_xlabel("GiB")
fig.legend(loc="outside lower center", ncols=3, fontsize=9)
plt.show()

# %%
lacking = {dtype: -p.headroom_bytes / GIB for dtype, p in plans.items() if not p.fits}
for dtype, plan in plans.items():
    missing = (
        f", {lacking[dtype]:.2f} GiB short"
        if dtype in lacking
        else f", a pool of {plan.kv_tokens / max_model_len:.1f} full-length requests"
    )
    weights = vram.weight_bytes(qwen, dtype) / GIB
    display(Markdown(f"- {dtype}: weights {weights:.2f} GiB: **{plan.placement}**{missing}"))

# %% [markdown]
# ## Predict, then measure
#
# Others ran servers and published what they printed. **Prediction, before looking:** the weights and the KV tokens agree to one
# per cent wherever the model's sizes and the format are known. KV tokens are predicted from the KV bytes that the server
# reported, so they test the cache's arithmetic and not the activation peak.

# %%
specs = vram.specs_from_table(rows_of("data/model_configs.csv"))
observations = rows_of("data/vllm_memory_observations.csv")
comparisons = vram.compare_with_observations(observations, specs)
display(Markdown(f"{len(observations)} reports, {len(specs)} configurations."))

# %% [markdown]
# Look at the denominators first: what was reported, what could be predicted, what agreed. A `public-log-NN` is a log in a
# public repository whose address was not kept, so nobody can look it up again; rows with an address are counted apart.

# %%
addressed = {row["observation"] for row in observations if row["address"]}


def counted(quantity, only=None):
    """Reported, predicted, and predicted within one per cent."""
    chosen = [c for c in comparisons if c.quantity == quantity and (only is None or c.observation in only)]
    errors = [abs(c.error) for c in chosen if c.error is not None]
    return len(chosen), len(errors), sum(error <= 0.01 for error in errors)


# %%
counts = {(q, who): counted(q, only) for q in ("weights", "tokens") for who, only in (("all", None), ("addressed", addressed))}
table(("quantity", "rows", "reported", "predicted", "within 1 %"), *((*key, *value) for key, value in counts.items()))

# %% mystnb={"image": {"alt": "Two rows of dots, weights above and KV tokens below, placed by the error of the prediction in per cent; nearly all dots lie within a band of plus and minus one per cent, and a few weights lie below it"}, "figure": {"caption": "Error of each prediction against a public report. The band is ±1 %; filled dots have an address, hollow ones do not. The scale is linear within ±1 % and logarithmic beyond.", "name": "fig-vram-errors"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(7.0, 2.6))
ax.axvspan(-1, 1, color="#E8E8E8")
for place, quantity in enumerate(("weights", "tokens")):
    known = sorted((c for c in comparisons if c.quantity == quantity and c.error is not None), key=lambda c: c.error)
    for rank, c in enumerate(known):
        height = place + 0.5 * (rank / max(1, len(known) - 1) - 0.5)
        fill = figures.PALETTE["blue"] if c.observation in addressed else "white"
        ax.plot(100 * c.error, height, "o", color=figures.PALETTE["blue"], markerfacecolor=fill, markersize=5)
ax.set_yticks([0, 1], ["weights", "KV tokens"])
ax.set_ylim(1.5, -0.5)
ax.set_xscale("symlog", linthresh=1)
ax.set_xlim(-30, 3)
ax.set_xticks([-10, -1, 0, 1], ["−10", "−1", "0", "1"])
ax.set_xlabel("(predicted − reported) / reported, per cent")
plt.show()

# %% [markdown]
# The misses, one by one, with what the report says of itself:

# %%
by_name = {row["observation"]: row for row in observations}
misses = [c for c in comparisons if c.error is not None and abs(c.error) > 0.01]
table(
    ("report", "model", "format", "predicted", "reported", "error"),
    *(
        (
            c.observation,
            by_name[c.observation]["model"],
            by_name[c.observation]["weight_dtype"],
            f"{c.predicted:.3f}",
            f"{c.reported:.3f}",
            f"{c.error:+.1%}",
        )
        for c in misses
    ),
)

# %% [markdown]
# ## Is the benchmark valid?
#
# Four doubts, each with its count: what was left out and why; how many different models stand behind the rows; how many rows we
# matched to a configuration by their sizes because the log hides the name (there, agreement is partly our own doing); and what
# the rows say about the activation peak, which we only bound.

# %%
reasons = Counter((c.quantity, c.reason.split(":")[0]) for c in comparisons if c.reason)
table(("quantity", "not predicted because", "rows"), *((*key, n) for key, n in sorted(reasons.items())))

# %%
predicted = {c.observation for c in comparisons if c.error is not None}
models = {by_name[name]["config"] for name in predicted}
guessed = [name for name in predicted if "not shown" in by_name[name]["model"]]
text = (
    f"{len(predicted)} rows with a prediction hold {len(models)} different models; {len(guessed)} of them hide the model's name."
)
display(Markdown(text))

# %%
peaks = [row for row in observations if row["activation_peak_gib"] and row["config"] in specs]
spans = [vram.activation_interval(specs[row["config"]]) for row in peaks]
seen = [float(row["activation_peak_gib"]) * GIB for row in peaks]
inside = sum(low <= peak <= high for peak, (low, high) in zip(seen, spans, strict=True))
above = sum(peak > high for peak, (_, high) in zip(seen, spans, strict=True))
text = (
    f"**Activation peaks:** of {len(peaks)} reported ones {inside} lie inside our interval at vLLM's default of 256 sequences, "
    f"{above} above it and {len(peaks) - inside - above} below."
)
display(Markdown(text))

# %% [markdown]
# The ones below do no harm: the plan was more careful than it had to be. The ones above are the limit of this chapter: the
# reports mostly leave out how many sequences and tokens a batch held, and several come from versions that profiled a whole
# context at once. So the plan's answer is "possible, if the batch is as small as the flags below make it", never "so many bytes
# will be free".
#
# Three things it cannot know: the activation peak of a version it has not seen, what else already stands on the card, and how a
# second server counts the first one's memory when both start at once (start the embedder, wait until it answers, then start the
# generator).

# %% [markdown]
# ## The decision
#
# One row for each generator and format. `live` asks for more: questions arrive while the generator runs, so taking turns is no
# answer.

# %%
choices = [
    ("Qwen/Qwen3-8B", "bf16"), ("Qwen/Qwen3-8B", "fp8"), ("Qwen/Qwen3-8B", "awq"),
    ("Qwen/Qwen3-14B", "awq"), ("Qwen/Qwen3-14B", "fp8"), ("Qwen/Qwen3-4B", "bf16"),
    ("Qwen/Qwen2.5-7B-Instruct", "bf16"), ("Qwen/Qwen2.5-1.5B-Instruct", "bf16"),
    ("meta-llama/Llama-3.1-8B", "awq"), ("mistralai/Mistral-7B-Instruct-v0.3", "bf16"), ("microsoft/phi-4", "nvfp4"),
    ("deepseek-ai/deepseek-coder-6.7b-instruct", "awq"), ("HuggingFaceTB/SmolLM2-135M", "bf16"),
]  # fmt: skip
decisions = {(name, dtype): (plan_of(specs[name], dtype), plan_of(specs[name], dtype, live=True)) for name, dtype in choices}

# %%
table(
    ("generator", "format", "weights, GiB", "B/token", "placement", "if live", "KV tokens", "largest term"),
    *(
        (
            name,
            dtype,
            f"{vram.weight_bytes(specs[name], dtype) / GIB:.2f}",
            f"{vram.kv_bytes_per_token(specs[name]):,}",
            p.placement,
            live.placement,
            f"{p.kv_tokens:,}",
            p.limiting,
        )
        for (name, dtype), (p, live) in decisions.items()
    ),
)

# %% [markdown]
# **The verdict** is computed from the table: the plan that keeps both on the card with the least loss of precision. Where many
# questions run at once, the larger pool of a smaller format is the other choice.

# %%
best = next((dtype for dtype in ("bf16", "fp8", "awq") if plans[dtype].placement == "co-resident"), None)
verdict = f"Qwen3-8B in {best} beside bge-small" if best else "no format of Qwen3-8B beside bge-small"
culprits = {p.limiting for p, _ in decisions.values() if not p.fits}
text = (
    f"On {card_gib} GiB: **{verdict}**. {sum(p.fits for p, _ in decisions.values())} of {len(decisions)} choices fit "
    f"in some way; where one does not, the largest term is {' or '.join(sorted(culprits)) or 'nothing'}."
)
display(Markdown(text))

# %% [markdown]
# It is often said that the embedder fills a 16 GB card. Compare what the embedder's weights take with what one step of the
# generator's precision frees.

# %%
freed = vram.weight_bytes(qwen, "bf16") - vram.weight_bytes(qwen, "awq")
text = (
    f"The embedder's weights are {embedder_bytes / GIB:.2f} GiB. From bf16 to AWQ the generator frees "
    f"{freed / GIB:.2f} GiB, **{freed / embedder_bytes:.0f} times as much**."
)
display(Markdown(text))

# %% [markdown]
# What the servers are then told, embedder first:

# %%
if best:
    for role, words in vram.vllm_flags(plans[best]).items():
        print(f"{role}: python -m vllm.entrypoints.openai.api_server {' '.join(words)}")

# %% [markdown]
# The name after `--model` is the bf16 checkpoint's; a quantised one has a name of its own, which the server reads the format
# from.
#
# ## Exercises
#
# ```{admonition} 1. A cache of half the bytes
# :class: tip
# Keep the KV cache of Qwen3-8B AWQ in FP8. How many more tokens does the pool hold? Twice as many, more, or fewer?
# ```

# %% tags=["hide-input", "hide-output"]
half = plan_of(qwen, "awq", kv_dtype="fp8")
full = plans["awq"]
text = (
    f"{full.kv_tokens:,} → {half.kv_tokens:,} tokens, a factor of {half.kv_tokens / max(1, full.kv_tokens):.3f}: the "
    "pool's bytes stay, each token takes half; only whole blocks count."
)
display(Markdown(text))

# %% [markdown]
# ```{admonition} 2. The smaller 16 GB card
# :class: tip
# A T4-class card is sold as 16 GB too, but CUDA sees less of it (`vram.T4_GIB`). Which of the three precisions still fit?
# ```

# %% tags=["hide-input", "hide-output"]
on_t4 = {dtype: plan_of(qwen, dtype, card_gib=vram.T4_GIB).placement for dtype in plans}
table(("precision", f"on {vram.T4_GIB} GiB"), *on_t4.items())
display(Markdown("Room is not all: a T4 has no bf16 and no FP8 arithmetic, which this sum does not see."))

# %% [markdown]
# ```{admonition} 3. Where the placements change
# :class: tip
# Shrink the card in steps of a tenth of a GiB. At which sizes does Qwen3-8B AWQ stop being co-resident, and stop fitting at all?
# ```

# %% tags=["hide-input", "hide-output"]
steps = [tenths / 10 for tenths in range(60, 161)]
smallest = {}
for size in reversed(steps):
    smallest[plan_of(qwen, "awq", card_gib=size).placement] = size
table(("placement", "smallest card tried, GiB"), *((name, size) for name, size in smallest.items() if name != "impossible"))

# %% [markdown]
# ## Recap
#
# 1. We worked out the bytes of one generator beside one embedder by hand, and the package agreed.
# 2. We predicted weights and KV tokens of public reports, and counted how often we were right and how often we could not say.
# 3. We decided, for a list of models and formats, whether both live on the card at once, in turns, or not at all.

# %%
(_, weights_n, weights_good), (_, tokens_n, tokens_good) = counts["weights", "all"], counts["tokens", "all"]
path = write_metrics("02_vram_budget", {
    "card_gib": card_gib,
    **{f"weights_gib_{dtype}": vram.weight_bytes(qwen, dtype) / GIB for dtype in plans},
    **{f"kv_tokens_{dtype}": p.kv_tokens for dtype, p in plans.items()},
    "embedder_weights_gib": embedder_bytes / GIB,
    "kv_bytes_per_token": by_hand,
    "weights_predicted": weights_n, "weights_within_1_percent": weights_good,
    "tokens_predicted": tokens_n, "tokens_within_1_percent": tokens_good,
    "peaks_reported": len(peaks), "peaks_inside": inside, "peaks_above": above,
    "choices": len(decisions), "choices_that_fit": sum(p.fits for p, _ in decisions.values()),
}, profile, artifacts)  # fmt: skip

# %%
show_receipt(profile, data=["data/model_configs.csv", "data/vllm_memory_observations.csv"])
