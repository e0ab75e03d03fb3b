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
# # The index: is the nearest chunk really the nearest?
#
# **Claim.** An index for an experiment is a frozen thing: vectors normalised once, searched exactly, named after what it was built
# from. Then a miss is a fact about embedding or chunking, never about the search, and two runs that name the same index looked at
# the same data.
#
# **Its limit.** Exact search reads every vector for every question. That is cheap here and will not be everywhere; where it stops
# being cheap is computed below from an assumed memory speed. Approximate indexes are described, not measured.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | the cosine of two vectors; the frozen index (`make rerun` writes it) |
# | helpful | {doc}`/book/labs/00_start_here`, {doc}`/book/labs/01_chunking` |
# | time and memory | under a minute on an idle machine; the embedder is opened for three short articles (the receipt has the figures) |
# | writes | `artifacts/PROFILE/metrics/03_lancedb_index.json`, and timings apart from it |

# %% [markdown]
# In this notebook we
#
# 1. rank two vectors by hand, and see how a default setting ranks them the other way round;
# 2. hold our search against numpy and against LanceDB's own, on every question there is;
# 3. walk into four traps of a vector table, and see what the package says instead;
# 4. try to change an index, and fail;
# 5. decide whether an approximate index is called for.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
k: int = 5  # hits of each question
since: str = "2025"  # the date filter keeps what was published then or later
bandwidth_gb_s: float = 10.0  # assumed speed at which one core reads memory; decides where exact search gets slow
patience_ms: float = 50.0  # what a search may take before somebody waits

# %%
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import lancedb
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from IPython.display import Markdown, display

from ragkit.corpus import chunk_article, gold_chunk, read_snapshot, snapshot_digest
from ragkit.errors import RagkitError
from ragkit.lab import figures, quote_metric, show_receipt, write_metrics, write_timings
from ragkit.models import open_embedder
from ragkit.profile import load_profile, resolve
from ragkit.retrieval import build_index, open_frozen

figures.use_book_style()


# %% tags=["hide-input"]
def table(*rows):
    """Show rows as a Markdown table; the first is the head."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    display(Markdown("\n".join([head, "|" + "---|" * len(rows[0]), *body])))


def said(action):
    """What happens: the result, or the first line of the error."""
    try:
        return repr(action())
    except (RagkitError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


# %%
evaluation = load_profile(profile).evaluation
frozen = open_frozen(profile, artifacts)
index, vectors = frozen.index, frozen.vectors

# %% [markdown]
# ## By hand: two vectors and a question
#
# The question is $q = (3, 4)$. One chunk points up, $(0, 8)$, the other to the right, $(3, 0)$. Which is nearer? By {eq}`eq-cosine`
# the lengths are divided out, by {eq}`eq-normalise` once and for all.

# %%
q, far, near = np.array([3.0, 4.0]), np.array([0.0, 8.0]), np.array([3.0, 0.0])
cosine = {"far": float(q @ far / (5 * 8)), "near": float(q @ near / (5 * 3))}
distance = {"far": float(np.linalg.norm(q - far)), "near": float(np.linalg.norm(q - near))}
assert cosine == {"far": 0.8, "near": 0.6}
assert distance == {"far": 5.0, "near": 4.0}

# %% [markdown]
# By cosine *far* wins, by distance *near* does. Now the same two vectors in a LanceDB table, asked without a word about the metric
# and asked for the cosine:

# %%
folder = Path(tempfile.mkdtemp(prefix="ragkit-"))
flat = pa.FixedSizeListArray.from_arrays(pa.array(np.array([far, near], dtype=np.float32).reshape(-1)), 2)
toy = lancedb.connect(str(folder / "toy")).create_table("toy", pa.table({"name": ["far", "near"], "vector": flat}))
by_default = [row["name"] for row in toy.search(q).limit(2).to_list()]
by_cosine = [row["name"] for row in toy.search(q).distance_type("cosine").limit(2).to_list()]
assert by_default == ["near", "far"]
assert by_cosine == ["far", "near"]
display(Markdown(f"Default: {' before '.join(by_default)}. Cosine: {' before '.join(by_cosine)}."))

# %% [markdown]
# ## Build: what is frozen
#
# An index is named by its **key**, the first 24 digits of a SHA-256 over everything that its vectors depend on. Look for what is
# *not* here: a date, a machine, a file's name.

# %%
manifest = index.manifest
shown = ("key", "chunks_digest", "snapshot", "chunks", "dimension", "format", "truncate")
table(("entry", "value"), *((name, f"`{manifest[name]}`") for name in shown))

# %%
identity = manifest["embedder"].items()
table(("the embedder's identity", "value"), *((name, "none" if value == "" else f"`{value}`") for name, value in identity))

# %% [markdown]
# Vectors are normalised once, when the index is built, so that a query is one matrix product. Look at the largest deviation of a
# length from 1; the array refuses to be written to.

# %%
lengths = np.linalg.norm(index.vectors.astype(np.float64), axis=1)
off = float(np.abs(lengths - 1).max())
text = (
    f"{len(index)} × {index.dimension} numbers, every length within 1e-6 of 1: **{off < 1e-6}**. "
    f"Writable: **{index.vectors.flags.writeable}**."
)
display(Markdown(text))

# %% [markdown]
# ## Predict, then measure: three searches, one answer
#
# **Prediction:** on every question of the frozen tasks, our search ({eq}`eq-topk`), a plain sort of the cosines in numpy, and
# LanceDB's own flat search give the same chunks in the same order. (All splits: only vectors are compared, nobody's answer is
# looked at.)

# %%
unit = index.vectors.astype(np.float64)
queries = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
scores = queries @ unit.T / np.linalg.norm(unit, axis=1)
ids = [chunk.chunk_id for chunk in index.chunks]
by_numpy = [[ids[place] for place in np.argsort(-row, kind="stable")[:k]] for row in scores]

# %%
ours = index.search_many(vectors, k)
by_ragkit = [[hit.chunk.chunk_id for hit in hits] for hits in ours]
raw = lancedb.connect(str(index.folder)).open_table("chunks")
found = [raw.search(vector).distance_type("cosine").limit(k).to_list() for vector in vectors]
by_lancedb = [[row["chunk_id"] for row in rows] for rows in found]

# %% [markdown]
# A cosine distance is $1 - \cos$, so the numbers must agree as well, to the rounding of 32-bit arithmetic.

# %%
n = len(vectors)
agree = {
    "numpy": sum(a == b for a, b in zip(by_ragkit, by_numpy, strict=True)),
    "LanceDB": sum(a == b for a, b in zip(by_ragkit, by_lancedb, strict=True)),
}
pairs = [
    (hit.cosine, 1 - row["_distance"])
    for hits, rows in zip(ours, found, strict=True)
    for hit, row in zip(hits, rows, strict=True)
]
gap = max(abs(a - b) for a, b in pairs)
table(("against", f"same top {k}, same order", "questions"), *((name, count, n) for name, count in agree.items()))

# %%
exact = all(count == n for count in agree.values()) and gap < 1e-5
display(Markdown(f"Cosines differ by less than 0.00001: **{gap < 1e-5}**. Prediction: **{'held' if exact else 'failed'}**."))

# %% [markdown]
# Why search by ourselves at all, if the answers are the same? Because a filterless question through the database pays for
# planning, Arrow and Python each time. The times of this run are kept apart from its results, since no two runs have the same.


# %% tags=["hide-input"]
def seconds(action, repeats=5):
    """The shortest time of an action: what else the machine does can only add to it."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return min(taken)


some = vectors[:30]
one_by_one = seconds(lambda: [index.search(vector, k) for vector in some]) / len(some)
together = seconds(lambda: index.search_many(some, k)) / len(some)
flat_search = seconds(lambda: [raw.search(v).distance_type("cosine").limit(k).to_list() for v in some], repeats=3) / len(some)

# %%
timings = {
    "lancedb_over_ragkit": flat_search / one_by_one, "one_by_one_over_batch": one_by_one / together,
    "milliseconds_one": 1000 * one_by_one, "milliseconds_lancedb": 1000 * flat_search,
}  # fmt: skip
write_timings("03_lancedb_index", timings, profile, artifacts)
ratio = quote_metric("03_lancedb_index.timings:lancedb_over_ragkit:.0f", profile, artifacts)
batch = quote_metric("03_lancedb_index.timings:one_by_one_over_batch:.1f", profile, artifacts)
display(Markdown(f"A question through LanceDB takes **{ratio} times** as long as ours, one alone {batch} times one of a batch."))

# %% [markdown]
# ## Four traps
#
# The default metric was the first. Look at what each of the others returns, and at what the package raises in its place.

# %%
zero, longer, sick = np.zeros(index.dimension), np.ones(index.dimension + 1), np.full(index.dimension, np.nan)


def raw_count(vector):
    """How many rows the raw table returns."""
    return len(raw.search(vector).distance_type("cosine").limit(k).to_list())


traps = {"a zero vector": zero, "a vector with NaN": sick, "a wrong dimension": longer}

# %%
table(
    ("asked with", "rows from the raw table, or its error", "ragkit"),
    *((name, said(lambda v=v: raw_count(v)), said(lambda v=v: index.search(v, k))) for name, v in traps.items()),
)

# %% [markdown]
# A zero vector has no direction, so the raw table returns nothing and says nothing: a crashed embedder looks like a corpus without
# an answer. The fourth trap is the number of rows that one gets without asking:

# %%
unasked = len(raw.search(vectors[0]).distance_type("cosine").to_list())
display(Markdown(f"Without a limit: **{unasked} of {len(index)}** rows."))

# %% [markdown]
# ## Filters come before the search
#
# "What did this source say?" can be asked in two ways: search among its chunks, or search among all and throw the others away. Look
# at how few hits the second way leaves of the k that were wanted.

# %%
source = Counter(chunk.source for chunk in index.chunks if chunk.source).most_common(1)[0][0]
filters = {f"source = {source}": {"source": source}, f"published {since} or later": {"published_at": (">=", since)}}


def passes(where, chunk):
    """The filter in plain Python, to check the database by."""
    if "source" in where:
        return chunk.source == where["source"]
    return chunk.published_at is not None and chunk.published_at[: len(since)] >= since


# %%
everything = index.search_many(vectors, len(index))
filtered = {}
for name, where in filters.items():
    first = index.search_many(vectors, k, where=where)
    after = [[hit.chunk for hit in hits if passes(where, hit.chunk)] for hits in everything]
    ranks = [max(hit.rank for hit in hits if hit.chunk in kept[:k]) for hits, kept in zip(everything, after, strict=True)]
    filtered[name] = {
        "chunks": sum(passes(where, chunk) for chunk in index.chunks),
        "same": sum([hit.chunk for hit in a] == b[:k] for a, b in zip(first, after, strict=True)),
        "left": float(np.mean([sum(passes(where, hit.chunk) for hit in hits[:k]) for hits in everything])),
        "empty": sum(not any(passes(where, hit.chunk) for hit in hits[:k]) for hits in everything),
        "depth": max(ranks),
    }

# %%
table(
    ("filter", "chunks that pass", f"mean left of {k}", "questions with none left", f"k that leaves {k} for all", "questions with equal lists"),
    *(
        (name, f["chunks"], f"{f['left']:.1f}", f"{f['empty']} of {n}", f["depth"], f"{f['same']} of {n}")
        for name, f in filtered.items()
    ),
)  # fmt: skip

# %% [markdown]
# The last column holds filtering first against filtering a list as long as the whole index: how many questions get the same chunks
# in the same order.
# Values are quoted for the database, so that a title with a quotation mark is a value and not a command:

# %%
hostile = "x' OR '1'='1"
display(Markdown(f"`{hostile}`: {len(index.search(vectors[0], k, where={'title': hostile}))} hits."))

# %% [markdown]
# ## Immutable: try to change it
#
# Three short articles are enough. An embedder that counts what it is asked to embed shows when work is done.


# %%
class Counting:
    """An embedder that counts its texts."""

    def __init__(self, embedder):
        self.inner, self.texts = embedder, 0
        self.identity, self.dimension = embedder.identity, embedder.dimension

    def encode_passages(self, texts, truncate=False):
        """Pass on, and count."""
        self.texts += len(texts)
        return self.inner.encode_passages(texts, truncate=truncate)


embedder = open_embedder(profile, progress=False)
counting = Counting(embedder)

# %%
articles = read_snapshot(resolve(evaluation.snapshot)).articles
three = sorted(articles, key=lambda article: len(article.text))[:3]


def build(some):
    """The index of some articles, and how many texts were embedded for it."""
    before = counting.texts
    chunks = [chunk for article in some for chunk in chunk_article(article, embedder.tokenizer)]
    built = build_index(chunks, counting, folder / "index", {"snapshot": snapshot_digest(some)})
    return built, counting.texts - before


def fingerprint(built):
    """Name and content of every file of an index."""
    return {path.name: path.read_bytes() for path in built.folder.rglob("*") if path.is_file()}


# %% [markdown]
# Build, build again, change one word of one article, build, and go back to the first text. Look at the column of what was embedded.

# %%
first, work_first = build(three)
files_before = fingerprint(first)
again, work_again = build(three)
edited = [replace(three[0], text=three[0].text + " Corrected."), *three[1:]]
changed, work_changed = build(edited)
back, work_back = build(three)

# %%
builds = {
    "first": (first, work_first),
    "again": (again, work_again),
    "one word more": (changed, work_changed),
    "back": (back, work_back),
}
table(("build", "embedded", "key"), *((name, work, f"`{built.manifest['key']}`") for name, (built, work) in builds.items()))

# %%
untouched = fingerprint(first) == files_before
stale = snapshot_digest(edited) != first.manifest["snapshot"]
immutable = untouched and work_again == 0 and work_back == 0 and changed.manifest["key"] != first.manifest["key"]
text = (
    f"Files of the first index after all that, byte for byte: **{'as they were' if untouched else 'changed'}**. The source's digest "
    f"{'differs from' if stale else 'equals'} the one in its manifest, so `ragkit ask` would {'call it **stale**' if stale else 'use it'}."
)
display(Markdown(text))

# %% [markdown]
# `ragkit ask` compares just these two digests before it answers, and refuses an index whose source has changed. Nothing is patched:
# one changed article makes a whole new index under a new key, and the old one can be opened again without work.
#
# ## Is the benchmark valid?
#
# Exactness was checked where it matters, on real questions. But does an exact search find what is wanted? That is another matter,
# and it is visible in the cosines. For each answerable question of the development split, set the best chunk that overlaps the gold
# span against the best chunk that does not. **Above the diagonal the gold chunk comes first.** The marks at the left edge are the
# questions that the corpus cannot answer: look how far up they reach.

# %%
tasks = frozen.select("dev", evaluation.limit)
cosines = {task.task_id: dict(zip(ids, scores[frozen.tasks.index(task)], strict=True)) for task in tasks}


def gold_ids(task):
    """Ids of all chunks that overlap a gold span of the task."""
    spans = [gold for gold in task.golds if gold.start is not None]
    return {
        c.chunk_id for c in index.chunks for g in spans if c.article_id == g.article_id and c.start < g.end and g.start < c.end
    }


points = []
for task in tasks:
    gold = gold_ids(task)
    if gold:
        assert {chunk.chunk_id for chunk in gold_chunk(task, index.chunks) if chunk} <= gold
        points.append(
            (max(cosines[task.task_id][i] for i in gold), max(c for i, c in cosines[task.task_id].items() if i not in gold))
        )
without = [max(cosines[task.task_id].values()) for task in tasks if not task.answerable]

# %% mystnb={"image": {"alt": "Scatter of cosines, the best gold chunk of each question against its best other chunk, with a diagonal; most points lie above the diagonal. Ticks at the left edge show the best cosine of each unanswerable question, and a dotted line the threshold of the profile"}, "figure": {"caption": "Cosine of the best chunk that overlaps the gold span against the best other chunk, answerable questions of the development split. Filled: the gold chunk ranks first. Ticks at the left: the best cosine of the questions without an answer in the corpus. Dotted: the cosine below which the profile gives the reader nothing.", "name": "fig-index-cosines"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(5.6, 5.0))
ax.plot([0, 1], [0, 1], color=figures.PALETTE["black"], linewidth=1.0, linestyle="-")
for gold, other in points:
    fill = figures.PALETTE["blue"] if gold > other else "white"
    ax.plot(other, gold, "o", color=figures.PALETTE["blue"], markerfacecolor=fill, markersize=6)
for value in without:
    ax.plot([0, 0.03], [value, value], color=figures.PALETTE["vermillion"], linestyle="-")
threshold = load_profile(profile).retrieval.min_cosine
if threshold is not None:
    ax.axhline(threshold, color=figures.PALETTE["black"], linestyle=":", linewidth=1.2)
ax.set_xlim(0, 1)
ax.set_ylim(0, 1)
ax.set_aspect("equal")
ax.set_xlabel("cosine of the best other chunk")
ax.set_ylabel("cosine of the best gold chunk")
plt.show()

# %%
first_places = sum(gold > other for gold, other in points)
lowest = min(gold for gold, _ in points) if points else None
text = f"The gold chunk comes first for {first_places} of {len(points)} questions."
if without and points:
    above = sum(value > lowest for value in without)
    text += (
        f" {above} of {len(without)} unanswerable questions have a chunk with a higher cosine than the weakest gold chunk: **no "
        "threshold parts the two**." if above else " A threshold parts answerable from unanswerable here."
    )  # fmt: skip
display(Markdown(text))

# %% [markdown]
# A cosine is no probability of relevance. What the search promises is the order, and that it has left nothing out.
#
# ## Why no approximate index?
#
# Exact search costs $N \cdot d$ multiplications and reads $4 N d$ bytes for each question. An **IVF-PQ** index groups vectors into
# about $\sqrt N$ cells, compares the question with the cells' centres, and looks into a few cells (20 by default) where each vector
# is compressed to $d/16$ bytes. It can miss the nearest chunk. The arithmetic, for this index and two that are larger:


# %%
def reads(count, dimension, probes=20):
    """Bytes read for one question: exact, and IVF-PQ with square-root cells and d/16 bytes a vector."""
    cells = max(1, round(count**0.5))
    opened = min(probes, cells)
    return 4 * count * dimension, 4 * cells * dimension + round(opened / cells * count * dimension / 16), opened / cells


d = index.dimension
sizes = (len(index), 10_000, 1_000_000)
milliseconds = {count: 1000 * reads(count, d)[0] / (bandwidth_gb_s * 1e9) for count in sizes}

# %%
table(
    ("N", "multiplications", "exact reads, MiB", f"at {bandwidth_gb_s:g} GB/s, ms", "IVF-PQ reads, MiB", "cells looked into"),
    *(
        (
            f"{count:,}", f"{count * d:,}", f"{reads(count, d)[0] / 2**20:.1f}", f"{milliseconds[count]:.2f}",
            f"{reads(count, d)[1] / 2**20:.2f}", f"{reads(count, d)[2]:.0%}",
        )
        for count in sizes
    ),
)  # fmt: skip

# %% [markdown]
# Milliseconds are computed from the assumed memory speed, not measured. IVF-PQ also trains its cells with random starts, so two
# builds need not agree, and after its compressed distances a search has to read the full vectors of its candidates again.
#
# ## The decision
#
# The rule: exact search as long as it is exact (checked above) and its reading stays within the patience.

# %%
most = int(patience_ms / 1000 * bandwidth_gb_s * 1e9 / (4 * d))
decision = "exact search, no approximate index" if exact and len(index) <= most else "look again: measure an approximate index"
text = (
    f"**{decision}.** This index has {len(index)} chunks; by this arithmetic {patience_ms:g} ms suffice for about {most:,}, "
    f"{most // len(index):,} times as many. One million takes {milliseconds[1_000_000]:.0f} ms a question, "
    f"{'too long: there an approximate index starts to pay' if most < 1_000_000 else 'still within it'}. Immutability: **{'held' if immutable else 'failed'}**."
)
display(Markdown(text))

# %% [markdown]
# ## Exercises
#
# ```{admonition} 1. A flipped bit
# :class: tip
# Flip one bit in one file of the small index's table and open it. What happens, and when would a raw table have told you?
# ```

# %% tags=["hide-input", "hide-output"]
from ragkit.retrieval import open_index

victim = max((path for path in back.folder.glob("chunks.lance/data/*") if path.is_file()), key=lambda path: path.stat().st_size)
content = bytearray(victim.read_bytes())
content[len(content) // 2] ^= 1
victim.write_bytes(content)
try:
    outcome = f"opened with {len(open_index(folder / 'index'))} chunks"
except RagkitError as error:
    outcome = type(error).__name__ + (": damaged, its sha256 is not the one on record" if "damaged" in str(error) else "")
display(Markdown(f"{outcome}. A raw table knows no digest of its files: a wrong number in a vector is a number."))

# %% [markdown]
# ```{admonition} 2. L2 on unit vectors
# :class: tip
# Ask the frozen table with its default metric. On how many questions does the order differ from the cosine's? Predict it from
# $\|q - c\|^2 = 2 - 2\,q \cdot c$.
# ```

# %% tags=["hide-input", "hide-output"]
by_l2 = [[row["chunk_id"] for row in raw.search(vector).limit(k).to_list()] for vector in queries.astype(np.float32)]
differing = sum(a != b for a, b in zip(by_l2, by_ragkit, strict=True))
display(Markdown(f"{differing} of {n}: on unit vectors both rank alike; the trap bites only where vectors were not normalised."))

# %% [markdown]
# ```{admonition} 3. One chunk less
# :class: tip
# Take the top chunk of the first question away and search again. Is the new list the old one, moved up by one?
# ```

# %% tags=["hide-input", "hide-output"]
top = by_ragkit[0][0]
rest = [hit.chunk.chunk_id for hit in index.search(vectors[0], k - 1, where={"chunk_id": ("!=", top)})] if k > 1 else []
display(Markdown(f"{rest == by_ragkit[0][1:]}: exact search scores each chunk alone, so one chunk's absence moves no other."))

# %% [markdown]
# ## Recap
#
# 1. We ranked two vectors by hand, and saw how a default setting ranks them the other way round.
# 2. We held our search against numpy and against LanceDB's own, on every question there is.
# 3. We walked into four traps of a vector table, and saw what the package says instead.
# 4. We tried to change an index, and failed.
# 5. We decided whether an approximate index is called for.

# %%
path = write_metrics("03_lancedb_index", {
    "chunks": len(index), "dimension": d, "key": manifest["key"], "questions": n, "k": k,
    "agree_numpy": agree["numpy"], "agree_lancedb": agree["LanceDB"], "exact": exact,
    "filters": filtered, "embedded_again": work_again, "embedded_after_edit": work_changed, "immutable": immutable, "stale": stale,
    "gold_first": first_places, "gold_questions": len(points), "lowest_gold_cosine": lowest, "unanswerable_best": without,
    "exact_up_to": most, "exact_megabytes_per_question": {str(count): reads(count, d)[0] / 1e6 for count in sizes},
    "decision": decision,
}, profile, artifacts)  # fmt: skip

# %%
import shutil

embedder.close()
shutil.rmtree(folder)
show_receipt(profile, used=[embedder], data=[evaluation.snapshot, evaluation.tasks])
