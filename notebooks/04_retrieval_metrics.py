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
# # Retrieval metrics: was the evidence found, and where does it stand?
#
# **Claim.** Two numbers describe a search. Recall@k asks whether the evidence is among the first k results, MRR asks how high
# its first piece stands. Each hides something, and it matters *what* is counted: finding the right article is easier than
# finding the chunk that holds the answer.
#
# **Its limit.** Neither number says whether the reader's answer is right; that is the next chapter. And the corpus here is
# small. Where nearly every search succeeds, a benchmark cannot show that another retriever is better, and below the code says
# from which k on this one no longer can.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | {doc}`/book/labs/00_start_here` for the equations, {doc}`/book/labs/03_lancedb_index` for the index |
# | helpful | having once sorted a list by a score |
# | time and memory | about a minute; no model is loaded, the questions' vectors are stored |
# | writes | `artifacts/PROFILE/metrics/04_retrieval_metrics.json` |

# %% [markdown]
# In this notebook we
#
# 1. work out five metrics by hand on five documents, and see what a double match does to them;
# 2. measure recall@k and MRR of the book's own search for k from 1 upward, for articles and for chunks, with intervals;
# 3. ask what this benchmark can tell apart, and decide how many chunks the reader is given.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
k: int = 5  # chunks that the reader is given
deepest: int = 10  # chunks that are looked at here

# %%
import math
import re
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display

from ragkit.errors import InputError
from ragkit.evaluation.items import covers
from ragkit.evaluation.metrics import average_precision, dedupe, hit_at_k, ndcg_at_k, recall_at_k, reciprocal_rank
from ragkit.evaluation.report import retrieval_rows, retrieval_summary
from ragkit.evaluation.statistics import (
    intraclass_correlation,
    mcnemar_exact,
    minimum_detectable_effect,
    minimum_detectable_effect_clustered,
    paired_difference,
    wilson_interval,
)
from ragkit.lab import figures, read_metric, show_receipt, write_metrics
from ragkit.profile import load_profile
from ragkit.records import Hit
from ragkit.retrieval.frozen import open_frozen

figures.use_book_style()


# %% tags=["hide-input"]
def table(*rows):
    """Show rows as a Markdown table; the first is the head."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    display(Markdown("\n".join([head, "|" + "---|" * len(rows[0]), *body])))


def spread(summary):
    """A mean and its interval as text."""
    low, high = summary["interval"]
    return f"{summary['mean']:.3f} ({low:.3f} to {high:.3f})"


# %% [markdown]
# ## By hand: five documents
#
# A search returns five documents in this order. Three documents hold evidence: d1 and d2 stand at ranks 2 and 4, d6 was not
# found.

# %%
ranked, relevant = ["d3", "d1", "d5", "d2", "d4"], {"d1", "d2", "d6"}

# %% [markdown]
# **Hit@3** asks whether any relevant document is among the first three. **Recall@5** ({eq}`eq-recall`) asks which share of the
# relevant ones is among the first five. The **reciprocal rank** ({eq}`eq-mrr`, before the mean over questions) looks at the first one alone.

# %%
assert hit_at_k(ranked, relevant, 3) == 1.0
assert recall_at_k(ranked, relevant, 5) == 2 / 3
assert reciprocal_rank(ranked, relevant) == 1 / 2

# %% [markdown]
# **Average precision** takes the precision at each relevant rank (one of two at rank 2, two of four at rank 4) and divides by
# *all* relevant documents, so that what was missed counts as zero. **nDCG** gives each rank a weight that falls with its
# logarithm, and divides by the best possible order.

# %%
assert math.isclose(average_precision(ranked, relevant), (1 / 2 + 2 / 4) / 3)
gained = 1 / math.log2(2 + 1) + 1 / math.log2(4 + 1)
best = sum(1 / math.log2(rank + 1) for rank in (1, 2, 3))
assert math.isclose(ndcg_at_k(ranked, dict.fromkeys(relevant, 1), 5), gained / best)

# %%
table(
    ("metric", "by hand", "the package"),
    ("hit@3", "1", hit_at_k(ranked, relevant, 3)),
    ("recall@5", "2/3", f"{recall_at_k(ranked, relevant, 5):.4f}"),
    ("reciprocal rank", "1/2", reciprocal_rank(ranked, relevant)),
    ("average precision", "(1/2 + 2/4) / 3", f"{average_precision(ranked, relevant):.4f}"),
    ("nDCG@5", f"{gained:.4f} / {best:.4f}", f"{ndcg_at_k(ranked, dict.fromkeys(relevant, 1), 5):.4f}"),
)

# %% [markdown]
# ### A double match
#
# Chunks overlap, so one article often appears twice. Whoever counts its chunks as if each were a relevant article gets a
# recall above one. Look at the two numbers: the same list, before and after each article is counted once.

# %%
articles_of_chunks = ["kosmos-482", "kosmos-482", "starlink", "kosmos-482"]
gold = {"kosmos-482"}
naive = sum(article in gold for article in articles_of_chunks) / len(gold)
once = recall_at_k(dedupe(articles_of_chunks), gold, 4)
assert once <= 1
display(Markdown(f"Counted by chunk: recall **{naive:.1f}**. Each article once: **{once:.1f}**."))

# %% [markdown]
# ## Build: the frozen search
#
# The index and the questions' vectors were stored when the index was built, so nothing is embedded here. These are the questions
# of the **development** split, which may be looked at and tuned on.

# %%
chosen = load_profile(profile)
frozen = open_frozen(chosen, artifacts)
tasks = frozen.select("dev", chosen.evaluation.limit)
hits = frozen.hits(tasks, max(k, deepest))

# %% [markdown]
# An unanswerable question has no evidence, so it has no recall: the function refuses, and does not return a 0 that would drag
# the mean down or a 1 that would lift it. A reader without retrieval has no recall@k either, since it ranks nothing; the two
# families of numbers have no common floor.

# %%
try:
    recall_at_k(ranked, set(), k)
    refused = ""
except InputError as error:
    refused = str(error)
assert refused
rows = retrieval_rows(tasks, hits, max(k, deepest))
text = f"{len(tasks)} questions, {len(rows)} with evidence, {len(tasks) - len(rows)} without. Recall of one without: *{refused}*."
display(Markdown(text))

# %% [markdown]
# ### The right article, the wrong chunk
#
# A hit can be counted at two levels: the article, or a chunk that overlaps the **gold span**, the sentence which holds the
# answer. Here is the question where the two levels differ most. Look for the first row whose last column says yes.

# %%
task_of = {task.task_id: task for task in tasks}
hits_of = {task.task_id: found for task, found in zip(tasks, hits, strict=True)}
widest = max(rows, key=lambda row: row["article_rr"] - row["chunk_rr"])
asked = task_of[widest["task_id"]]


def is_evidence(task, chunk):
    """Whether a chunk overlaps one of the task's gold spans."""
    return any(covers(task, gold, chunk) for gold in task.golds)


# %%
display(Markdown(f"**{asked.task_id}.** {asked.question}"))
table(
    ("rank", "chunk", "cosine", "gold article", "gold span"),
    *(
        (
            hit.rank,
            f"`{hit.chunk.chunk_id}`",
            f"{hit.cosine:.3f}",
            "yes" if hit.chunk.article_id in {gold.article_id for gold in asked.golds} else "",
            "yes" if is_evidence(asked, hit.chunk) else "",
        )
        for hit in hits_of[asked.task_id][:k]
    ),
)

# %% [markdown]
# ## Predict, then measure
#
# **Prediction, before looking:** at k = 1 the chunk level lies at least 5 points below the article level; at the k that the
# reader is given, both lie above .90. The reader gets chunks, so k counts chunks at both levels, and an article is found when
# one of the first k chunks is cut from it; its rank is its place among the different articles. Intervals are BCa bootstraps
# over gold *articles*, because questions about one article succeed and fail together.

# %%
summary = retrieval_summary(rows, chosen.evaluation.seed)
by_k = summary["by_k"]
table(
    ("k", "article recall@k", "chunk recall@k", "article MRR@k", "chunk MRR@k"),
    *((at["k"], *(spread(at[name]) for name in ("article_recall", "chunk_recall", "article_rr", "chunk_rr"))) for at in by_k),
)

# %%
first, given = by_k[0], by_k[k - 1]
gap = first["article_recall"]["mean"] - first["chunk_recall"]["mean"]
both_high = min(given["article_recall"]["mean"], given["chunk_recall"]["mean"])
text = (
    f"At k = 1 the levels lie {100 * gap:.1f} points apart: the prediction **{'held' if gap >= 0.05 else 'failed'}**. "
    f"At k = {k} the lower of the two is {both_high:.3f}: the prediction **{'held' if both_high > 0.9 else 'failed'}**."
)
display(Markdown(text))

# %% mystnb={"image": {"alt": "Two rising curves of recall against k from 1 to 10 with vertical interval bars; the curve for articles lies on or above the curve for gold chunks, and both flatten within the first five places"}, "figure": {"caption": "Recall@k on the development split, counted by article and by gold chunk, with 95 % BCa intervals over gold articles. Where every question succeeds the bootstrap has nothing to vary and its bar vanishes: that is no certainty, see the text.", "name": "fig-recall-at-k"}} tags=["hide-input"]
fig, ax = plt.subplots()
series = {"article": ("article_recall", "o", -0.08), "gold chunk": ("chunk_recall", "s", 0.08)}
for name, (metric, marker, shift) in series.items():
    means = np.array([at[metric]["mean"] for at in by_k])
    low, high = np.array([at[metric]["interval"] for at in by_k]).T
    places = np.arange(1, len(by_k) + 1) + shift
    ax.errorbar(places, means, [means - low, high - means], marker=marker, capsize=3, label=name)
ax.set_xticks(range(1, len(by_k) + 1))
ax.set_xlabel("k, chunks looked at")
ax.set_ylabel("recall@k")
ax.set_ylim(0, 1.03)
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ### What each hides
#
# Recall@k does not see order, MRR sees nothing after the first relevant result. Two pairs of made-up searches, two questions
# each, one relevant document each. Look at which column does not move.


# %%
def of_ranks(ranks, cut=5):
    """Recall@cut and MRR@cut of questions whose one relevant document stands at these ranks (None: nowhere)."""
    lists = [["x"] * 0 if rank is None else [f"x{n}" for n in range(1, rank)] + ["gold"] for rank in ranks]
    metrics = (recall_at_k, reciprocal_rank)
    return [float(np.mean([metric(found, {"gold"}, cut) for found in lists])) for metric in metrics]


examples = {"first and first": (1, 1), "fifth and fifth": (5, 5), "first and never": (1, None), "second and second": (2, 2)}
table(("the relevant document stands", "recall@5", "MRR@5"), *((name, *of_ranks(ranks)) for name, ranks in examples.items()))

# %% [markdown]
# So a recall that stays while MRR falls means that the reader has to find the evidence deeper in its prompt, and an MRR that
# stays can hide that half of the questions lost theirs. Show both, and the ranks themselves.

# %% mystnb={"image": {"alt": "Paired bars that count questions by the rank of the first gold article and of the first gold chunk, from rank 1 to 10 and a last group for never; most questions stand at rank 1, fewer of them for chunks"}, "figure": {"caption": "At which rank the first evidence stands, by article and by gold chunk. Bars at the right end, if any, are questions whose evidence is not among the chunks looked at.", "name": "fig-first-rank"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(7.0, 3.2))
names = [*(str(n) for n in range(1, len(by_k) + 1)), "never"]
for number, (name, metric, hatch) in enumerate((("article", "article_rr", ""), ("gold chunk", "chunk_rr", "//"))):
    ranks = Counter("never" if row[metric] == 0 else str(round(1 / row[metric])) for row in rows)
    places = np.arange(len(names)) + 0.4 * number - 0.2
    colour = list(figures.PALETTE.values())[number]
    ax.bar(places, [ranks[n] for n in names], width=0.38, color=colour, hatch=hatch, edgecolor="white", label=name)
ax.set_xticks(range(len(names)), names)
ax.set_xlabel("rank of the first evidence")
ax.set_ylabel("questions")
ax.grid(axis="x", visible=False)
ax.legend()
plt.show()

# %% [markdown]
# Hit and recall part where a question needs two articles. Look at the difference between the last two columns at k = 1.

# %%
several = [row for row in rows if len({gold.article_id for gold in task_of[row["task_id"]].golds}) > 1]


def mean_at(some, name, cut):
    """Mean of a metric at one k over some rows, or a dash where there are none."""
    return f"{np.mean([row['by_k'][cut - 1][name] for row in some]):.3f}" if some else "–"


table(
    ("questions", "n", "k", "article hit@k", "article recall@k"),
    *(
        (name, len(some), cut, mean_at(some, "article_hit", cut), mean_at(some, "article_recall", cut))
        for name, some in (("all", rows), ("of several articles", several))
        for cut in (1, k)
    ),
)

# %% [markdown]
# ## Is the benchmark valid?
#
# A rival can only win questions that this search misses. If it won every one of them and lost none, the exact McNemar test
# ({doc}`/book/labs/05_paired_eval`) would need a certain number of them to speak at 5 %. Below that number of misses the
# benchmark is at its **ceiling**: not even a perfect retriever could be shown to be better than this one.

# %%
needed = next(gains for gains in range(1, 50) if mcnemar_exact(gains, 0) <= 0.05)
misses = {
    level: [sum(row["by_k"][cut - 1][f"{level}_recall"] < 1 for row in rows) for cut in range(1, len(by_k) + 1)]
    for level in ("article", "chunk")
}
ceiling = {level: [cut for cut, missed in enumerate(counts, 1) if missed < needed] for level, counts in misses.items()}


# %%
def said(level):
    """Where a level is at its ceiling, in words."""
    where = f"at its ceiling from k = {ceiling[level][0]} on" if ceiling[level] else "not at its ceiling at any k looked at"
    return f"- {level} recall: {misses[level][0]} misses at k = 1, {misses[level][k - 1]} at k = {k}: **{where}**"


text = f"At least {needed} misses are needed; {len(rows)} questions were asked.\n\n{said('article')}\n{said('chunk')}"
display(Markdown(text))

# %%
blind = k in ceiling["article"]
all_found = misses["article"][k - 1] == 0
low, _ = wilson_interval(len(rows) - misses["article"][k - 1], len(rows))
text = (
    f"Article recall@{k} {'**can show no better retriever here**' if blind else 'has room to show a better retriever'}. "
    f"{'The bootstrap says 1 to 1, since it has no miss to draw; ' if all_found else ''}"
    f"Wilson's interval puts the share of questions whose articles are all found at no less than {low:.3f}."
)
display(Markdown(text))

# %% [markdown]
# Three more doubts. The questions were written with the articles at hand, so they may share more words with
# them than a stranger's question would; the ranking by shared words below shows how far that alone carries. One gold span is
# marked for each fact, so another chunk that says the same counts as a miss. And a corpus of a few dozen articles has few near
# misses: recall at this k will be lower on a larger one.
#
# ### Does the same code reproduce published figures?
#
# SciFact has 300 queries over 5,183 abstracts with published figures for this embedder. They were checked by hand with
# `make verify`; look at the last two columns.

# %%
try:
    published = read_metric("verify_scifact:figures", "cpu", artifacts)
except InputError:
    published = {}
    display(Markdown("SciFact: **not measured yet on this machine** (`make verify DATA=folder`)."))
if published:
    table(
        ("figure", "published", "measured", "within tolerance"),
        *((name, f"{v['expected']:.4f}", f"{v['got']:.4f}", "yes" if v["passed"] else "**no**") for name, v in published.items()),
    )

# %% [markdown]
# ## A paired difference: against shared words
#
# A contrast that needs no model: rank chunks by how many of the question's words they hold. It is *not* BM25 (no rarity, no
# length), only the crudest thing that ranks. Both searches answer the same questions, so the difference is taken question by
# question.


# %%
def words(text):
    """The set of lower-case words."""
    return set(re.findall(r"\w+", text.lower()))


bags = [words(chunk.text) for chunk in frozen.index.chunks]


def by_shared_words(question, depth):
    """Hits in order of the number of shared words, ties in order of chunk ids; `cosine` holds the shared words' share."""
    asked_words = words(question)
    shared = [len(asked_words & bag) / len(asked_words) for bag in bags]
    order = sorted(range(len(bags)), key=lambda place: -shared[place])[:depth]
    return [Hit(frozen.index.chunks[place], shared[place], rank) for rank, place in enumerate(order, 1)]


# %%
contrast = retrieval_rows(tasks, [by_shared_words(task.question, max(k, deepest)) for task in tasks], max(k, deepest))
clusters = [row["cluster"] for row in rows]
cuts = sorted({cut for cut in (1, 3, k) if cut <= len(by_k)})


def against(name, cut):
    """Dense minus shared words, paired by question."""
    ours, theirs = ([row["by_k"][cut - 1][name] for row in some] for some in (rows, contrast))
    return paired_difference(ours, theirs, chosen.evaluation.seed, clusters)


compared = {f"chunk recall@{cut}": against("chunk_recall", cut) for cut in cuts} | {f"chunk MRR@{k}": against("chunk_rr", k)}

# %% [markdown]
# Look first at how many questions either search wins, then at the interval.

# %%
table(
    ("metric", "dense wins", "shared words win", "equal", "difference", "interval over articles", "verdict on dense"),
    *(
        (name, d.better, d.worse, d.equal, f"{d.delta:+.3f}", "{:+.3f} to {:+.3f}".format(*d.cluster_interval), d.verdict)
        for name, d in compared.items()
    ),
)

# %% mystnb={"image": {"alt": "Horizontal intervals of the difference between dense search and ranking by shared words, one row for each metric, against a vertical line at zero"}, "figure": {"caption": "Dense search minus ranking by shared words, in points, paired by question; 95 % BCa intervals over gold articles. Filled dots: the interval excludes zero.", "name": "fig-paired-retrieval"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(7.0, 2.6))
figures.forest(ax, [(name, d.delta, *d.cluster_interval) for name, d in compared.items()], "difference, points", unit=100)
plt.show()

# %% [markdown]
# ### How many questions would be needed?
#
# The smallest true difference in recall@1 that a comparison of n questions finds with 80 % power, if the two searches disagree
# on as many questions as these two did. The last column counts clustered questions for what they are worth.

# %%
disagree = sum(a["by_k"][0]["chunk_hit"] != b["by_k"][0]["chunk_hit"] for a, b in zip(rows, contrast, strict=True))
discordance = disagree / len(rows)
differences = [a["by_k"][0]["chunk_hit"] - b["by_k"][0]["chunk_hit"] for a, b in zip(rows, contrast, strict=True)]
icc = intraclass_correlation(differences, clusters) if len(set(clusters)) > 1 else 0.0
size = len(rows) / len(set(clusters))


def points(effect):
    """A detectable difference in points, rounded up."""
    return "none" if effect is None else f"{math.ceil(100 * effect - 1e-9)}"


# %%
ns = (len(rows), 100, 200, 400)
if discordance:
    table(
        ("questions", "detectable, points", "the same, clustered"),
        *(
            (
                n,
                points(minimum_detectable_effect(n, discordance)),
                points(minimum_detectable_effect_clustered(n, discordance, size, icc)),
            )
            for n in ns
        ),
    )
detectable = minimum_detectable_effect(len(rows), discordance) if discordance else None
text = (
    f"The two disagree on {disagree} of {len(rows)} questions; {size:.2f} questions an article, intraclass correlation {icc:.2f}."
)
display(Markdown(text))

# %% [markdown]
# ## The decision
#
# The reader is given as many chunks as it takes for the chunk level to come within one question of what the deepest list finds:
# each further chunk costs prompt tokens and adds near misses. A reranker has something to do where evidence is found but stands
# low, that is where MRR lies far below recall.

# %%
found_at = [len(rows) - missed for missed in misses["chunk"]]
enough = next(cut for cut, found in enumerate(found_at, 1) if found >= found_at[-1] - 1)
room = given["chunk_recall"]["mean"] - given["chunk_rr"]["mean"]
decision = f"k = {k} is {'enough' if k >= enough else 'too few'}"
main = compared[f"chunk MRR@{k}"]

# %%
text = (
    f"**{decision}**: from k = {enough} on the search is within one question of the deepest list. Chunk recall@{k} is "
    f"{given['chunk_recall']['mean']:.3f}, chunk MRR@{k} {given['chunk_rr']['mean']:.3f}: {100 * room:.1f} points that a reranker "
    f"could at most add to MRR. Dense search against shared words, by chunk MRR@{k}: **{main.verdict}** "
    f"({main.delta:+.3f}, n = {main.n})."
)
display(Markdown(text))

# %% [markdown]
# Retrieval metrics come first because they are cheap and name the part that failed. They do not end the question: evidence in
# the prompt can still be misread, and a question can be answered without it. {doc}`/book/labs/05_paired_eval` asks that.
#
# ## Exercises
#
# ```{admonition} 1. Turn the list around
# :class: tip
# Reverse the first k results of each question. Which of recall@k and MRR@k changes, and why?
# ```

# %% tags=["hide-input", "hide-output"]
reversed_hits = [found[:k][::-1] for found in hits]
turned = retrieval_summary(retrieval_rows(tasks, reversed_hits, k), chosen.evaluation.seed)["detail"]
assert turned["chunk_recall"]["mean"] == given["chunk_recall"]["mean"]
text = (
    f"Recall@{k} stays at {turned['chunk_recall']['mean']:.3f}, since the set is the same; MRR@{k} goes from "
    f"{given['chunk_rr']['mean']:.3f} to {turned['chunk_rr']['mean']:.3f}."
)
display(Markdown(text))

# %% [markdown]
# ```{admonition} 2. A stricter chunk
# :class: tip
# A chunk counts as evidence when it overlaps the gold span. Demand that it holds the *whole* span. How much recall@k is lost?
# ```


# %% tags=["hide-input", "hide-output"]
def holds_whole(gold, chunk):
    """Whether a chunk holds all of a gold span."""
    return gold.article_id == chunk.article_id and gold.start is not None and chunk.start <= gold.start and gold.end <= chunk.end


strict = [
    np.mean([any(holds_whole(gold, hit.chunk) for hit in hits_of[row["task_id"]][:k]) for gold in task_of[row["task_id"]].golds])
    for row in rows
]
text = f"Chunk recall@{k}: {given['chunk_recall']['mean']:.3f} by overlap, {np.mean(strict):.3f} by the whole span."
display(Markdown(text))

# %% [markdown]
# ```{admonition} 3. By chance
# :class: tip
# What would chunk recall@k be if the chunks were drawn at random? Work it out without drawing: g chunks of N hold the evidence.
# ```

# %% tags=["hide-input", "hide-output"]
total = len(frozen.index.chunks)
holding = [sum(is_evidence(task_of[row["task_id"]], chunk) for chunk in frozen.index.chunks) for row in rows]
chance = np.mean([1 - math.comb(total - g, k) / math.comb(total, k) for g in holding])
text = f"A hit by chance: 1 − C(N − g, k) / C(N, k), on average **{chance:.3f}** with N = {total} and k = {k}."
display(Markdown(text))

# %% [markdown]
# ## Recap
#
# 1. We worked out five metrics by hand on five documents, and saw what a double match does to them.
# 2. We measured recall@k and MRR of the book's own search for k from 1 upward, for articles and for chunks, with intervals.
# 3. We asked what this benchmark can tell apart, and decided how many chunks the reader is given.

# %%
path = write_metrics("04_retrieval_metrics", {
    "k": k, "n": len(rows), "unanswerable": len(tasks) - len(rows), "chunks": total,
    "recall_at_k": given["article_recall"], "mrr": given["article_rr"],
    "chunk_recall_at_k": given["chunk_recall"], "chunk_mrr": given["chunk_rr"],
    "by_k": by_k, "misses": misses, "ceiling_from": {level: (at or [None])[0] for level, at in ceiling.items()},
    "needed_misses": needed, "enough_k": enough, "decision": decision,
    "against_shared_words": {
        name: {"delta": d.delta, "interval": list(d.cluster_interval), "verdict": d.verdict} for name, d in compared.items()
    },
    "discordance": discordance, "icc": icc, "detectable": detectable, "chance_hit_at_k": chance,
}, profile, artifacts)  # fmt: skip

# %%
show_receipt(profile, data=[chosen.evaluation.tasks, chosen.evaluation.snapshot])
