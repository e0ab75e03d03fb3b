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
# **Its limit.** One corpus, one embedder that reads little at a time, and the questions of the development split. This chapter
# can show what a cut costs and what a careless one loses; whether one size beats another it can say only as far as the intervals
# reach, and only for the search, not for the reader behind it.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | the idea that text is read in tokens; the frozen index (`make rerun` writes it) |
# | helpful | {doc}`/book/labs/00_start_here`, for the equations |
# | time and memory | minutes: the corpus is embedded once for each way of cutting (the receipt at the end has the figures) |
# | writes | `artifacts/PROFILE/metrics/01_chunking.json` |

# %% [markdown]
# In this notebook we
#
# 1. cut one sentence by hand, and find every chunk again in its article, to the character;
# 2. check citations by their ids and offsets, and see what decoded text leaves of that;
# 3. count what an embedder drops when nobody looks at the length, and which questions that costs;
# 4. cut the corpus in many ways, compare what each brings into a prompt of equal size, and count what is brought twice;
# 5. decide on a size, from the intervals.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
size: int = 256  # tokens of the default cut, special ones included; the others are compared with it
overlap: int = 32  # tokens of text that its neighbours share
sizes: list = [64, 128]  # smaller windows to try, each with an overlap of an eighth
characters: list = [[500, 50], [800, 150]]  # windows in characters, [size, overlap], cut at the ends of paragraphs and sentences
larger: list = [400, 50]  # a window in tokens, [size, overlap], as large as many tutorials advise
budget: int = 1280  # tokens of context that every question gets, whatever the cut
budgets: list = [160, 320, 640]  # smaller ones, for looking

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown, display

from ragkit.corpus import chunk_article, count_tokens, measured_overlap, read_snapshot
from ragkit.errors import InputError
from ragkit.evaluation import minimum_detectable_effect, paired_difference, wilson_interval
from ragkit.evaluation.report import mean_with_interval
from ragkit.evaluation.sweep import (
    context_rows,
    copies,
    hits_of,
    index_bytes,
    sentences,
    span_share,
    unseen_share,
    whole_articles,
    within_budget,
)
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


def outcome(held):
    """What became of a prediction."""
    return f"**{'held' if held else 'failed'}**"


# %%
evaluation = load_profile(profile).evaluation
articles = read_snapshot(resolve(evaluation.snapshot)).articles
texts = {article.article_id: article.text for article in articles}
frozen = open_frozen(profile, artifacts)
tasks = frozen.select("dev", evaluation.limit)
spans = [gold for task in tasks for gold in task.golds if gold.start is not None]
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
# The last `assert` is the one that matters: `article.text[start:end] == chunk.text`. The id is the article's with the place
# where the chunk starts, so that it leads back by itself.
#
# With $w$ text tokens in a window and an overlap of $o$, a text of $T > w$ tokens gives $1 + \lceil (T - w)/(w - o) \rceil$ chunks.

# %%
w, o, t = 6, 2, 12
windows = 1 + -(-(t - w) // (w - o))
assert windows == len(toy_chunks)
display(Markdown(f"Here {windows}. In a long text each token is embedded {w / (w - o):.2f} times on average."))

# %% [markdown]
# ## Build: the corpus, cut and stamped
#
# Look at what travels with a chunk: the title, address and date serve the citation, the offsets serve the measurement.


# %%
def cut(strategy, size, overlap, unit="tokens"):
    """All articles, cut one way."""
    return [c for article in articles for c in chunk_article(article, embedder.tokenizer, strategy, size, overlap, unit)]


default = cut("tokens", size, overlap)
example = next((c for c in default if c.published_at and c.start and c.heading), default[0])

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
# ## What an id and an offset buy
#
# First, a citation that can be checked. An answer quotes a sentence and names a chunk; no model is needed to say whether that
# sentence stands there. Look at what becomes of a quote that lost one word, and of one that names the wrong article.


# %%
def cited(chunk_id, quote):
    """The characters of the named article, from the chunk's start on, that are the quote; None where there are none."""
    article_id, _, start = chunk_id.rpartition("::")
    at = texts.get(article_id, "").find(quote, int(start))
    return None if at < 0 else (at, at + len(quote))


def holder(gold, chunks):
    """The first chunk in which a gold span lies whole, or None."""
    return next((c for c in chunks if copies([gold], [c])), None)


kept = [(gold, chunk) for gold in spans if (chunk := holder(gold, default))]
gold, chunk = kept[0]
quote = texts[gold.article_id][gold.start : gold.end]
elsewhere = next(c for c in default if c.article_id != gold.article_id)

# %%
words = quote.split(" ")
claims = {
    "as it stands": (chunk.chunk_id, quote),
    "one word left out": (chunk.chunk_id, " ".join(words[:3] + words[4:])),
    "another article's id": (elsewhere.chunk_id, quote),
}
assert cited(*claims["as it stands"]) == (gold.start, gold.end)
table(("quote", "names", "found at"), *((name, f"`{c}`", cited(c, q) or "**nowhere**") for name, (c, q) in claims.items()))

# %% [markdown]
# Second, evidence that can be judged. The **gold spans** (the stretches of text that support the answers) are marked in characters
# of the article, so the same marks judge every way of cutting below. Many splitters hand on the *decoded* tokens in place of the
# text. How many gold spans could still be found in those?

# %%
decoded = {c.chunk_id: embedder.tokenizer.decode(embedder.tokenizer.encode(c.text).ids) for _, c in kept}


def squeezed(text):
    """In small letters, white space left out."""
    return "".join(text.lower().split())


pairs = [(texts[g.article_id][g.start : g.end], decoded[c.chunk_id]) for g, c in kept]
as_text = {
    "by offsets": sum(texts[g.article_id][g.start : g.end] in c.text for g, c in kept),
    "in the decoded text": sum(span in text for span, text in pairs),
    "the same, small letters on both sides": sum(span.lower() in text for span, text in pairs),
    "the same, and all white space left out": sum(squeezed(span) in squeezed(text) for span, text in pairs),
}

# %%
table(("gold spans found again", f"of {len(kept)} that lie whole in a chunk"), *as_text.items())
display(Markdown(f"One of them decoded: `{decoded[chunk.chunk_id][:120]}…`"))

# %% [markdown]
# What can be repaired by squeezing can be counted again, but a reader was given that text, and whatever it quotes from it is not
# the source's wording.
#
# ## What is lost when nobody looks
#
# Why not embed whole articles? An embedder reads a fixed number of tokens. What follows is dropped, and common libraries say
# nothing. Take one long article, and put nonsense in place of all that lies behind the limit. Look at the cosine.

# %%
limit = embedder.max_tokens
lengths = [count_tokens(embedder.tokenizer, article.text) for article in articles]
long_one = articles[int(np.argmax(lengths))]
border = chunk_article(long_one, embedder.tokenizer, size=limit, overlap=0)[1].start
nonsense = long_one.text[:border] + "the moon is made of green cheese " * 50
vectors = embedder.encode_passages([long_one.text, nonsense], truncate=True)

# %%
text = (
    f"*{long_one.title}* has {max(lengths):,} tokens; the model takes {limit}. With everything behind them replaced the cosine of the "
    f"two texts is **{float(vectors[0] @ vectors[1]):.6f}**."
)
display(Markdown(text))

# %% [markdown]
# The embedder of this book refuses such a text unless it is told to cut it, and then it counts what it cut. That goes for windows
# too: advice to cut at 300 to 500 tokens is advice for an embedder that reads as many.


# %%
def refusal(chunks):
    """What the embedder says to chunks, without the place's number; empty where it takes them."""
    try:
        embedder.encode_passages([max((c.text for c in chunks), key=len)])
    except InputError as error:
        return str(error)
    return ""


bigger = cut("tokens", *larger)
said = refusal(bigger)
display(Markdown(f"A window of {larger[0]}: {f'*{said}*' if said else 'taken.'}"))

# %% [markdown]
# Now count: the articles that are too long, and the gold spans that lie behind the cut.

# %%
too_long = sum(length > limit for length in lengths)
seen = {a.article_id: chunk_article(a, embedder.tokenizer, size=limit, overlap=0)[0].end for a in articles}
behind = sum(gold.start >= seen[gold.article_id] for gold in spans)
parted = sum(gold.start < seen[gold.article_id] < gold.end for gold in spans)
text = (
    f"**{too_long} of {len(articles)} articles** exceed {limit} tokens (the median has {int(np.median(lengths))}). Of {len(spans)} "
    f"gold spans **{behind} ({behind / len(spans):.0%}) lie wholly behind the cut** and {parted} across it: their text is in no vector."
)
display(Markdown(text))

# %% [markdown]
# ## Predict, then measure
#
# Why not sentences? A sentence seldom names what it speaks of; the line before it does. So there are two ways to go wrong, and
# sizes between them. **Prediction, before looking:**
#
# 1. an overlap of $o$ makes the index larger by at most $w/(w - o)$;
# 2. the smaller the chunks, the more spans are parted between two of them;
# 3. overlap brings one fact twice into some prompts, and takes less than a twentieth of the default's budget for it;
# 4. at an equal budget the windows differ little in the share of the span that reaches the prompt, and single sentences and whole
#    articles, cut where the model stops reading, fall behind;
# 5. a truncated article ranks lower than its chunks would where the span lies behind the cut, and not where the article fits.
#
# Every question gets the same number of context tokens from every cut: chunks are taken in the order of their cosine until the
# budget is used up, and the last one is cut to fit. The measure that decides, chosen beforehand, is the **span share**: how much
# of the gold span the given chunks hold together, recall counted in characters of evidence. Beside it stand article recall
# ({eq}`eq-recall`), the reciprocal rank of the first gold article ({eq}`eq-mrr`) and the share of gold spans that any given chunk
# touches.

# %%
reference = f"{size}/{overlap} tokens"
cuts = {reference: default, f"{size}/0 tokens": cut("tokens", size, 0)}
for small in sorted(sizes, reverse=True):
    cuts[f"{small}/{small // 8} tokens"] = cut("tokens", small, small // 8)
for length, shared in characters:
    cuts[f"{length}/{shared} characters"] = cut("recursive", length, shared, "characters")
cuts[f"paragraphs, {size}/{overlap}"] = cut("recursive", size, overlap)
cuts[f"headings, {size}/{overlap}"] = cut("headings", size, overlap)
cuts["one sentence"] = [c for article in articles for c in sentences(article, embedder.tokenizer, limit)]

# %% [markdown]
# The last two are what a careless pipeline does: windows larger than the model reads (where it does not read them), and no cut at
# all. The prompt gets what their text holds; the vector saw the beginning.

# %%
large, whole = f"{larger[0]}/{larger[1]} tokens" + (f", seen to {limit}" if said else ""), "whole articles"
cuts[large] = bigger
cuts[whole] = whole_articles(articles)
assert all(texts[c.article_id][c.start : c.end] == c.text for chunks in cuts.values() for c in chunks)
queries = frozen.vectors[[frozen.tasks.index(task) for task in tasks]]


# %%
def ranked(name):
    """The first chunks of one cut for each task: from the frozen index where it is the same cut, else from one of its own."""
    chunks, depth = cuts[name], min(budget, len(cuts[name]))  # a chunk has at least one token
    if chunks_digest(chunks) == frozen.index.manifest["chunks_digest"]:
        return frozen.hits(tasks, depth)
    return hits_of(chunks, embedder, queries, depth, truncate=name in (large, whole))


def score(hits):
    """Rows of the answerable tasks for the hits that they were given."""
    return context_rows(tasks, hits, max(map(len, hits)), articles, embedder.tokenizer)


rankings = {name: ranked(name) for name in cuts}
given = {name: [within_budget(hits, embedder.tokenizer, budget) for hits in found] for name, found in rankings.items()}
rows = {name: score(hits) for name, hits in given.items()}

# %% [markdown]
# ### What a cut costs
#
# Look at the overlap, what was asked for and what was got (a section or a short article has no neighbour to share with), and at
# the text that is in no vector.


# %%
def cost(name, chunks):
    """What one cut costs, before any question is asked."""
    shared = measured_overlap(chunks, embedder.tokenizer)
    kept_by = [copies([gold], chunks) for gold in spans]
    return {
        "chunks": len(chunks),
        "bytes": index_bytes(chunks, embedder.dimension),
        "unseen": unseen_share(chunks, articles, embedder.tokenizer, limit),
        "overlap": float(np.mean(shared)) if shared else 0.0,
        "whole_spans": sum(number > 0 for number in kept_by),
        "whole_twice": sum(number > 1 for number in kept_by),
    }


costs = {name: cost(name, chunks) for name, chunks in cuts.items()}

# %%
table(
    ("cut (size/overlap)", "chunks", "index, KiB", "in no vector", "overlap got, tokens", f"spans whole, of {len(spans)}", "whole in two"),
    *(
        (
            name, f"{c['chunks']:,}", f"{c['bytes'] / 1024:,.0f}", f"{c['unseen']:.0%}", f"{c['overlap']:.1f}", c["whole_spans"],
            c["whole_twice"],
        )
        for name, c in costs.items()
    ),
)  # fmt: skip

# %%
special = embedder.tokenizer.num_special_tokens_to_add(False)
bound = (size - special) / (size - special - overlap)
growth = costs[reference]["chunks"] / costs[f"{size}/0 tokens"]["chunks"]
by_size = ["one sentence", *(f"{small}/{small // 8} tokens" for small in sorted(sizes)), reference]
wholes = [costs[name]["whole_spans"] for name in by_size]
text = (
    f"**Prediction 1:** the overlap multiplies the chunks by {growth:.3f}, the bound is {bound:.3f}: {outcome(growth <= bound)}. "
    f"**Prediction 2:** with {', '.join(by_size)} there stay whole {', '.join(map(str, wholes))} spans: "
    f"{outcome(wholes == sorted(wholes))}."
)
display(Markdown(text))

# %% [markdown]
# ### One fact matched twice
#
# Neighbours share text, so the first k of a search may bring the same characters twice. The prompt pays for them once more, and
# whoever counts matching chunks as hits counts one fact as two. Look at the last two columns: the questions for which two or more
# of the given chunks touch one and the same span, and those for which two hold it whole.

# %%
brought = {
    name: {
        "mean_k": float(np.mean([len(hits) for hits in given[name]])),
        "context_tokens": float(np.mean([row["context_tokens"] for row in rows[name]])),
        "repeated": float(np.mean([row["repeated_share"] for row in rows[name]])),
        "matched_twice": sum(row["matches"] > 1 for row in rows[name]),
        "whole_twice": sum(row["copies"] > 1 for row in rows[name]),
    }
    for name in cuts
}
n = len(rows[reference])

# %%
table(
    ("cut", "chunks given", "context tokens", "brought twice", f"span touched twice, of {n}", "whole twice"),
    *(
        (name, f"{b['mean_k']:.1f}", f"{b['context_tokens']:.0f}", f"{b['repeated']:.1%}", b["matched_twice"], b["whole_twice"])
        for name, b in brought.items()
    ),
)

# %%
doubled = any(b["whole_twice"] for b in brought.values())
cheap = brought[reference]["repeated"] < 0.05
without_overlap = brought[f"{size}/0 tokens"]
assert without_overlap["repeated"] == without_overlap["whole_twice"] == 0  # windows that share nothing repeat nothing
text = (
    f"**Prediction 3:** some question gets one fact whole in two chunks: {outcome(doubled)}; the default spends "
    f"{brought[reference]['repeated']:.1%} of its budget on what it has brought already: {outcome(cheap)}."
)
display(Markdown(text))

# %% [markdown]
# A span that is touched twice and whole in neither was parted by the cut, or sticks out into a neighbour. Metrics that count
# each article and each gold once, as this book's do, are not fooled by either; {doc}`/book/labs/04_retrieval_metrics` shows one that is.
#
# ### What reaches the prompt
#
# Means over the answerable questions, with 95 % BCa intervals over gold articles, since questions about one article succeed and
# fail together.

# %%
measures = {"article_recall": "article recall", "article_rr": "MRR", "chunk_recall": "spans touched", "span_share": "span share"}
clusters = [row["cluster"] for row in rows[reference]]
means = {
    name: {m: mean_with_interval([row[m] for row in rows[name]], evaluation.seed, clusters) for m in measures} for name in cuts
}
table(
    (f"n = {n}", *measures.values()),
    *((name, *(with_interval(means[name][m]["mean"], means[name][m]["interval"]) for m in measures)) for name in cuts),
)

# %% [markdown]
# Two intervals must not be compared by eye: the questions are the same, so the *differences* count, each question against itself.
# Several cuts are compared with one default, so each interval of the deciding measure is widened to keep the family at 95 %
# (Bonferroni). A verdict needs the interval over articles and the one over questions to exclude zero; the table prints the former.

# %%
others = [name for name in cuts if name != reference]
family = 1 - 0.05 / len(others)


def difference(name, measure, confidence=0.95, where=None):
    """One cut against the default, on the same questions; `where` chooses among them."""
    chosen = [place for place in range(n) if where is None or where[place]]
    ours, theirs = ([rows[which][place][measure] for place in chosen] for which in (name, reference))
    return paired_difference(ours, theirs, evaluation.seed, [clusters[place] for place in chosen], confidence)


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

# %% mystnb={"image": {"alt": "Two panels with one row for each way of cutting. Left: dots with intervals for article recall and span share, on a scale from 0 to 1. Right: the difference in span share to the default cut with its interval, beside a vertical line at zero"}, "figure": {"caption": "Ways of cutting at an equal context budget, development split. Left: article recall and span share with 95 % intervals over gold articles. Right: the paired difference in span share to the default, resampled by article, the family of intervals at 95 %; filled where zero is excluded.", "name": "fig-chunk-size"}} tags=["hide-input"]
fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.8), width_ratios=(1, 1))
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
odd = ("one sentence", whole)
apart = [name for name in others if name not in odd and decisive[name].verdict != "not established"]
text = (
    f"**Prediction 4**, the windows differ little: {outcome(not apart)}; {len(apart)} of {len(others) - len(odd)} differ from the "
    f"default ({', '.join(f'{name}: {decisive[name].verdict}' for name in apart) or 'none'}). "
    + " ".join(
        f"{name[0].upper()}{name[1:]} fall{'s' if name == 'one sentence' else ''} behind: {outcome(decisive[name].verdict == 'hurts')} "
        f"({decisive[name].delta:+.2f}, {decisive[name].verdict})."
        for name in odd
    )
)
display(Markdown(text))

# %% [markdown]
# ### Finding the article, and holding the evidence
#
# The same comparison at smaller budgets shows what a size trades. Follow one line from left to right, then compare the two panels:
# many small chunks come from many articles, few large ones hold more of each.

# %%
curve_budgets = sorted({*budgets, budget})


def curve(name):
    """Mean article recall and span share of one cut at each budget."""
    points = []
    for tokens in curve_budgets:
        some = [within_budget(hits, embedder.tokenizer, tokens) for hits in rankings[name]]
        found = [row["article_recall"] for row in score(some)]
        shares = [span_share(task, hits, texts) for task, hits in zip(tasks, some, strict=True) if task.golds]
        points.append({"budget": tokens, "article_recall": float(np.mean(found)), "span_share": float(np.mean(shares))})
    return points


smallest = f"{min(sizes)}/{min(sizes) // 8} tokens"
drawn = [reference, smallest, "one sentence", large, whole]
curves = {name: curve(name) for name in drawn}

# %% mystnb={"image": {"alt": "Two panels of rising curves against the number of context tokens, one line for each of five ways of cutting. Left: article recall. Right: span share, where the order of the lines differs from that on the left"}, "figure": {"caption": "What more context brings, development split: mean article recall (left) and span share (right) at equal budgets, no intervals drawn. The last budget is the one that decides.", "name": "fig-chunk-budget"}} tags=["hide-input"]
fig, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True)
for ax, m in zip(panels, ("article_recall", "span_share"), strict=True):
    for (name, points), marker in zip(curves.items(), "osD^v", strict=True):
        ax.plot(curve_budgets, [point[m] for point in points], marker=marker, label=name)
    ax.set_xscale("log", base=2)
    ax.set_xticks(curve_budgets, curve_budgets)
    ax.minorticks_off()
    ax.set_ylim(0, 1.03)
    ax.set_xlabel("context tokens")
    ax.set_ylabel(measures[m])
panels[1].legend(loc="lower right", fontsize=9)
plt.show()

# %%
tightest, widest = curves[smallest][0], curves[smallest][-1]
against = curves[reference][0], curves[reference][-1]
text = (
    f"At {widest['budget']:,} tokens {smallest} lie {widest['article_recall'] - against[1]['article_recall']:+.2f} from {reference} in "
    f"article recall and {widest['span_share'] - against[1]['span_share']:+.2f} in span share; at {tightest['budget']} tokens "
    f"{tightest['article_recall'] - against[0]['article_recall']:+.2f} and {tightest['span_share'] - against[0]['span_share']:+.2f}."
)
display(Markdown(text))

# %% [markdown]
# ### Which questions a truncation costs
#
# Whole articles again, by where their evidence lies. Where the article fits, nothing was cut; where the span lies before the cut,
# the vector saw it; behind the cut it did not. Look at the two columns of differences: how high the article ranks depends on the
# vector alone, the span share also on how few whole articles a prompt holds.


# %%
def place_of(task):
    """Where a task's evidence lies with respect to what the model reads of its articles."""
    golds = [gold for gold in task.golds if gold.start is not None]
    if any(gold.end > seen[gold.article_id] for gold in golds):
        return "span behind or across the cut"
    return "the article fits" if all(seen[g.article_id] == len(texts[g.article_id]) for g in golds) else "span before the cut"


places = [place_of(task) for task in tasks if task.golds]
kinds = ("the article fits", "span before the cut", "span behind or across the cut")
split = {
    kind: {m: difference(whole, m, where=[place == kind for place in places]) for m in ("article_rr", "span_share")}
    for kind in kinds
    if kind in places
}

# %%
table(
    ("evidence", "n", f"MRR, {whole}", f"MRR, {reference}", "difference in MRR (95 %)", "verdict", "in span share (95 %)", "verdict"),
    *(
        (
            kind, d["article_rr"].n, f"{d['article_rr'].mean_a:.2f}", f"{d['article_rr'].mean_b:.2f}",
            with_interval(d["article_rr"].delta, d["article_rr"].cluster_interval, "+.2f"), d["article_rr"].verdict,
            with_interval(d["span_share"].delta, d["span_share"].cluster_interval, "+.2f"), d["span_share"].verdict,
        )
        for kind, d in split.items()
    ),
)  # fmt: skip

# %%
lost = [
    row["task_id"]
    for row, other, place in zip(rows[whole], rows[reference], places, strict=True)
    if place == kinds[2] and row["article_hit"] < other["article_hit"]
]
verdicts = {kind: split[kind]["article_rr"].verdict if kind in split else "no such question" for kind in kinds}
text = (
    f"**Prediction 5**, lower behind the cut: {outcome(verdicts[kinds[2]] == 'hurts')} ({verdicts[kinds[2]]}); not lower where the article "
    f"fits: {outcome(verdicts[kinds[0]] != 'hurts')} ({verdicts[kinds[0]]}). Questions with evidence behind the cut that "
    f"lose their article altogether: {len(lost)}{' (' + ', '.join(lost) + ')' if lost else ''}."
)
display(Markdown(text))

# %% [markdown]
# A truncated vector is not blind: a title and first lines name the subject, and many questions name it too. That is why nobody
# notices. It is blind for what is said further down, and no error, warning or empty result tells.
#
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
# four times in five, where as many questions change as changed most and least here:

# %%
changed = sorted((d.better + d.worse) / n for d in (row["chunk_recall"] for row in beside.values()))
effects = {share: minimum_detectable_effect(n, share) for share in (changed[0], changed[-1]) if share}
parts = [
    f"with {share:.0%} of {n} questions changing, " + (f"**{effect:.0%} of them**" if effect is not None else "**none**")
    for share, effect in effects.items()
]
display(Markdown(f"Smallest effect, {'; '.join(parts) or 'none: no question changes'} (on {len(set(clusters))} articles)."))

# %% [markdown]
# **The small corpus:** what share of all text does one prompt hold? In a corpus a hundred times as large the same prompt would be a
# hundredth of that, with a hundred times as many wrong chunks beside the right one. And the spans were marked by those who wrote
# the questions, from one or two articles each: another passage may answer as well, and counts as a miss. Chunks larger than a span
# have an advantage by construction, since a span is a sentence or two and comes whole with what surrounds it.

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
unclear = [name for name in others if name not in better + worse]
chosen = max(better, key=lambda name: decisive[name].delta) if better else reference
table(
    ("verdict against " + reference, "cuts", "index, relative"),
    *(
        (word, "; ".join(names) or "none", "; ".join(f"{costs[name]['bytes'] / costs[reference]['bytes']:.2f}" for name in names))
        for word, names in (("helps", better), ("hurts", worse), ("not established", unclear))
    ),
)

# %%
most = max((decisive[name].cluster_interval[1] for name in unclear), default=0.0)
text = (
    f"**{chosen}**, n = {n}. {len(better)} of {len(others)} cuts are better, {len(worse)} worse, {len(unclear)} not told apart; the "
    f"intervals of the latter still allow one of them to be {max(most, 0):.2f} better. Most bytes: "
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
excess = [count_tokens(embedder.tokenizer, c.text) - limit for c in careless]
over = sum(extra > 0 for extra in excess)
text = f"{over} of {len(careless)} chunks exceed the {limit} tokens of {embedder.identity['model']}, by up to {max(excess)}."
display(Markdown(text))

# %% [markdown]
# ```{admonition} 3. The same k instead of the same budget
# :class: tip
# Compare the smallest window with the default at the profile's k for both, which gives it a fraction of the tokens. Which
# conclusion would that have suggested?
# ```

# %% tags=["hide-input", "hide-output"]
few = load_profile(profile).retrieval.k
same_k = {name: score([hits[:few] for hits in rankings[name]]) for name in (smallest, reference)}
d = paired_difference(
    *([row["span_share"] for row in same_k[name]] for name in (smallest, reference)), evaluation.seed, clusters, family
)
tokens_given = {name: np.mean([row["context_tokens"] for row in same_k[name]]) for name in same_k}
text = (
    f"With k = {few} for both, {smallest} against {reference}: {with_interval(d.delta, d.cluster_interval, '+.2f')}, {d.verdict}; at an "
    f"equal budget it was {decisive[smallest].delta:+.2f}, {decisive[smallest].verdict}. It had "
    f"{tokens_given[smallest]:.0f} tokens against {tokens_given[reference]:.0f}."
)
display(Markdown(text))

# %% [markdown]
# ## Recap
#
# 1. We cut one sentence by hand, and found every chunk again in its article, to the character.
# 2. We checked citations by their ids and offsets, and saw what decoded text leaves of that.
# 3. We counted what an embedder drops when nobody looks at the length, and which questions that cost.
# 4. We cut the corpus in many ways, compared what each brought into a prompt of equal size, and counted what was brought twice.
# 5. We decided on a size, from the intervals.


# %% tags=["hide-input"]
def plain(d):
    """A paired difference as plain data."""
    return {
        "n": d.n, "delta": d.delta, "interval": d.interval, "cluster_interval": d.cluster_interval, "verdict": d.verdict,
        "better": d.better, "worse": d.worse,
    }  # fmt: skip


path = write_metrics("01_chunking", {
    "n": n, "spans": len(spans), "articles": len(articles), "budget": budget, "default": reference, "chosen": chosen,
    "chunks": len(default), "articles_too_long": too_long, "spans_behind_the_cut": behind, "spans_across_the_cut": parted,
    "spans_in_a_chunk": len(kept), "spans_found": as_text, "larger_refused": bool(said),
    "default_article_hits": found, "default_article_hit_interval": (low, high), "overlap_growth": growth,
    "family_confidence": family, "costs": {name: {**costs[name], **brought[name]} for name in cuts}, "means": means,
    "span_share_differences": {name: plain(d) for name, d in decisive.items()}, "curves": curves,
    "whole_articles_by_place": {kind: {m: plain(d) for m, d in by.items()} for kind, by in split.items()},
    "articles_lost_behind_the_cut": lost,
}, profile, artifacts)  # fmt: skip

# %%
embedder.close()
show_receipt(profile, used=[embedder], data=[evaluation.snapshot, evaluation.tasks])
