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
# **Claim.** Recall@k says whether the evidence is among the first k results, MRR how high its first piece stands. Each hides
# something, and it matters *what* is counted: an article, the chunk that holds the answer, or the answer's string. Which search is
# best is then a question about differences on the same questions, with an interval, and about what the loser found alone.
#
# **Its limit.** These figures are of the **development split**, which was looked at while this book was made: they are exploratory,
# also where their interval excludes zero. They hold for one embedder and a small corpus, and no retrieval metric says whether the
# reader's answer is right; that is the next chapter.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | {doc}`/book/labs/00_start_here` for the equations, {doc}`/book/labs/03_lancedb_index` for the index |
# | helpful | having once sorted a list by a score |
# | time and memory | a minute or two; no model is loaded, the questions' vectors are stored |
# | writes | `artifacts/PROFILE/metrics/04_retrieval_metrics.json`, and timings apart from it |

# %% [markdown]
# In this notebook we
#
# 1. work out seven metrics by hand on five documents, and walk into two traps: a double match, and grades that mean the opposite;
# 2. count the same hits as articles, as chunks and as strings, and see how far the three differ;
# 3. compare dense search, two BM25s and their hybrid, question by question, and list what only one of them finds;
# 4. hold a filter against a larger k, and look at what a reranker could add;
# 5. ask what this benchmark can tell apart, and decide.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
k: int = 5  # chunks that the reader is given
deepest: int = 10  # chunks that are looked at in the curves
candidates: int = 50  # chunks that a reranker would be given
since: str = "2024"  # the date filter keeps what was published then or later
confirm: bool = True  # search the frozen test split with the configuration that is chosen below

# %%
import math
import time
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display

from ragkit.errors import InputError
from ragkit.evaluation.checking import contains_answer
from ragkit.evaluation.items import covers
from ragkit.evaluation.metrics import (
    average_precision,
    dedupe,
    hit_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
)
from ragkit.evaluation.report import mean_with_interval, retrieval_rows
from ragkit.evaluation.statistics import (
    intraclass_correlation,
    mcnemar_exact,
    minimum_detectable_effect,
    minimum_detectable_effect_clustered,
    paired_difference,
)
from ragkit.lab import figures, quote_metric, read_metric, show_receipt, write_metrics, write_timings
from ragkit.profile import load_profile
from ragkit.retrieval.frozen import open_frozen
from ragkit.retrieval.lexical import tokenize
from ragkit.retrieval.rerank import rerank
from ragkit.retrieval.search import open_retriever

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


def between(interval):
    """An interval of a difference as text."""
    return f"{interval[0]:+.3f} to {interval[1]:+.3f}"


# %% [markdown]
# ## By hand: five documents
#
# A search returns five documents in this order. Three documents hold evidence, and somebody graded how much: d2 answers the
# question (3), d6 helps (2), d1 touches it (1). d6 was not found.

# %%
ranked = ["d3", "d1", "d5", "d2", "d4"]
grades = {"d1": 1, "d2": 3, "d6": 2}
relevant = set(grades)

# %% [markdown]
# **Hit@3** asks whether any relevant document is among the first three. **Recall@5** ({eq}`eq-recall`) asks which share of the
# relevant ones is among the first five, **precision@5** which share of the five is relevant. The **reciprocal rank** ({eq}`eq-mrr`,
# before the mean over questions) looks at the first relevant one alone.

# %%
assert hit_at_k(ranked, relevant, 3) == 1.0
assert recall_at_k(ranked, relevant, 5) == 2 / 3
assert precision_at_k(ranked, relevant, 5) == 2 / 5
assert reciprocal_rank(ranked, relevant) == 1 / 2

# %% [markdown]
# **Average precision** takes the precision at each relevant rank (one of two at rank 2, two of four at rank 4) and divides by
# *all* relevant documents, so that what was missed counts as zero:
#
# ```{math}
# :label: eq-average-precision
# \operatorname{AP} = \frac{1}{|R|} \sum_{r \,:\, d_r \in R} \frac{|R \cap \operatorname{top}_r|}{r}
# ```

# %%
assert math.isclose(average_precision(ranked, relevant), (1 / 2 + 2 / 4) / 3)

# %% [markdown]
# **nDCG** is the one of these that uses grades. Each rank's gain is divided by the logarithm of the rank, and the sum by that of the
# best possible order:
#
# ```{math}
# :label: eq-ndcg
# \operatorname{nDCG@}k = \frac{\operatorname{DCG@}k}{\operatorname{IDCG@}k}, \qquad
# \operatorname{DCG@}k = \sum_{r=1}^{k} \frac{g(d_r)}{\log_2 (r + 1)}
# ```
#
# Two gains go by this one name. The **linear** gain $g$ is the grade; the **exponential** one is $2^{\text{grade}} - 1$, which makes
# a document of grade 3 worth seven of grade 1. A figure that does not say which it used cannot be compared. With grades 0 and 1
# the two agree.

# %%
linear = (1 / math.log2(3) + 3 / math.log2(5)) / (3 + 2 / math.log2(3) + 1 / 2)
exponential = (1 / math.log2(3) + 7 / math.log2(5)) / (7 + 3 / math.log2(3) + 1 / 2)
assert math.isclose(ndcg_at_k(ranked, grades, 5), linear)
assert math.isclose(ndcg_at_k(ranked, grades, 5, gain="exponential"), exponential)

# %%
table(
    ("metric", "by hand", "the package"),
    ("hit@3", "1", hit_at_k(ranked, relevant, 3)),
    ("recall@5", "2/3", f"{recall_at_k(ranked, relevant, 5):.4f}"),
    ("precision@5", "2/5", precision_at_k(ranked, relevant, 5)),
    ("reciprocal rank", "1/2", reciprocal_rank(ranked, relevant)),
    ("average precision", "(1/2 + 2/4) / 3", f"{average_precision(ranked, relevant):.4f}"),
    ("nDCG@5, linear", f"{linear:.4f}", f"{ndcg_at_k(ranked, grades, 5):.4f}"),
    ("nDCG@5, exponential", f"{exponential:.4f}", f"{ndcg_at_k(ranked, grades, 5, gain='exponential'):.4f}"),
)

# %% [markdown]
# ### What recall and MRR each hide
#
# Recall@k does not see order, MRR sees nothing after the first relevant result. Two pairs of made-up searches, two questions
# each, one relevant document each. Look at which column does not move.


# %%
def of_ranks(ranks, cut=5):
    """Recall@cut and MRR@cut of questions whose one relevant document stands at these ranks (None: nowhere)."""
    lists = [[] if rank is None else [f"x{n}" for n in range(1, rank)] + ["gold"] for rank in ranks]
    return [float(np.mean([metric(found, {"gold"}, cut) for found in lists])) for metric in (recall_at_k, reciprocal_rank)]


examples = {"first and first": (1, 1), "fifth and fifth": (5, 5), "first and never": (1, None), "second and second": (2, 2)}
table(("the relevant document stands", "recall@5", "MRR@5"), *((name, *of_ranks(ranks)) for name, ranks in examples.items()))

# %% [markdown]
# So a recall that stays while MRR falls means that the reader has to find the evidence deeper in its prompt, and an MRR that
# stays can hide that half of the questions lost theirs. Below, two searches will disagree in just this way.
#
# ### Trap one: a double match
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
# ### Trap two: grades that mean the opposite
#
# Cranfield, the oldest test collection there is, grades 1 for a complete answer and 4 for a document of little use; some of its
# judgements say −1, on documents that behave like the best. And they number the queries by their *place in the file*, while
# the file gives them other numbers. A small invented collection with the same three habits: three queries, numbered 1, 2 and 4,
# and a search that ranks perfectly.

# %%
found = {"1": ["a", "b", "c"], "2": ["d", "e", "f"], "4": ["g", "h", "i"]}
judged = {
    "1": {"a": 1, "b": 3, "c": 4},
    "2": {"d": 1, "e": 2, "f": 4},
    "3": {"g": -1, "h": 2, "i": 4},  # the third query of the file, which calls itself 4
}
own_number = dict(zip(judged, found, strict=True))


def gain(grade):
    """Cranfield's grade as a gain: 1 is the best, -1 is like it."""
    return 4 if grade == -1 else 5 - grade


# %% [markdown]
# Three readings, from the careless to the right one. Look at the last two columns: what does each reading say of the perfect order,
# and what of the very same lists turned around?

# %%
renumbered = {own_number[key]: judgements for key, judgements in judged.items()}
inverted = {key: {doc: gain(grade) for doc, grade in judgements.items()} for key, judgements in renumbered.items()}
readings = {
    "as the file stands": judged,
    "queries by their place": renumbered,
    "queries by their place, grades inverted": inverted,
}


def mean_ndcg(qrels, turned):
    """Mean nDCG@3 over the queries that the search and the judgements share."""
    shared = [key for key in found if key in qrels]
    return float(np.mean([ndcg_at_k(found[key][::-1] if turned else found[key], qrels[key], 3) for key in shared]))


# %%
table(
    ("reading", "queries counted", "the perfect order", "turned around"),
    *(
        (name, sum(key in q for key in found), f"{mean_ndcg(q, False):.3f}", f"{mean_ndcg(q, True):.3f}")
        for name, q in readings.items()
    ),
)
assert mean_ndcg(inverted, False) == 1.0 > mean_ndcg(inverted, True)
assert mean_ndcg(renumbered, False) < mean_ndcg(renumbered, True)

# %% [markdown]
# Nothing failed in the first two rows: no error, no NaN, plausible numbers, and a query lost on the way. What gives them away is a
# control whose answer is known. Score a list that must be good and the same list turned around, before any real run is scored.
#
# ## Build: four searches over one frozen index
#
# The index and the questions' vectors were stored when the index was built, so nothing is embedded here. **Dense** is the exact
# cosine of {doc}`/book/labs/03_lancedb_index`. **BM25** adds up, for each word that question and chunk share, how rare it is, more
# for a repeated word and less in a long chunk. The *plain* tokenizer is the one behind published figures; it takes "X-37B" apart and
# drops single letters and digits. The *names* tokenizer keeps a vehicle's name, a catalogue number and an acronym whole. The
# **hybrid** fuses the dense list with BM25's (names) by rank alone, since their scores have no common unit:
#
# ```{math}
# :label: eq-rrf
# \operatorname{RRF}(d) = \sum_{\text{lists}} \frac{1}{60 + \operatorname{rank}(d)}
# ```

# %%
chosen_profile = load_profile(profile)
seed, limit = chosen_profile.evaluation.seed, chosen_profile.evaluation.limit
frozen = open_frozen(chosen_profile, artifacts)
tasks = frozen.select("dev", limit)
choices = {
    "dense": {"method": "dense"},
    "plain": {"method": "bm25", "tokenizer": "plain"},
    "names": {"method": "bm25", "tokenizer": "names"},
    "hybrid": {"method": "hybrid", "tokenizer": "names"},
}
labels = {"dense": "dense", "plain": "BM25, plain", "names": "BM25, names", "hybrid": "hybrid"}

# %%
retrievers = {
    name: open_retriever(frozen.index, chosen_profile.with_retrieval(rerank=None, **choice)) for name, choice in choices.items()
}


def search(name, asked, depth, where=None):
    """The first chunks of each task by one search; `where` is one filter for all of them."""
    vectors = frozen.vectors[[frozen.tasks.index(task) for task in asked]]
    return [one.hits for one in retrievers[name].search_many([task.question for task in asked], vectors, depth, where)]


# %%
depth = max(k, deepest)
hits = {name: search(name, tasks, max(depth, candidates)) for name in retrievers}
rows = {name: retrieval_rows(tasks, found, depth) for name, found in hits.items()}
clusters = [row["cluster"] for row in rows["dense"]]
task_of = {task.task_id: task for task in tasks}
asked = [task_of[row["task_id"]] for row in rows["dense"]]
lists = {name: [one for task, one in zip(tasks, found, strict=True) if task.golds] for name, found in hits.items()}

# %% [markdown]
# An unanswerable question has no evidence, so it has no recall: the function refuses, and does not return a 0 that would drag
# the mean down or a 1 that would lift it.

# %%
try:
    recall_at_k(ranked, set(), k)
    refused = ""
except InputError as error:
    refused = str(error)
assert refused
text = (
    f"{len(tasks)} questions, {len(asked)} with evidence (on {len(set(clusters))} articles), {len(tasks) - len(asked)} without. "
    f"{len(frozen.index.chunks)} chunks. Recall of a question without evidence: *{refused}*."
)
display(Markdown(text))

# %% [markdown]
# ## What counts as a hit?
#
# Three levels. An **article** is found when one of the first k chunks is cut from it. A **chunk** counts when it overlaps the gold
# span, the sentence that holds the answer. And the **answer's string** is found when the gold answer or an alias of it stands in
# any of the k chunks, wherever that chunk comes from: the cheapest to compute, since it needs no marked spans. Here is the question
# where the first two differ most. Look for the first row whose last column says yes.


# %%
def is_evidence(task, chunk):
    """Whether a chunk overlaps one of the task's gold spans."""
    return any(covers(task, gold, chunk) for gold in task.golds)


def holds_string(task, chunk):
    """Whether the gold answer or an alias stands in a chunk, word for word."""
    return any(contains_answer(chunk.text, answer) for answer in (task.gold_answer, *task.aliases))


def yes(condition):
    """A mark for a table."""
    return "yes" if condition else ""


# %%
place = max(range(len(asked)), key=lambda n: rows["dense"][n]["article_rr"] - rows["dense"][n]["chunk_rr"])
example = asked[place]
gold_articles = {gold.article_id for gold in example.golds}
display(Markdown(f"**{example.task_id}.** {example.question} (*{example.gold_answer}*)"))
table(
    ("rank, dense", "chunk", "gold article", "answer's string", "gold span"),
    *(
        (
            hit.rank,
            f"`{hit.chunk.chunk_id}`",
            yes(hit.chunk.article_id in gold_articles),
            yes(holds_string(example, hit.chunk)),
            yes(is_evidence(example, hit.chunk)),
        )
        for hit in lists["dense"][place][:depth]
    ),
)

# %% [markdown]
# Now all questions. The levels are nested in one direction only: a gold chunk is always cut from a gold article. Look at the
# distance between the columns, and whether all searches keep the same order in each.

# %%
string_hits = {
    name: [float(any(holds_string(task, hit.chunk) for hit in found[:k])) for task, found in zip(asked, lists[name], strict=True)]
    for name in retrievers
}


def at_k(name, metric, cut=k):
    """A metric's value for each question, at one k."""
    return [row["by_k"][cut - 1][metric] for row in rows[name]]


levels = {
    name: {
        "article": mean_with_interval(at_k(name, "article_hit"), seed, clusters),
        "chunk": mean_with_interval(at_k(name, "chunk_hit"), seed, clusters),
        "string": mean_with_interval(string_hits[name], seed, clusters),
    }
    for name in retrievers
}
table(
    (f"hit@{k}, n = {len(asked)}", "article", "gold chunk", "answer's string"),
    *((labels[name], *(spread(one) for one in level.values())) for name, level in levels.items()),
)

# %% [markdown]
# Where do they part? Every combination that occurs, for dense search:

# %%
patterns = list(zip(at_k("dense", "article_hit"), at_k("dense", "chunk_hit"), string_hits["dense"], strict=True))
counted = Counter(patterns)
meaning = {
    (1, 1, 1): "found, and the answer can be read off",
    (1, 1, 0): "a gold chunk, but the answer was cut off, or stands there in other words",
    (1, 0, 1): "the right article, the answer's string in another place of it or elsewhere",
    (1, 0, 0): "the right article, the wrong chunk",
    (0, 0, 1): "another article holds the string: it says the same, or the string is a chance match",
    (0, 0, 0): "nothing",
}
table(
    ("article", "gold chunk", "string", "questions", "what it means"),
    *((*(yes(part) or "–" for part in key), counted[key], text) for key, text in meaning.items() if counted[key]),
)
assert set(counted) <= set(meaning)

# %%
too_kind = counted[1, 0, 0] + counted[1, 0, 1]
apart = {
    "article without chunk": too_kind,
    "string without chunk": counted[1, 0, 1] + counted[0, 0, 1],
    "chunk without string": counted[1, 1, 0],
}
text = (
    f"Counting articles calls {too_kind} of {len(asked)} questions a success whose gold chunk is not there; counting strings "
    f"errs on {apart['string without chunk']} one way and on {apart['chunk without string']} the other."
)
display(Markdown(text))

# %% [markdown]
# The reader gets chunks, so from here on **chunk recall@k** decides: the share of a question's gold spans that the first k
# chunks touch. It is harsh in one way, as the fifth row shows: only one place is marked for each fact.
#
# ## Predict, then measure
#
# **Declared:** chunk recall@k is the primary measure, dense search sits in the chair, and a rival takes it only where the paired
# difference's verdict is *helps*. That needs two bootstrap intervals to exclude zero, over questions and over gold articles, both
# widened so that the family of comparisons keeps 95 % (Bonferroni). Of several rivals that help, the one with the highest mean
# is taken. MRR is looked at beside it, and decides nothing.
#
# **Prediction,** from how these searches work (not blind: the split had been looked at before). Our questions ask for names, numbers
# and dates, and a general embedder blurs those. So:
#
# 1. BM25 helps against dense;
# 2. the hybrid helps against dense, and lies above BM25 in recall *and* in MRR;
# 3. keeping names whole helps BM25;
# 4. by kind of question, BM25's lead is smallest on reasons, which are put in words and not in names.

# %%
cuts = sorted({1, min(3, k), k, depth})
table(
    (f"n = {len(asked)}", *(f"chunk recall@{cut}" for cut in cuts), f"chunk MRR@{k}", f"article recall@{k}"),
    *(
        (
            labels[name],
            *(f"{np.mean(at_k(name, 'chunk_recall', cut)):.3f}" for cut in cuts),
            f"{np.mean(at_k(name, 'chunk_rr')):.3f}",
            f"{np.mean(at_k(name, 'article_recall')):.3f}",
        )
        for name in retrievers
    ),
)

# %% [markdown]
# With intervals, for three of the four. Look where the curves cross:

# %%
shown = ("dense", "names", "hybrid")
curves = {
    name: [mean_with_interval(at_k(name, "chunk_recall", cut), seed, clusters) for cut in range(1, depth + 1)] for name in shown
}

# %% mystnb={"image": {"alt": "Three rising curves of chunk recall against k with vertical interval bars, for dense search, BM25 and the hybrid of both; the dense curve lies lowest, BM25 starts highest, and the hybrid passes it as k grows"}, "figure": {"caption": "Chunk recall@k on the development split, with 95 % BCa intervals over gold articles. Bars that overlap do not mean that two searches are alike: the questions are the same, and the paired differences below decide.", "name": "fig-recall-at-k"}} tags=["hide-input"]
fig, ax = plt.subplots()
for (name, curve), marker, shift in zip(curves.items(), "osD", (-0.1, 0.0, 0.1), strict=True):
    means = np.array([at["mean"] for at in curve])
    low, high = np.array([at["interval"] for at in curve]).T
    bars = [np.maximum(means - low, 0), np.maximum(high - means, 0)]
    ax.errorbar(np.arange(1, depth + 1) + shift, means, bars, marker=marker, capsize=3, label=labels[name])
ax.set_xticks(range(1, depth + 1))
ax.set_xlabel("k, chunks looked at")
ax.set_ylabel("chunk recall@k")
ax.set_ylim(0, 1.03)
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ### Paired differences
#
# Each question against itself. Look first at how many questions either search wins, then at the interval.

# %%
pairs = [("names", "dense"), ("hybrid", "dense"), ("hybrid", "names"), ("names", "plain")]
family = 1 - 0.05 / len(pairs)


def difference(a, b, metric, confidence=0.95):
    """Search a minus search b, paired by question."""
    return paired_difference(at_k(a, metric), at_k(b, metric), seed, clusters, confidence)


def pair(a, b):
    """A comparison's name."""
    return f"{labels[a]} − {labels[b]}"


def verdicts(title, compared):
    """A table of paired differences."""
    table(
        (title, "better", "worse", "equal", "difference", "interval over articles", "verdict"),
        *(
            (name, d.better, d.worse, d.equal, f"{d.delta:+.3f}", between(d.cluster_interval), d.verdict)
            for name, d in compared.items()
        ),
    )


# %%
primary = {pair(a, b): difference(a, b, "chunk_recall", family) for a, b in pairs}
verdicts(f"chunk recall@{k}, {family:.2%} each", primary)

# %% [markdown]
# MRR beside it, with plain 95 % intervals, for looking:

# %%
beside = {pair(a, b): difference(a, b, "chunk_rr") for a, b in pairs}
verdicts(f"chunk MRR@{k}", beside)

# %% mystnb={"image": {"alt": "Two panels of horizontal intervals, one row for each pair of searches, against vertical lines at zero: left the difference in chunk recall, right that in chunk MRR"}, "figure": {"caption": "Differences between searches in points, paired by question, BCa intervals over gold articles; left chunk recall@k with the family at 95 %, right chunk MRR@k, 95 % each. Filled: the interval excludes zero.", "name": "fig-paired-retrieval"}} tags=["hide-input"]
fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.8))
figures.forest(left, [(name, d.delta, *d.cluster_interval) for name, d in primary.items()], "chunk recall, points", unit=100)
figures.forest(right, [("", d.delta, *d.cluster_interval) for d in beside.values()], "chunk MRR, points", unit=100)
plt.show()

# %% [markdown]
# Recall and MRR need not agree about the same two searches, and the ranks say why. Fusion lifts what *both* lists hold. A chunk
# that BM25 alone puts first is pushed down by chunks that both find decent, so it is still there, and lower. Compare the first
# place and *never*.

# %% mystnb={"image": {"alt": "Groups of three bars that count questions by the rank of their first gold chunk, from rank 1 to the deepest rank looked at and a last group for never, for dense search, BM25 and the hybrid"}, "figure": {"caption": "At which rank the first gold chunk stands. The right end counts questions whose evidence is not among the chunks looked at.", "name": "fig-first-rank"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(7.4, 3.2))
names = [*(str(n) for n in range(1, depth + 1)), "never"]
for number, (name, hatch) in enumerate(zip(shown, ("", "//", ".."), strict=True)):
    ranks = Counter("never" if row["chunk_rr"] == 0 else str(round(1 / row["chunk_rr"])) for row in rows[name])
    colour = list(figures.PALETTE.values())[number]
    places = np.arange(len(names)) + 0.28 * (number - 1)
    ax.bar(places, [ranks[n] for n in names], width=0.26, color=colour, hatch=hatch, edgecolor="white", label=labels[name])
ax.set_xticks(range(len(names)), names)
ax.set_xlabel("rank of the first gold chunk")
ax.set_ylabel("questions")
ax.grid(axis="x", visible=False)
ax.legend()
plt.show()

# %% [markdown]
# ### What only one of them finds
#
# The questions whose gold chunk is among the first k of one search and not of the other. For each, the rarest word that the
# question shares with its evidence, and in how many chunks it stands: BM25 has nothing else to go by.

# %%
words_of = {chunk.chunk_id: set(tokenize(chunk.text)) for chunk in frozen.index.chunks}
spread_of = Counter(word for words in words_of.values() for word in words)


def shared_words(task):
    """The question's words, and those of them that stand in a gold chunk, rarest first."""
    wanted = set(tokenize(task.question))
    evidence = set().union(*(words_of[chunk.chunk_id] for chunk in frozen.index.chunks if is_evidence(task, chunk)))
    return wanted, sorted(wanted & evidence, key=lambda word: (spread_of[word], word))


def rank_of(name, n):
    """The rank of the first gold chunk among the candidates, in words."""
    return next((str(hit.rank) for hit in lists[name][n] if is_evidence(asked[n], hit.chunk)), "–")


def only(winner, loser):
    """Places of the questions whose gold chunk one search finds within k and the other does not."""
    return [n for n, (a, b) in enumerate(zip(at_k(winner, "chunk_hit"), at_k(loser, "chunk_hit"), strict=True)) if a > b]


# %% tags=["hide-input"]
def listed(winner, loser):
    """Show the questions that only one search finds, with a word on why."""
    places = only(winner, loser)
    display(Markdown(f"**{len(places)} found by {labels[winner]} alone** (against {labels[loser]}, within k = {k}):"))
    lines = []
    for n in places:
        wanted, shared = shared_words(asked[n])
        why = f"{shared[0]} ({spread_of[shared[0]]})" if shared else "none"
        question = asked[n].question.replace("|", "/")
        lines.append(
            (
                asked[n].task_id,
                question,
                asked[n].kind,
                rank_of(winner, n),
                rank_of(loser, n),
                why,
                f"{len(shared)}/{len(wanted)}",
            )
        )
    if lines:
        table(
            (
                "item",
                "question",
                "kind",
                f"rank, {labels[winner]}",
                f"rank, {labels[loser]}",
                "rarest shared word (chunks)",
                "words shared",
            ),
            *lines,
        )


# %%
listed("names", "dense")

# %%
listed("dense", "names")

# %% [markdown]
# The same as a count: how rare the rarest shared word is (median number of chunks that hold it), and which share of the question's
# words its evidence repeats. The last row is the yardstick, all questions.


# %%
def wording(places):
    """Of some questions: how many, the median spread of their rarest shared word, the mean share of words shared."""
    both = [shared_words(asked[n]) for n in places]
    rarest = [spread_of[shared[0]] if shared else len(words_of) for _, shared in both]
    return len(both), f"{np.median(rarest):g}", f"{np.mean([len(shared) / len(wanted) for wanted, shared in both]):.2f}"


groups = {"BM25 alone": only("names", "dense"), "dense alone": only("dense", "names"), "all": list(range(len(asked)))}
table(
    ("found by", "questions", "chunks that hold the rarest shared word", "share of words shared"),
    *((name, *wording(places)) for name, places in groups.items() if places),
)

# %% [markdown]
# And by kind of question. With so few of each, look for a pattern and not for a winner:

# %%
kinds = sorted({task.kind for task in asked})


def of_kind(name, kind):
    """Mean chunk recall@k over the questions of one kind."""
    return float(np.mean([value for value, task in zip(at_k(name, "chunk_recall"), asked, strict=True) if task.kind == kind]))


by_kind = {kind: {name: of_kind(name, kind) for name in retrievers} for kind in kinds}
table(
    (f"chunk recall@{k}", "n", *labels.values(), "BM25, names − dense"),
    *(
        (kind, sum(task.kind == kind for task in asked), *(f"{v:.3f}" for v in by.values()), f"{by['names'] - by['dense']:+.3f}")
        for kind, by in by_kind.items()
    ),
)

# %%
lead = {kind: by["names"] - by["dense"] for kind, by in by_kind.items()}
over_bm25 = [compared[pair("hybrid", "names")].delta > 0 for compared in (primary, beside)]
outcomes = {
    "1. BM25 helps against dense": primary[pair("names", "dense")].verdict == "helps",
    "2. the hybrid helps against dense": primary[pair("hybrid", "dense")].verdict == "helps",
    "2. and lies above BM25 in recall": over_bm25[0],
    "2. and in MRR": over_bm25[1],
    "3. keeping names whole helps BM25": primary[pair("names", "plain")].verdict == "helps",
    "4. BM25's lead is smallest on reasons": "reason" in lead and lead["reason"] == min(lead.values()),
}
table(("prediction", "outcome"), *((name, "held" if held else "**failed**") for name, held in outcomes.items()))

# %% [markdown]
# The rule that was declared now names the search that the rest of the chapter works with:

# %%
helpful = [name for name in ("names", "hybrid") if primary[pair(name, "dense")].verdict == "helps"]
winner = max(helpful, key=lambda name: np.mean(at_k(name, "chunk_recall")), default="dense")
display(Markdown(f"Helping against dense: {', '.join(labels[name] for name in helpful) or 'none'}. **Taken: {labels[winner]}.**"))

# %% [markdown]
# ### What it costs
#
# Searching only, the question's embedding excluded (dense and hybrid need it, BM25 does not), one question at a time, the shortest of
# three passes. Look at the ratios: milliseconds are of this machine on this day.


# %%
def milliseconds(name):
    """The shortest mean time of a question in three passes."""
    some = [(task.question, frozen.vectors[frozen.tasks.index(task)]) for task in asked[:40]]
    passes = []
    for _ in range(3):
        started = time.perf_counter()
        for question, vector in some:
            retrievers[name].search(question, vector, k)
        passes.append(time.perf_counter() - started)
    return 1000 * min(passes) / len(some)


# %%
ms = {name: milliseconds(name) for name in retrievers}
write_timings("04_retrieval_metrics", {"ms": ms, "over_dense": {name: ms[name] / ms["dense"] for name in ms}}, profile, artifacts)
quoted = {
    name: [quote_metric(f"04_retrieval_metrics.timings:{key}.{name}:.2f", profile, artifacts) for key in ("ms", "over_dense")]
    for name in ms
}
table(("search", "ms a question", "times dense"), *((labels[name], *values) for name, values in quoted.items()))

# %% [markdown]
# ## A filter, or a larger k?
#
# Someone who asks what happened lately may want to search what was published lately. The filter can stand **before** the search, so
# that the k best of what is left come back, or **after** it, so that some of the k are thrown away. Or it can be left out, and
# more chunks be read. First the date: questions about recent events, and only chunks that were published since a given year.

# %%
recent = [task for task in asked if task.kind == "recency"]
where_recent = {"published_at": (">=", since)}


def recall_of(some, found):
    """Chunk recall of each task over all of its hits."""
    return [
        len({gold for gold in task.golds if any(covers(task, gold, hit.chunk) for hit in one)}) / len(set(task.golds))
        for task, one in zip(some, found, strict=True)
    ]


def ways_to_filter(some, filtered, keeps):
    """Chunk recall and chunks read: k, k after and before a filter, and larger k without one."""
    wide = search(winner, some, 4 * k)
    after = [[hit for hit in one[:k] if keeps(task, hit.chunk)] for task, one in zip(some, wide, strict=True)]
    given = {
        f"no filter, k = {k}": [one[:k] for one in wide],
        f"k = {k}, then the filter": after,
        f"the filter, then k = {k}": filtered,
    }
    given |= {f"no filter, k = {many}": [one[:many] for one in wide] for many in (2 * k, 4 * k)}
    return {name: (recall_of(some, one), float(np.mean([len(found) for found in one]))) for name, one in given.items()}


def show_ways(title, some, ways):
    """A table of ways, each against no filter at k."""
    base = ways[f"no filter, k = {k}"][0]
    owners = [task.golds[0].article_id for task in some]
    lines = []
    for name, (values, read) in ways.items():
        d = paired_difference(values, base, seed, owners)
        lines.append((name, f"{np.mean(values):.3f}", f"{read:.1f}", d.better, d.worse, between(d.cluster_interval), d.verdict))
    table((title, "chunk recall", "chunks read", "better", "worse", "difference to the first", "verdict"), *lines)


# %%
dates = {chunk.article_id: chunk.published_at for chunk in frozen.index.chunks}
kept_out = {task.task_id for task in recent for gold in task.golds if (dates[gold.article_id] or "") < since}
undated = sum(chunk.published_at is None for chunk in frozen.index.chunks)
dated = {}
if recent:
    dated = ways_to_filter(recent, search(winner, recent, k, where_recent), lambda _, chunk: (chunk.published_at or "") >= since)
    show_ways(f"{len(recent)} recency questions, since {since}", recent, dated)

# %%
text = (
    f"{undated} of {len(frozen.index.chunks)} chunks carry no date, so no date filter ever returns them. It shuts out the "
    f"evidence of {len(kept_out)} of the {len(recent)} questions{': ' + ', '.join(sorted(kept_out)) if kept_out else ''}. No k brings that back."
)
display(Markdown(text))

# %% [markdown]
# Then the best filter that one could wish for: somebody knows the *source*, and it is the right one. That is an upper bound,
# not a method. Small sources leave few chunks, so that nearly all of them fit into k.

# %%
source_of = {chunk.article_id: chunk.source for chunk in frozen.index.chunks}
sourced = [task for task in asked if all(source_of[gold.article_id] for gold in task.golds)]
wanted_sources = [sorted({source_of[gold.article_id] for gold in task.golds}) for task in sourced]
known = [search(winner, [task], k, {"source": names})[0] for task, names in zip(sourced, wanted_sources, strict=True)]
sources_of_task = {task.task_id: names for task, names in zip(sourced, wanted_sources, strict=True)}
by_source = {}
if sourced:
    by_source = ways_to_filter(sourced, known, lambda task, chunk: chunk.source in sources_of_task[task.task_id])
    show_ways(f"{len(sourced)} questions, the source known", sourced, by_source)

# %% [markdown]
# A filter after the search can only lose. A filter before it costs no prompt tokens and wins where it narrows much and is right; a
# larger k costs tokens in proportion and is never wrong. Where a field is missing in part of the corpus, as dates are here, that
# difference decides.
#
# ## A reranker
#
# Rerank scores question and chunk together, for the first candidates of a cheap search, and keeps the best k. What it can reach is
# bounded by what the candidates hold, so look at that bound before its cost.

# %%
bound = {name: recall_of(asked, [found[:candidates] for found in lists[name]]) for name in shown}
table(
    (f"n = {len(asked)}", f"chunk recall@{k} now", f"chunk recall@{candidates}: the bound", "questions that rerank could win"),
    *(
        (
            labels[name],
            f"{np.mean(at_k(name, 'chunk_recall')):.3f}",
            f"{np.mean(bound[name]):.3f}",
            sum(a > b for a, b in zip(bound[name], at_k(name, "chunk_recall"), strict=True)),
        )
        for name in shown
    ),
)

# %% [markdown]
# Is it reached? The grades were made apart from this notebook (`python benchmarks/rerank.py`, the first questions of the development
# split in the order of their ids' hashes), since a reader that grades fifty pairs a question takes minutes where a search takes
# milliseconds. They count only for the index that they were made on.


# %%
class StoredGrades:
    """A reranker whose scores were computed before: looked up by question and text."""

    def __init__(self, grades):
        texts = {chunk.chunk_id: chunk.text for chunk in frozen.index.chunks}
        self.questions = {task_of[key].question: {texts[c]: g for c, g in by.items()} for key, by in grades.items()}

    def scores(self, question, texts):
        return [self.questions[question][text] for text in texts]


try:
    stored = read_metric("rerank:grades", profile, artifacts)
    fits = read_metric("rerank:index", profile, artifacts) == frozen.index.manifest["key"]
    wide = read_metric("rerank:candidates", profile, artifacts)
    scorer = read_metric("rerank:reranker.model", profile, artifacts)
except InputError:
    stored, fits, wide, scorer = {}, False, candidates, None
graded = [n for n, task in enumerate(asked) if fits and task.task_id in stored]


# %%
def reranked(name):
    """Rows of the graded questions before and after rerank."""
    some, reranker = [asked[n] for n in graded], StoredGrades({asked[n].task_id: stored[asked[n].task_id] for n in graded})
    before = [lists[name][n][:wide] for n in graded]
    after = [rerank(task.question, found, reranker, k, wide).hits for task, found in zip(some, before, strict=True)]
    return retrieval_rows(some, before, k), retrieval_rows(some, after, k)


rerank_differences = {}
for name in shown if graded else ():
    before, after = reranked(name)
    owners = [row["cluster"] for row in before]
    for metric, title in (("chunk_recall", f"chunk recall@{k}"), ("chunk_rr", f"chunk MRR@{k}")):
        d = paired_difference([row[metric] for row in after], [row[metric] for row in before], seed, owners)
        rerank_differences[f"{labels[name]}, {title}"] = d

# %%
if rerank_differences:
    verdicts(f"{scorer} reranks {wide}, n = {len(graded)}: with − without", rerank_differences)
    different = np.mean([len({g for g in stored[asked[n].task_id].values() if g is not None}) for n in graded])
    cost = quote_metric("rerank.timings:mean_ms:.0f", profile, artifacts)
    text = (
        f"It uses {different:.1f} different grades a question on average; equal grades keep the former order. Grading {wide} chunks "
        f"takes {cost} ms a question, beside {quoted[winner][0]} ms for the search."
    )
    display(Markdown(text))
else:
    display(
        Markdown("**Not measured yet on this index**: `python benchmarks/rerank.py` writes the grades. The bound above stands.")
    )

# %% [markdown]
# ## Is the benchmark valid?
#
# **The ceiling.** A rival can only win questions that the sitting search misses. If it won every one of them and lost none, the
# exact McNemar test ({doc}`/book/labs/05_paired_eval`) would need a certain number of them to speak at 5 %. With fewer misses
# not even a perfect retriever could be shown to be better.

# %%
needed = next(gains for gains in range(1, 50) if mcnemar_exact(gains, 0) <= 0.05)
misses = {name: [sum(value < 1 for value in at_k(name, "chunk_recall", cut)) for cut in range(1, depth + 1)] for name in shown}
ceiling = {name: next((cut for cut, missed in enumerate(counts, 1) if missed < needed), None) for name, counts in misses.items()}
table(
    (f"at least {needed} misses needed", f"misses at k = {k}", f"at k = {depth}", "at its ceiling"),
    *(
        (labels[name], counts[k - 1], counts[-1], f"from k = {ceiling[name]} on" if ceiling[name] else f"not up to k = {depth}")
        for name, counts in misses.items()
    ),
)

# %% [markdown]
# **The number of questions.** The smallest true difference in hit@k that a comparison of n questions finds with 80 % power, if two
# searches disagree on as many questions as these do. Questions about one article succeed and fail together, so n of them are worth
# less; the intraclass correlation (ICC) of the differences says how much. The columns count the clustering in.

# %%
test_n = sum(task.answerable for task in frozen.select("test"))  # counted, not searched
per_article = len(asked) / len(set(clusters))
sizes = sorted({len(asked), test_n, 200, 400, 800})


def power(a, b):
    """Share of questions on which two searches disagree, ICC, observed difference, and what n questions can detect."""
    differences = np.array(at_k(a, "chunk_hit")) - np.array(at_k(b, "chunk_hit"))
    disagree = float(np.mean(differences != 0))
    icc = intraclass_correlation(list(differences), clusters) if len(set(clusters)) > 1 else 0.0
    effects = [minimum_detectable_effect_clustered(n, disagree, per_article, icc) if disagree and n else None for n in sizes]
    return {"disagree": disagree, "icc": icc, "observed": float(differences.mean()), "detectable": effects}


def points(effect):
    """A detectable difference in points, rounded up."""
    return "none" if effect is None else f"{math.ceil(100 * effect - 1e-9)}"


# %%
powers = {pair(a, b): power(a, b) for a, b in pairs}
table(
    (f"hit@{k}, points", "disagree on", "ICC", "observed", *(f"n = {n}" for n in sizes)),
    *(
        (name, f"{p['disagree']:.0%}", f"{p['icc']:.2f}", f"{100 * p['observed']:+.1f}", *map(points, p["detectable"]))
        for name, p in powers.items()
    ),
)


# %%
def questions_needed(p):
    """The first of some numbers of independent questions at which the observed difference would be found, or None."""
    tried = (50, 100, 150, 200, 300, 400, 600, 800, 1200, 1600)
    effects = ((n, minimum_detectable_effect(n, p["disagree"])) for n in tried) if p["disagree"] else ()
    return next((n for n, effect in effects if effect is not None and effect <= abs(p["observed"])), None)


enough_questions = {name: questions_needed(p) for name, p in powers.items()}
text = "; ".join(f"{name}: {n if n else 'more than were tried'}" for name, n in enough_questions.items())
display(Markdown(f"If the observed differences were the true ones, so many independent questions would show them: {text}."))

# %% [markdown]
# **Three more doubts.** The questions were written with the articles at hand and then reworded away from them
# ({doc}`/book/labs/10_data_statement` measures how far), so a stranger's questions may share more words, or fewer. One gold span is
# marked for each fact, so another chunk that says the same counts as a miss. And a small corpus has few near misses: recall at this
# k will be lower on a larger one.
#
# ### Does the same code reproduce published figures?
#
# The same metrics on collections of others, held against figures that others published. Look at the last column.

# %%
try:
    published = [
        (f"{row['set']}, {row['method']}", row["measure"], row["published"], row["got"], row["passed"])
        for row in read_metric("reproduced:rows", "cpu", artifacts)
    ]
except InputError:
    try:
        checked = read_metric("verify_scifact:figures", "cpu", artifacts)
        published = [("scifact, dense", name, v["expected"], v["got"], v["passed"]) for name, v in checked.items()]
    except InputError:
        published = []
        display(Markdown("**Not measured yet on this machine** (`ragkit reproduce --data FOLDER`)."))
if published:
    table(
        ("collection and search", "measure", "published", "got", "within tolerance"),
        *(
            (name, what, f"{value:.4f}", f"{got:.4f}", "yes" if passed else "**no**")
            for name, what, value, got, passed in published
        ),
    )

# %% [markdown]
# ## The decision
#
# Which search, by the declared rule; and how many chunks. A larger k can only raise recall, so recall alone never says stop: what
# stops it is the prompt. Look at how many questions a further chunk wins, up to what the reader's budget holds.

# %%
room = max(
    1, chosen_profile.reader.context_tokens // chosen_profile.chunking.size
)  # whole chunks, counted in the embedder's tokens
found_at = [sum(value == 1 for value in at_k(winner, "chunk_recall", cut)) for cut in range(1, depth + 1)]
table(("k", *range(1, depth + 1)), ("questions with all evidence", *found_at))

# %%
rivals = [name for name in shown if name != winner]
against = {name: difference(winner, name, "chunk_recall", family) for name in rivals}
decision = f"{labels[winner]}, k = {k}"
at_room = min(room, depth)
text = (
    f"**{decision}.** "
    + " ".join(
        f"Against {labels[name]}: {d.delta:+.3f} ({between(d.cluster_interval)}), **{d.verdict}**." for name, d in against.items()
    )
    + f" The prompt's budget holds about {room} chunks; k = {at_room} would find {found_at[at_room - 1] - found_at[k - 1]:+d} "
    f"questions, k = {depth} {found_at[-1] - found_at[k - 1]:+d}. Whether the reader profits from longer prompts is for its own experiment."
)
display(Markdown(text))

# %% [markdown]
# **What would confirm it.** One comparison, of one measure, on questions that nobody has looked at: the chosen search minus dense,
# chunk recall@k on the frozen test split, plain 95 % intervals, since it is a single test. It was run for the first time after
# the choice had been committed; what it says is printed whatever it is, and nothing in this book is chosen by it afterwards.

# %%
test_power = power(winner, "dense") if winner != "dense" else None
can = test_power and test_power["detectable"][sizes.index(test_n)]
text = f"The test split has {test_n} questions with evidence. " + (
    f"It can detect a difference of {points(can)} points in hit@{k}; {100 * test_power['observed']:+.1f} were observed here."
    if test_power
    else "Dense search stays, so there is nothing to confirm."
)
display(Markdown(text))


# %%
def held_out(split):
    """The chosen search minus dense on another split: chunk recall@k, paired by question."""
    others = [task for task in frozen.select(split, limit) if task.golds]
    a, b = (retrieval_rows(others, search(name, others, k), k) for name in (winner, "dense"))
    return paired_difference([r["chunk_recall"] for r in a], [r["chunk_recall"] for r in b], seed, [r["cluster"] for r in a])


confirmed = held_out("test") if confirm and winner != "dense" else None
if confirmed:
    verdicts(f"test split, n = {confirmed.n}, chunk recall@{k}", {pair(winner, "dense"): confirmed})
else:
    display(Markdown("**Not confirmed here:** the test split was not searched in this run."))

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
turned = retrieval_rows(asked, [found[:k][::-1] for found in lists[winner]], k)
assert [row["chunk_recall"] for row in turned] == at_k(winner, "chunk_recall")
text = (
    f"Recall@{k} stays at {np.mean(at_k(winner, 'chunk_recall')):.3f}, since the set is the same; MRR@{k} goes from "
    f"{np.mean(at_k(winner, 'chunk_rr')):.3f} to {np.mean([row['chunk_rr'] for row in turned]):.3f}."
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
    np.mean([any(holds_whole(gold, hit.chunk) for hit in found[:k]) for gold in set(task.golds)])
    for task, found in zip(asked, lists[winner], strict=True)
]
text = f"Chunk recall@{k}: {np.mean(at_k(winner, 'chunk_recall')):.3f} by overlap, {np.mean(strict):.3f} by the whole span."
display(Markdown(text))

# %% [markdown]
# ```{admonition} 3. By chance
# :class: tip
# What would chunk hit@k be if the chunks were drawn at random? Work it out without drawing: g chunks of N hold the evidence.
# ```

# %% tags=["hide-input", "hide-output"]
total = len(frozen.index.chunks)
holding = [sum(is_evidence(task, chunk) for chunk in frozen.index.chunks) for task in asked]
chance = float(np.mean([1 - math.comb(total - g, k) / math.comb(total, k) for g in holding]))
text = f"A hit by chance: 1 − C(N − g, k) / C(N, k), on average **{chance:.3f}** with N = {total} and k = {k}."
display(Markdown(text))

# %% [markdown]
# ## Recap
#
# 1. We worked out seven metrics by hand on five documents, and walked into two traps: a double match, and grades that mean the
#    opposite.
# 2. We counted the same hits as articles, as chunks and as strings, and saw how far the three differ.
# 3. We compared dense search, two BM25s and their hybrid, question by question, and listed what only one of them finds.
# 4. We held a filter against a larger k, and looked at what a reranker could add.
# 5. We asked what this benchmark can tell apart, and decided.


# %% tags=["hide-input"]
def plain(d):
    """A paired difference as plain data."""
    return {
        "n": d.n, "delta": d.delta, "better": d.better, "worse": d.worse, "interval": list(d.interval),
        "cluster_interval": list(d.cluster_interval), "verdict": d.verdict,
    }  # fmt: skip


def ways_plain(ways):
    """Ways to filter as plain data."""
    return {name: {"chunk_recall": float(np.mean(values)), "chunks_read": read} for name, (values, read) in ways.items()}


# %%
METRICS = ("article_recall", "article_rr", "chunk_recall", "chunk_rr")
path = write_metrics("04_retrieval_metrics", {
    "k": k, "n": len(asked), "unanswerable": len(tasks) - len(asked), "chunks": total, "clusters": len(set(clusters)),
    "chosen": winner, "decision": decision, "recall_at_k": np.mean(at_k(winner, "article_recall")),
    "mrr": np.mean(at_k(winner, "article_rr")),
    "retrievers": {
        name: {m: mean_with_interval(at_k(name, m), seed, clusters) for m in METRICS} | {"hit": levels[name]} for name in retrievers
    },
    "chunk_recall_by_k": curves, "by_kind": by_kind, "levels_apart": apart,
    "confidence": family, "recall_differences": {name: plain(d) for name, d in primary.items()},
    "mrr_differences": {name: plain(d) for name, d in beside.items()},
    "only_bm25": [asked[n].task_id for n in groups["BM25 alone"]], "only_dense": [asked[n].task_id for n in groups["dense alone"]],
    "filter_date": ways_plain(dated), "filter_source": ways_plain(by_source), "undated_chunks": undated, "kept_out": sorted(kept_out),
    "rerank_bound": {name: np.mean(values) for name, values in bound.items()}, "rerank_n": len(graded),
    "rerank": {name: plain(d) for name, d in rerank_differences.items()},
    "needed_misses": needed, "misses": misses, "ceiling_from": ceiling, "power": powers, "power_n": sizes,
    "questions_needed": enough_questions, "test_n": test_n, "found_at": found_at, "chance_hit_at_k": chance,
    "predictions": outcomes, "confirmed": plain(confirmed) if confirmed else None,
}, profile, artifacts)  # fmt: skip

# %%
show_receipt(profile, data=[chosen_profile.evaluation.tasks, chosen_profile.evaluation.snapshot])
