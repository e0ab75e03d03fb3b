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
# # Chunking: how to cut articles so that evidence stays whole?
#
# **Claim.** A chunk must carry where it came from, exactly: only then can an answer cite it and a benchmark judge it. Its size is
# a second question, and a fair answer to it gives every size the *same number of context tokens*, since twenty small chunks and
# twenty large ones are not the same prompt.
#
# **Its limit.** One small corpus, one embedder, and the questions of the development split, most of which every way of cutting
# gets right. This chapter can show what a cut costs and what a careless one loses; whether one size beats another it can say only
# as far as the intervals reach.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | the idea that text is read in tokens; the frozen index (`make rerun` writes it) |
# | helpful | {doc}`/book/labs/00_start_here`, for the equations |
# | time and memory | a few minutes: the corpus is embedded once for each way of cutting (the receipt at the end has the figures) |
# | writes | `artifacts/PROFILE/metrics/01_chunking.json` |

# %% [markdown]
# In this notebook we
#
# 1. cut one sentence by hand, and find every chunk again in its article, to the character;
# 2. count what an embedder silently drops when nobody looks at the length;
# 3. cut the corpus in several ways, and compare what each brings into a prompt of equal size;
# 4. decide on a size, from the intervals.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
size: int = 256  # tokens of the default cut, special ones included; the others are compared with it
overlap: int = 32  # tokens of text that its neighbours share
sizes: list = [64, 128]  # smaller windows to try, each with an overlap of an eighth
budget: int = 1280  # tokens of context that every question gets, whatever the cut

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display

from ragkit.corpus import chunk_article, count_tokens, measured_overlap, read_snapshot
from ragkit.evaluation import minimum_detectable_effect, paired_difference, wilson_interval
from ragkit.evaluation.report import mean_with_interval
from ragkit.evaluation.sweep import context_rows, hits_of, index_bytes, whole_articles, within_budget
from ragkit.lab import figures, show_receipt, write_metrics
from ragkit.models import open_embedder
from ragkit.profile import load_profile, resolve
from ragkit.records import Article
from ragkit.retrieval import chunks_digest, open_frozen

figures.use_book_style()


# %% tags=["hide-input"]
def table(*rows):
    """Show rows as a Markdown table; the first is the head."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    display(Markdown("\n".join([head, "|" + "---|" * len(rows[0]), *body])))


def with_interval(mean, interval, form=".2f"):
    """A number and its interval, such as 0.93 (0.81 to 0.98)."""
    return f"{mean:{form}} ({interval[0]:{form}} to {interval[1]:{form}})"


# %%
evaluation = load_profile(profile).evaluation
articles = read_snapshot(resolve(evaluation.snapshot)).articles
frozen = open_frozen(profile, artifacts)
embedder = open_embedder(profile, progress=False)

# %% [markdown]
# ## By hand: one sentence, a window of eight
#
# A **token** is the unit in which a model reads. This embedder puts one special token before a text and one after it, so a window
# of 8 has room for 6. The next window starts 2 tokens before the last one's end: that is the **overlap**. Count along: tokens 1
# to 6, then 5 to 10, then 9 to 12.

# %%
toy = Article("toy", "", "The crew sheltered while debris from the breakup passed the station.")
tokens = embedder.tokenizer.encode(toy.text).tokens
by_hand = ["The crew sheltered while debris from", "debris from the breakup passed the", "passed the station."]
toy_chunks = chunk_article(toy, embedder.tokenizer, "tokens", size=8, overlap=2)
print(" | ".join(tokens))

# %%
assert len(tokens) == 12 + 2
assert [chunk.text for chunk in toy_chunks] == by_hand
assert all(toy.text[chunk.start : chunk.end] == chunk.text for chunk in toy_chunks)
table(("chunk id", "characters", "text"), *((c.chunk_id, f"{c.start} to {c.end}", c.text) for c in toy_chunks))

# %% [markdown]
# The second `assert` is the one that matters: `article.text[start:end] == chunk.text`. The id is the article's with the place
# where the chunk starts, so that it leads back by itself. Compare with what decoding the tokens would have handed to a reader:

# %%
decoded = embedder.tokenizer.decode(embedder.tokenizer.encode(toy.text).ids)
same = decoded == toy.text
display(Markdown(f"`{decoded}`: {'the source' if same else '**not the source**'}, so its offsets would lead nowhere."))

# %% [markdown]
# With $w$ text tokens in a window and an overlap of $o$, a text of $T > w$ tokens gives $1 + \lceil (T - w)/(w - o) \rceil$ chunks.

# %%
w, o, t = 6, 2, 12
windows = 1 + -(-(t - w) // (w - o))
assert windows == len(toy_chunks)
display(Markdown(f"Here {windows}. Each token but the ends is embedded {w / (w - o):.2f} times."))

# %% [markdown]
# ## Build: the corpus, cut and stamped
#
# Look at what travels with a chunk: the title, address and date serve the citation, the offsets serve the measurement.


# %%
def cut(strategy, size, overlap):
    """All articles, cut one way."""
    return [c for article in articles for c in chunk_article(article, embedder.tokenizer, strategy, size, overlap)]


default = cut("tokens", size, overlap)
texts = {article.article_id: article.text for article in articles}
example = next((c for c in default if c.published_at and c.start), default[0])

# %%
stamps = ("chunk_id", "title", "url", "published_at", "source", "heading", "start", "end")
table(("stamp", "value"), *((name, f"`{getattr(example, name)}`") for name in stamps))

# %% [markdown]
# Two properties of *every* chunk, checked on all of them: it is an exact slice of its article, and the model sees all of it.

# %%
exact = sum(texts[c.article_id][c.start : c.end] == c.text for c in default)
longest = max(count_tokens(embedder.tokenizer, c.text) for c in default)
assert exact == len(default)
assert longest <= size
display(
    Markdown(f"**{exact} of {len(default)}** chunks are exact slices; the longest has {longest} tokens, special ones included.")
)

# %% [markdown]
# ## What is lost when nobody looks
#
# Why not embed whole articles? An embedder reads a fixed number of tokens. What follows is dropped, and common libraries say
# nothing. Count the articles that are too long, then the **gold spans** (the stretches of text that support the answers) that lie
# behind the cut.

# %%
limit = embedder.max_tokens
lengths = [count_tokens(embedder.tokenizer, article.text) for article in articles]
too_long = sum(length > limit for length in lengths)
seen = {a.article_id: chunk_article(a, embedder.tokenizer, size=limit, overlap=0)[0].end for a in articles}

# %%
tasks = frozen.select("dev", evaluation.limit)
spans = [gold for task in tasks for gold in task.golds if gold.start is not None]
behind = sum(gold.start >= seen[gold.article_id] for gold in spans)
parted = sum(gold.start < seen[gold.article_id] < gold.end for gold in spans)
text = (
    f"{too_long} of {len(articles)} articles exceed {limit} tokens (the median has {int(np.median(lengths))}). Of {len(spans)} "
    f"gold spans **{behind} ({behind / len(spans):.0%}) lie wholly behind the cut** and {parted} across it: their text is in no vector."
)
display(Markdown(text))

# %% [markdown]
# The embedder of this book refuses such a text unless it is told to cut it, and then it counts what it cut. (A window that forgets
# the special tokens loses its end in the same way: exercise 2.)

# %% [markdown]
# ## Predict, then measure
#
# Why not sentences? A sentence seldom names what it speaks of; the line before it does. So there are two ways to go wrong, and
# sizes between them. **Prediction, before looking:**
#
# 1. an overlap of $o$ makes the index larger by at most $w/(w - o)$;
# 2. the smaller the chunks, the more spans are parted between two of them;
# 3. at an equal budget the sizes differ little in the share of the span that reaches the prompt, and whole articles, cut where the
#    model stops reading, fall behind.
#
# Every question gets the same number of context tokens from every cut: chunks are taken in the order of their cosine until the
# budget is used up, and the last one is cut to fit. The measure that decides, chosen beforehand, is the **span share**: how much
# of the gold span the retrieved chunks hold together. Beside it stand article recall ({eq}`eq-recall`), the reciprocal rank of
# the first gold article ({eq}`eq-mrr`) and whether any retrieved chunk touches the span.

# %%
reference = f"tokens {size}/{overlap}"
ways = [
    ("tokens", size, overlap), ("recursive", 32, 0), *(("tokens", small, small // 8) for small in sizes),
    ("tokens", size, 0), ("headings", size, overlap), ("recursive", size, overlap),
]  # fmt: skip
cuts = {f"{strategy} {length}/{shared}": cut(strategy, length, shared) for strategy, length, shared in ways}

# %% [markdown]
# The last of the cuts is none: whole articles, of which the embedder sees the beginning only and the prompt all that fits.

# %%
whole = "whole articles"
cuts[whole] = whole_articles(articles)
places = [frozen.tasks.index(task) for task in tasks]
queries = frozen.vectors[places]


# %%
def ranked(name):
    """All chunks of one cut in order, for each task: from the frozen index where it is the same cut, else from one of its own."""
    chunks = cuts[name]
    if chunks_digest(chunks) == frozen.index.manifest["chunks_digest"]:
        return frozen.hits(tasks, len(chunks))
    return hits_of(chunks, embedder, queries, len(chunks), truncate=name == whole)


def score(hits):
    """Rows of the answerable tasks for the hits that they were given."""
    return context_rows(tasks, hits, max(map(len, hits)), articles, embedder.tokenizer)


rankings = {name: ranked(name) for name in cuts}
given = {name: [within_budget(hits, embedder.tokenizer, budget) for hits in found] for name, found in rankings.items()}
rows = {name: score(hits) for name, hits in given.items()}

# %% [markdown]
# First what a cut costs, before any question is asked. Look at the overlap: what was asked for, and what was got. (A cut moves to a
# word's end, and a section or a short article has no neighbour to share with.)


# %%
def whole_spans(chunks):
    """How many gold spans lie inside one single chunk."""
    return sum(any(c.article_id == g.article_id and c.start <= g.start and g.end <= c.end for c in chunks) for g in spans)


costs = {}
for name, chunks in cuts.items():
    shared = measured_overlap(chunks, embedder.tokenizer)
    costs[name] = {
        "mean_k": float(np.mean([len(hits) for hits in given[name]])),
        "chunks": len(chunks),
        "bytes": index_bytes(chunks, embedder.dimension),
        "overlap": float(np.mean(shared)) if shared else 0.0,
        "neighbours": len(shared),
        "whole_spans": whole_spans(chunks),
        "context_tokens": float(np.mean([row["context_tokens"] for row in rows[name]])),
    }

# %%
table(
    (
        "cut (size/overlap)", "chunks", "index, KiB", "overlap got", "pairs", f"spans whole, of {len(spans)}", "chunks given",
        "context tokens",
    ),
    *(
        (
            name, c["chunks"], f"{c['bytes'] / 1024:.0f}", f"{c['overlap']:.1f}", c["neighbours"], c["whole_spans"],
            f"{c['mean_k']:.1f}", f"{c['context_tokens']:.0f}",
        )
        for name, c in costs.items()
    ),
)  # fmt: skip

# %%
special = embedder.tokenizer.num_special_tokens_to_add(False)
bound = (size - special) / (size - special - overlap)
growth = costs[reference]["chunks"] / costs[f"tokens {size}/0"]["chunks"]
by_size = ["recursive 32/0", *(f"tokens {small}/{small // 8}" for small in sorted(sizes)), reference]
wholes = [costs[name]["whole_spans"] for name in by_size]
text = (
    f"**Prediction 1:** the overlap multiplies the chunks by {growth:.3f}, the bound is {bound:.3f}: "
    f"{'held' if growth <= bound else 'failed'}. **Prediction 2:** with {', '.join(by_size)} there stay whole "
    f"{', '.join(map(str, wholes))} of {len(spans)} spans: {'held' if wholes == sorted(wholes) else 'failed'}."
)
display(Markdown(text))

# %% [markdown]
# Now the questions: means over the answerable ones, with 95 % BCa intervals over questions. An interval of a single point means
# that all questions scored alike; it is no certainty.

# %%
measures = {"article_recall": "article recall", "article_rr": "MRR", "chunk_hit": "span touched", "span_share": "span share"}
means = {name: {m: mean_with_interval([row[m] for row in rows[name]]) for m in measures} for name in cuts}
n = len(rows[reference])
table(
    (f"n = {n}", *measures.values()),
    *((name, *(with_interval(means[name][m]["mean"], means[name][m]["interval"]) for m in measures)) for name in cuts),
)

# %% [markdown]
# Two intervals must not be compared by eye: the questions are the same, so the *differences* count, each question against itself.
# Questions about one article are not independent, so whole articles are resampled. Several cuts are compared with one default, so
# each interval of the deciding measure is widened to keep the family at 95 % (Bonferroni). A verdict needs the interval over articles
# and the one over questions to exclude zero; the table prints the former.

# %%
others = [name for name in cuts if name != reference]
clusters = [row["cluster"] for row in rows[reference]]
family = 1 - 0.05 / len(others)


def difference(name, measure, confidence=0.95):
    """One cut against the default, on the same questions."""
    ours, theirs = ([row[measure] for row in rows[which]] for which in (name, reference))
    return paired_difference(ours, theirs, clusters=clusters, confidence=confidence)


# %%
decisive = {name: difference(name, "span_share", family) for name in others}
table(
    (f"span share, less that of {reference}", "better", "worse", "equal", f"difference ({family:.1%} interval)", "verdict"),
    *(
        (name, d.better, d.worse, d.equal, with_interval(d.delta, d.cluster_interval, "+.2f"), d.verdict)
        for name, d in decisive.items()
    ),
)

# %% [markdown]
# The other measures, each with a plain 95 % interval, for looking and not for deciding:

# %%
beside = {name: {m: difference(name, m) for m in measures if m != "span_share"} for name in others}
table(
    (f"less {reference}, n = {n}", *(measures[m] for m in measures if m != "span_share")),
    *((name, *(with_interval(d.delta, d.cluster_interval, "+.2f") for d in row.values())) for name, row in beside.items()),
)

# %% mystnb={"image": {"alt": "Two panels with one row for each way of cutting. Left: dots with intervals for article recall and span share, on a scale from 0 to 1. Right: the difference in span share to the default cut with its interval, beside a vertical line at zero"}, "figure": {"caption": "Ways of cutting at an equal context budget, development split. Left: article recall and span share with 95 % intervals over questions. Right: the paired difference in span share to the default, resampled by article, the family of intervals at 95 %; filled where zero is excluded.", "name": "fig-chunk-size"}} tags=["hide-input"]
fig, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.2), width_ratios=(1, 1))
order = [reference, *others]
looks = {"article_recall": ("s", -0.15, "blue"), "span_share": ("o", 0.15, "vermillion")}
for m, (marker, shift, colour) in looks.items():
    for place, name in enumerate(order):
        low, high = means[name][m]["interval"]
        left.plot([low, high], [place + shift] * 2, color=figures.PALETTE[colour], linestyle="-")
        label = measures[m] if place == 0 else None
        dot = means[name][m]["mean"]
        left.plot([dot], [place + shift], marker, color=figures.PALETTE[colour], linestyle="none", label=label)
left.set_yticks(range(len(order)), order)
left.set_ylim(len(order) - 0.5, -0.5)
left.set_xlim(0, 1.03)
left.set_xlabel("mean over questions")
left.legend(loc="lower left", fontsize=9)
forest_rows = [(name, d.delta, *d.cluster_interval) for name, d in decisive.items()]
figures.forest(right, [("", 0.0, 0.0, 0.0), *forest_rows], label="difference in span share")
right.set_yticklabels([])
plt.show()

# %%
bad = decisive[whole]
apart = [name for name in others if name != whole and decisive[name].verdict != "not established"]
text = (
    f"**Prediction 3**, the sizes differ little: {'failed' if apart else 'held'}; {len(apart)} of {len(others) - 1} other cuts differ "
    f"from the default ({', '.join(f'{name}: {decisive[name].verdict}' for name in apart) or 'none'}). Whole articles fall behind: "
    f"{'held' if bad.verdict == 'hurts' else 'failed'} ({bad.delta:+.2f}, **{bad.verdict}**)."
)
display(Markdown(text))

# %% [markdown]
# Read the whole articles' row with care. What they lose is the text behind the cut; what they keep is a title and first lines that
# name the subject, and here each article has one subject. A question whose article is found gets the span even if no vector ever
# saw it. A corpus of short articles on separate subjects favours them; how far that carries elsewhere is not measured here.

# %% [markdown]
# ## Is the benchmark valid?
#
# Three doubts. **The ceiling:** where nearly every question already finds its article, no cut can do better.

# %%
found = int(sum(row["article_hit"] for row in rows[reference]))
low, high = wilson_interval(found, n)
room = n - sum(row["span_share"] for row in rows[reference])
state = "at or near the ceiling" if high > 0.95 else "below the ceiling"
text = (
    f"The default finds a gold article for {found} of {n} questions ({low:.2f} to {high:.2f}): {state}. Over all questions its "
    f"span share leaves {room:.1f} questions' worth to gain."
)
display(Markdown(text))

# %% [markdown]
# **The small number:** what could these questions have shown at all? The smallest effect that a comparison of this size finds
# four times in five, where as many questions change as changed most here:

# %%
discordant = max((d.better + d.worse) / n for row in beside.values() for d in (row["chunk_hit"],))
effect = minimum_detectable_effect(n, discordant) if discordant else None
reach = f"the smallest is a change of {effect:.0%} of them" if effect is not None else "there is none at this size"
display(Markdown(f"With {discordant:.0%} of {n} questions (on {len(set(clusters))} articles) changing, **{reach}**."))

# %% [markdown]
# **The small corpus:** what share of all text does one prompt hold? In a corpus a hundred times as large the same prompt would be a
# hundredth of that, with a hundred times as many wrong chunks beside the right one. And the spans were marked by those who wrote
# the questions, from one article each: another passage may answer as well, and counts as a miss.

# %%
total = sum(lengths) - special * len(articles)
text = f"One prompt of {budget:,} tokens holds {budget / total:.1%} of the corpus ({total:,} tokens)."
display(Markdown(text))

# %% [markdown]
# ## The decision
#
# The rule was fixed with the measure: another cut replaces the default only if its verdict is "helps"; between cuts that cannot be
# told apart the default stays.

# %%
better = [name for name, d in decisive.items() if d.verdict == "helps"]
worse = [name for name, d in decisive.items() if d.verdict == "hurts"]
chosen = max(better, key=lambda name: decisive[name].delta) if better else reference
text = (
    f"**{chosen}**. Against {reference}, better: {', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}; not "
    f"established: {len(others) - len(better) - len(worse)} of {len(others)}. Most bytes: "
    f"{max(costs, key=lambda name: costs[name]['bytes'])}; fewest: {min(costs, key=lambda name: costs[name]['bytes'])}."
)
display(Markdown(text))

# %% [markdown]
# "Not established" is not "equal": it says that these questions cannot tell. What does not depend on them is that text behind the
# cut of an unseen truncation is in no vector at all.
#
# ## Exercises
#
# ```{admonition} 1. How many chunks?
# :class: tip
# Predict the number of chunks of the whole corpus from the articles' lengths alone, by the formula of the toy example. How far off
# is it, and what could put it off?
# ```

# %% tags=["hide-input", "hide-output"]
w = size - special
predicted = sum(1 + max(0, -(-(length - special - w) // (w - overlap))) for length in lengths)
text = (
    f"Predicted {predicted}, cut {len(default)}. They can differ: a slice may take more tokens than it had in its place, and its "
    "window is then shortened; white space and combined characters move a cut by a token."
)
display(Markdown(text))

# %% [markdown]
# ```{admonition} 2. The two special tokens
# :class: tip
# Somebody counts a window of `size` *text* tokens and forgets the special ones. How many chunks of such a cut would lose their end?
# ```

# %% tags=["hide-input", "hide-output"]
careless = cut("tokens", limit + special, overlap)
lost = [count_tokens(embedder.tokenizer, c.text) - limit for c in careless]
over = sum(extra > 0 for extra in lost)
text = f"{over} of {len(careless)} chunks exceed the {limit} tokens of {embedder.identity['model']}, by up to {max(lost)}."
display(Markdown(text))

# %% [markdown]
# ```{admonition} 3. The same k instead of the same budget
# :class: tip
# Compare the smallest window with the default at the profile's k for both, which gives it a fraction of the tokens. Which
# conclusion would that have suggested?
# ```

# %% tags=["hide-input", "hide-output"]
small = f"tokens {min(sizes)}/{min(sizes) // 8}"
few = load_profile(profile).retrieval.k
same_k = {name: score([hits[:few] for hits in rankings[name]]) for name in (small, reference)}
d = paired_difference(*([row["span_share"] for row in same_k[name]] for name in (small, reference)), clusters=clusters)
tokens_given = {name: np.mean([row["context_tokens"] for row in same_k[name]]) for name in same_k}
text = (
    f"With k = {few} for both, {small} against {reference}: {with_interval(d.delta, d.cluster_interval, '+.2f')}, {d.verdict}; at an "
    f"equal budget it was {decisive[small].delta:+.2f}, {decisive[small].verdict}. It had "
    f"{tokens_given[small]:.0f} tokens against {tokens_given[reference]:.0f}."
)
display(Markdown(text))

# %% [markdown]
# ## Recap
#
# 1. We cut one sentence by hand, and found every chunk again in its article, to the character.
# 2. We counted what an embedder silently drops when nobody looks at the length.
# 3. We cut the corpus in several ways, and compared what each brought into a prompt of equal size.
# 4. We decided on a size, from the intervals.

# %%
path = write_metrics("01_chunking", {
    "n": n, "spans": len(spans), "articles": len(articles), "budget": budget, "default": reference, "chosen": chosen,
    "chunks": len(default), "articles_too_long": too_long, "spans_behind_the_cut": behind, "spans_across_the_cut": parted,
    "default_article_hits": found, "default_article_hit_interval": (low, high), "overlap_growth": growth,
    "family_confidence": family, "costs": costs, "means": means,
    "span_share_differences": {
        name: {
            "delta": d.delta, "interval": d.interval, "cluster_interval": d.cluster_interval, "verdict": d.verdict,
            "better": d.better, "worse": d.worse,
        } for name, d in decisive.items()
    },
}, profile, artifacts)  # fmt: skip

# %%
embedder.close()
show_receipt(profile, used=[embedder], data=[evaluation.snapshot, evaluation.tasks])
