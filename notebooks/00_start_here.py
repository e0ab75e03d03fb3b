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
# # Start here: what is computed, what is looked up?
#
# **Claim.** A question with a formula should be computed, and a question whose answer lives in prose should be looked up.
# Retrieval cannot replace a propagator: it hands over the *nearest* text, and nearest is not the same as relevant.
#
# **Its limit.** This page shows two questions, one on each side of the line. They illustrate; they estimate nothing. How often
# retrieval helps is measured in {doc}`/book/labs/05_paired_eval`. Nor is what we compute exact: it is as good as its input, and
# the example was chosen because everybody knows how it ended.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | the idea of a vector; no knowledge of orbits |
# | helpful | having once wondered why a chatbot was so sure |
# | time and memory | a few minutes on a CPU with both models in memory (the receipt at the end has the figures) |
# | writes | `artifacts/PROFILE/metrics/00_start_here.json` and its timings |

# %% [markdown]
# In this notebook we
#
# 1. compute a close approach of two satellites from published elements, and find out how far it can be trusted;
# 2. put the same question to retrieval, then one that only text can answer, and read both off one figure;
# 3. decide when retrieval is the wrong tool, and learn what a receipt says.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
k: int = 5  # chunks given to the reader
task_id: str = "sda-003"  # the question that only text can answer, from the development split
window: int = 32768  # tokens of the context window that the whole collection is held against
screening_km: float = 5.0  # distance below which a close approach is looked at

# %%
import re
import textwrap
from datetime import UTC, datetime, timedelta
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown, display
from sgp4.conveniences import sat_epoch_datetime

from ragkit.answering import answer_bare, answer_question
from ragkit.conjunction import close_approaches, read_elements
from ragkit.corpus import count_tokens, read_snapshot
from ragkit.errors import InputError
from ragkit.evaluation import check_answer, contains_answer, recall_at_k, reciprocal_rank
from ragkit.lab import figures, quote_metric, show_receipt, write_metrics, write_timings
from ragkit.models import open_embedder, open_reader
from ragkit.profile import load_profile, resolve
from ragkit.retrieval.frozen import open_frozen

figures.use_book_style()


# %% tags=["hide-input"]
def plain(text):
    """Text that Markdown leaves as it is."""
    return re.sub(r"([\\`*_{}\[\]<>$|#~])", r"\\\1", str(text))


def table(*rows):
    """Show rows as a Markdown table; the first is the head."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    display(Markdown("\n".join([head, "|" + "---|" * len(rows[0]), *body])))


def said(name, answer):
    """Print what a reader said, word for word."""
    print(textwrap.fill(f"{name}: {answer.text.strip()}", width=100, subsequent_indent="    "))


# %% [markdown]
# ## By hand: seven equations
#
# Every chapter leans on these seven. The symbols are in the {doc}`/book/glossary`. A model turns the question into a vector
# $q$ and each piece of text, a **chunk**, into a vector $c$. How alike they are is the cosine of the angle between them:
#
# ```{math}
# :label: eq-cosine
# \cos(q, c) = \frac{q \cdot c}{\|q\|\,\|c\|}
# ```
#
# Dividing each vector by its length once, when the index is built, leaves a plain dot product for every later question. A
# vector of length zero has no direction, so it is an error:
#
# ```{math}
# :label: eq-normalise
# \hat{v} = \frac{v}{\|v\|}, \quad \|v\| > 0
# \qquad\Longrightarrow\qquad \cos(q, c) = \hat{q} \cdot \hat{c}
# ```
#
# Search compares the question with every one of the $N$ chunks and keeps the best $k$. That costs $O(N \cdot d)$, and buys
# a guarantee: a miss is a fact about embedding or chunking, never about the search.
#
# ```{math}
# :label: eq-topk
# \operatorname{top}_k(q) = \underset{S \subseteq \{1, \dots, N\},\; |S| = k}{\arg\max} \; \sum_{i \in S} \hat{q} \cdot \hat{c}_i
# ```
#
# Compare the two rows: chunk *c* is the longest vector and comes last all the same.

# %%
q = np.array([3.0, 4.0])
chunks = {"a": np.array([4.0, 3.0]), "b": np.array([0.0, 2.0]), "c": np.array([-6.0, 8.0])}
cosines = {name: float(q @ c / np.linalg.norm(q) / np.linalg.norm(c)) for name, c in chunks.items()}
table(
    ("chunk", *chunks),
    ("length", *(np.linalg.norm(c) for c in chunks.values())),
    ("cosine", *(f"{v:.2f}" for v in cosines.values())),
)

# %%
ranked = sorted(cosines, key=lambda name: (-cosines[name], name))
assert ranked == ["a", "b", "c"]
assert np.allclose(list(cosines.values()), [0.96, 0.80, 0.28])

# %% [markdown]
# Two measures say how good a ranked list is. **Recall** asks which share of the relevant results is among the first $k$,
# averaged over the questions $Q$:
#
# ```{math}
# :label: eq-recall
# \operatorname{recall@}k = \frac{1}{|Q|} \sum_{q \in Q} \frac{|R_q \cap \operatorname{top}_k(q)|}{|R_q|}
# ```
#
# The **mean reciprocal rank** asks how high the first relevant one stands, and counts 0 where there is none within the cut-off
# $k$:
#
# ```{math}
# :label: eq-mrr
# \operatorname{MRR@}k = \frac{1}{|Q|} \sum_{q \in Q}
# \begin{cases} 1 / \operatorname{rank}_q & \text{if } \operatorname{rank}_q \le k \\ 0 & \text{otherwise} \end{cases}
# ```
#
# Suppose the toy's relevant chunks are *a* and *c* for one question and *b* for another, with the same list for both.

# %%
relevant = [{"a", "c"}, {"b"}]
recall = np.mean([recall_at_k(ranked, wanted, 2) for wanted in relevant])
mrr = np.mean([reciprocal_rank(ranked, wanted, 2) for wanted in relevant])
assert (recall, mrr) == ((1 / 2 + 1) / 2, (1 + 1 / 2) / 2)
display(Markdown(f"recall@2 = (1/2 + 1)/2 = **{recall:.2f}**, MRR@2 = (1 + 1/2)/2 = **{mrr:.2f}**"))

# %% [markdown]
# The last two count bytes. An embedder with $P$ parameters of $b$ bytes needs room for them, for its activations $A$ and for
# a process's context $X$ on the card. It reads its text in one pass and keeps no KV cache:
#
# ```{math}
# :label: eq-embedder-memory
# M_{\text{embedder}} = P\,b + A + X
# ```
#
# A generator beside it brings its own weights $W$, a KV cache and a second context. Both live on a card of size $C$ if
#
# ```{math}
# :label: eq-co-residency
# W + KV + P\,b + A_{\text{gen}} + A_{\text{emb}} + 2X \le C, \qquad u_{\text{gen}} + u_{\text{emb}} \le 1
# ```
#
# where $u$ is the share of the card that each server may claim. {doc}`/book/labs/02_vram_budget` fills in the numbers.
#
# ## Compute: a close approach
#
# On 10 February 2009 the working satellite Iridium 33 and the dead Cosmos 2251 came near each other. How near? There is a
# formula. **Elements** describe an orbit in two lines of digits; SGP4 {cite}`vallado2006sgp4` turns them into a position for any
# moment. These are the last sets published before the event, from Space-Track's history as two open-source projects quote it
# ([one](https://github.com/Salad109/satellite-conjunction-detector), [two](https://github.com/neilberkman/sidereon-ex)).

# %%
iridium = read_elements(
    "1 24946U 97051C   09040.78448243 +.00000153 +00000-0 +47668-4 0  9994",
    "2 24946 086.3994 121.7028 0002288 085.1644 274.9812 14.34219863597336",
)
cosmos = read_elements(
    "1 22675U 93036A   09040.49834364 -.00000001  00000-0  95251-5 0  9996",
    "2 22675 074.0355 019.4646 0016027 098.7014 261.5952 14.31135643817415",
)

# %% [markdown]
# A scan of the day in steps of half a minute brackets every minimum of the distance; each is then refined. Satellites in crossing
# orbits come to a minimum twice a revolution. Look at the last column around the smallest.

# %%
start = datetime(2009, 2, 10, tzinfo=UTC)
approaches = close_approaches(iridium, cosmos, start, hours=24)
nearest = min(approaches, key=lambda approach: approach.distance_km)
place = approaches.index(nearest)
table(
    ("minimum", "time, UTC", "speed, km/s", "distance, km"),
    *(
        (f"{number + 1} of {len(approaches)}", f"{a.time:%H:%M:%S}", f"{a.speed_km_s:.2f}", f"{a.distance_km:.2f}")
        for number, a in enumerate(approaches)
        if abs(number - place) <= 2
    ),
)

# %%
metres = 1000 * nearest.distance_km
text = f"**Computed: {metres:.0f} m** at {nearest.time:%H:%M:%S.%f} UTC, passing at {nearest.speed_km_s:.1f} km/s."
display(Markdown(text))

# %% [markdown]
# ## Predict, then measure: how far can it be trusted?
#
# **Prediction, before looking:** anyone who runs SGP4 on these elements gets the same metres. Bennett and colleagues did, and
# published 698.72 m at 16:55:59.80 {cite}`bennett-iridium-cosmos`. The comparison tests our elements as much as our search:
# differing sets for this pair, said to be of the same days, stand in public repositories.

# %%
published_metres = 698.72
off = metres - published_metres
late = (nearest.time - datetime(2009, 2, 10, 16, 55, 59, 800000, UTC)).total_seconds()
agree = abs(off) < 2 and abs(late) < 0.02
text = f"Difference {off:+.1f} m and {late:+.3f} s: the two computations **{'agree' if agree else 'do not agree'}**."
display(Markdown(text))

# %% [markdown]
# Agreement makes the number *deterministic*, not *true*. Bodies leave the orbits that elements describe by 1 to 3 km a day
# {cite}`rhodes-sgp4`. How old were the elements?

# %%
ages = {
    name: (nearest.time - sat_epoch_datetime(s)) / timedelta(days=1)
    for name, s in (("Iridium 33", iridium), ("Cosmos 2251", cosmos))
}
table(
    ("elements of", "age, days", "error to expect, km"),
    *((name, f"{age:.2f}", f"{age:.1f} to {3 * age:.1f}") for name, age in ages.items()),
)


# %% [markdown]
# The largest part of such an error lies along the track, ahead or behind. So let each satellite fly one kilometre ahead of its
# elements, or one behind, and compute again. Look at how little it takes.


# %%
def with_lead(first_km, second_km):
    """The minimum, in metres, when the satellites fly so far ahead of their elements."""
    near = close_approaches(iridium, cosmos, nearest.time - timedelta(minutes=10), 1 / 3, lead_km=(first_km, second_km))
    return 1000 * min(approach.distance_km for approach in near)


shifts = (-1.0, 0.0, 1.0)
table(
    ("metres, Cosmos 2251 →", *(f"{second:+.0f} km" for second in shifts)),
    *((f"Iridium 33 {first:+.0f} km", *(f"{with_lead(first, second):.0f}" for second in shifts)) for first in shifts),
)

# %%
steps = np.linspace(-3, 3, 9)
spread = [with_lead(a * ages["Iridium 33"], b * ages["Cosmos 2251"]) for a, b in product(steps, steps)]
within = sum(value < 1000 * screening_km for value in spread) / len(spread)
one_km = [with_lead(a, b) for a, b in product(shifts, shifts)]
text = (
    f"One kilometre moves the minimum to anything from {min(one_km):.0f} to {max(one_km):.0f} m. With 3 km a day either way it "
    f"lies between {min(spread):.0f} and {max(spread):.0f} m, and in {within:.0%} of the grid below the {screening_km:.0f} km of "
    "a screening."
)
display(Markdown(text))

# %% [markdown]
# In truth the distance was zero: the satellites collided. On the day, a public service that screens the whole catalogue had
# computed 584 m from the same kind of elements, and it was not even that day's most alarming pair {cite}`kelso2009collision`.
# One thing no elements could know: eight hours before, Iridium 33 had fired its thruster twice to keep its station
# {cite}`shepperd-iridium`.
#
# So the computed number carries its own error bar. It says "look at this pair", never "they will miss". A retrieved number has
# no such handle: you cannot shift its input by a kilometre and look again.
#
# ## Look up: the same question
#
# Now the same question goes the other way: embed it, take the nearest chunks by {eq}`eq-topk`, and let a reader answer from
# them. **Prediction:** something will come back. Exact search always returns $k$ chunks.

# %%
choice = load_profile(profile)
frozen = open_frozen(profile, artifacts)
embedder, reader = open_embedder(profile), open_reader(profile)


# %%
def ask(question):
    """One question through the whole loop, as the profile says."""
    return answer_question(
        question, frozen.index, embedder, reader, k,
        min_cosine=choice.retrieval.min_cosine, context_tokens=choice.reader.context_tokens,
    )  # fmt: skip


def nearest_chunks(question):
    """The k nearest chunks, whatever their cosine."""
    return frozen.index.search(embedder.encode_queries([question])[0], k)


def show_hits(hits, accepted):
    """The chunks that were found, and whether each holds an accepted answer."""
    rows = [
        (
            h.rank,
            f"{h.cosine:.3f}",
            plain(h.chunk.title),
            (h.chunk.published_at or "")[:10],
            "yes" if holds(h, accepted) else "no",
        )
        for h in hits
    ]
    table(("rank", "cosine", "article", "date", "holds the answer"), *rows)


def holds(hit, accepted):
    """Whether one of these answers stands in the chunk."""
    return any(contains_answer(hit.chunk.text, text) for text in accepted)


# %%
question = "How close did the satellites Iridium 33 and Cosmos 2251 come to each other on 10 February 2009?"
computed = [f"{metres:.0f} m", f"{nearest.distance_km:.1f} km", f"{nearest.distance_km:.2f} km", "584 m", "0.58 km"]
hits = nearest_chunks(question)
show_hits(hits, computed)

# %% [markdown]
# Read the titles before the scores. The search did its work: these *are* the nearest chunks. The reader gets those above the
# profile's threshold. Its answer, word for word, and beside it what the same model says with nothing to read:

# %%
grounded, bare = ask(question), answer_bare(question, reader)
said("With these chunks", grounded)
said("With nothing", bare)


# %%
def outcome(answer, gold, aliases):
    """What became of an answer: refused, right, or wrong."""
    reason = answer.completion.finish_reason if answer.completion else "stop"
    check = check_answer(answer.text, gold, aliases, finish_reason=reason)
    return check, "refused" if check.refused else "right" if check.correct else f"wrong ({check.rule})"


checks = {
    "computed, with chunks": outcome(grounded, computed[0], computed[1:]),
    "computed, bare": outcome(bare, computed[0], computed[1:]),
}
found = sum(holds(hit, computed) for hit in hits)
others = sum(bool(re.search(r"\d (?:km|kilomet|met[re]{2}s|miles)|\b(?:ten|twenty) metres", hit.chunk.text)) for hit in hits)
named = sum("iridium 33" in c.text.lower() and "2251" in c.text for c in frozen.index.chunks)
text = (
    f"**{found} of {len(hits)} chunks** hold the distance, and {named} of all {len(frozen.index):,} name the pair; {others} of the "
    f"{len(hits)} hold distances of something else. "
    f"With chunks the answer is {checks['computed, with chunks'][1]}, bare it is {checks['computed, bare'][1]}. Accepted were "
    f"the computed {metres:.0f} m and the screening's 584 m."
)
display(Markdown(text))

# %% [markdown]
# Distances of something else are the danger. A reader that is not firm enough hands one of them over, and it looks like an
# answer with a source. Refusing is the best it can do here.
#
# Could one add an article on this collision? Of course, and it would hold one number for one pair and one moment. Three were
# published for this very moment: 584 m, 699 m, and 153 m by a finer method {cite}`bennett-iridium-cosmos`. Tomorrow's pair is in
# none.
#
# ## Look up: a question that only text can answer
#
# No formula gives what a company declared to its regulator. The question is one of the bundled development tasks.

# %%
task = {task.task_id: task for task in frozen.tasks}[task_id]
accepted = [task.gold_answer, *task.aliases]
display(Markdown(f"> {plain(task.question)}"))

# %%
text_hits = nearest_chunks(task.question)
show_hits(text_hits, accepted)

# %%
looked_up, from_memory = ask(task.question), answer_bare(task.question, reader)
said("With these chunks", looked_up)
said("With nothing", from_memory)
for citation in looked_up.citations:
    display(
        Markdown(
            f"- cited: \\[{citation.number}\\] {plain(citation.title)}, {(citation.published_at or '')[:10]}, <{citation.url}>"
        )
    )

# %%
checks |= {
    "looked up, with chunks": outcome(looked_up, task.gold_answer, task.aliases),
    "looked up, bare": outcome(from_memory, task.gold_answer, task.aliases),
}
held = sum(holds(hit, accepted) for hit in text_hits)
text = (
    f"Expected: {plain(task.gold_answer)}. **{held} of {len(text_hits)} chunks** hold it. With chunks the answer is "
    f"**{checks['looked up, with chunks'][1]}**, bare it is **{checks['looked up, bare'][1]}**; {len(looked_up.citations)} "
    f"citation(s) resolve to a source, {len(looked_up.unknown_citations)} name a number that was not given."
)
display(Markdown(text))

# %% [markdown]
# ## One figure for both questions
#
# Before you look: which question has the higher best cosine, the one that the collection answers, or the one that it cannot?

# %% mystnb={"image": {"alt": "Cosine against rank for the nearest chunks of two questions, two falling rows of markers above a dashed line at the threshold; markers of chunks that hold the answer are filled, the others are hollow"}, "figure": {"caption": "Cosine of the nearest chunks for the question that has a formula (squares) and the one whose answer lies in text (circles). Filled: the chunk holds an accepted answer. Dashed: the threshold below which the reader is given nothing.", "name": "fig-two-questions"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(6.5, 3.4))
rows = (("has a formula", hits, computed, "s", "vermillion"), ("lies in text", text_hits, accepted, "o", "blue"))
for label, found_hits, wanted, marker, colour in rows:
    paint = figures.PALETTE[colour]
    ax.plot([h.rank for h in found_hits], [h.cosine for h in found_hits], color=paint, linewidth=1, label=label)
    for h in found_hits:
        ax.plot(h.rank, h.cosine, marker, color=paint, markersize=9, markerfacecolor=paint if holds(h, wanted) else "white")
if choice.retrieval.min_cosine is not None:
    ax.axhline(choice.retrieval.min_cosine, color="black", linestyle="--", label="threshold")
ax.set_xticks(range(1, k + 1))
ax.set_xlabel("rank")
ax.set_ylabel("cosine")
ax.legend()
plt.show()

# %%
best = {"the formula's question": hits[0].cosine, "the text's question": text_hits[0].cosine}
higher = max(best, key=best.get)
threshold = -1.0 if choice.retrieval.min_cosine is None else choice.retrieval.min_cosine
passing = sum(hit.cosine >= threshold for hit in hits)
text = (
    f"**{higher[0].upper() + higher[1:]}** has the higher best cosine: "
    + " against ".join(f"{value:.3f} ({name})" for name, value in best.items())
    + f". {passing} of {len(hits)} chunks of the question that has a formula pass the threshold of {threshold:.2f}."
)
display(Markdown(text))

# %% [markdown]
# A cosine says how alike two texts are. It is no probability that one answers the other, and a threshold on it cannot draw the
# line between computed and looked up. *You* draw it, before the search.
#
# ## Is the comparison valid?
#
# Four doubts. One question stands on each side, picked by us: an illustration has no interval. The collection lacks the
# collision, so the failure is no surprise; the lesson is whether anything in the scores *said* that it was missing. The
# checker looks for the accepted strings on token borders and would miss a right answer in other words. And the bare model may know
# this famous collision by heart: knowing is not computing, and it works for no pair of tomorrow.
#
# ## When retrieval is the wrong tool
#
# **Where a formula exists.** Compute, as above.
#
# **Where everything fits into the context window.** Then give the reader everything first, and see whether retrieval still adds
# something. Does this collection fit?

# %%
snapshot_path = resolve(choice.evaluation.snapshot)
snapshot = read_snapshot(snapshot_path)
tokens = sum(count_tokens(embedder.tokenizer, article.text) for article in snapshot.articles)
fits = tokens < window
text = (
    f"{len(snapshot.articles)} articles, {tokens:,} tokens of the embedder's tokenizer: {tokens / window:.0%} of a window of "
    f"{window:,}, so the collection **{'fits' if fits else 'does not fit'}**. The {k} chunks just given to the reader cost at most "
    f"{k * choice.chunking.size:,}."
)
display(Markdown(text))

# %% [markdown]
# A reader's own tokenizer counts a little differently, and the prompt and the answer need room too. What "fits" buys is the right
# to skip retrieval; the price is that *every* question pays for *all* tokens, and that small models lose the middle of a
# long context {cite}`liu2024lost`. This book retrieves from a collection that fits on purpose: at this size everything can be
# checked.
#
# **Where a style is wanted.** Retrieval brings facts. A tone or a format is asked for in the prompt, or trained. (*Described,
# not measured.*)
#
# **Where the answer is a sum over all documents.** The nearest $k$ chunks are a sample chosen for likeness, and no count can
# be read off a sample like that. A data frame answers exactly:

# %%
frame = pd.read_parquet(snapshot_path)
recent = int((frame["published_at"].str[:4] >= "2025").sum())
counting = "How many articles in this collection were published in 2025 or later?"
counted = ask(counting)
said("With the nearest chunks", counted)

# %%
seen = {hit.chunk.article_id for hit in counted.hits}
checks["sum, with chunks"] = outcome(counted, str(recent), [])
text = (
    f"pandas counts **{recent}** of {len(frame)} (articles without a date are not counted). The search returned chunks of "
    f"{len(seen)} article(s), {'too few' if len(seen) < recent else 'enough'} to count them: the answer is "
    f"{checks['sum, with chunks'][1]}."
)
display(Markdown(text))

# %% [markdown]
# ## How to read a figure and its receipt
#
# Take the figure above. Its caption says what is drawn and what filled and dashed mean; its alternative text says the same to
# those who do not see it; shapes carry what colours carry. No number around it was typed: each was printed by the cell above
# the sentence that you read, in the run that the receipt describes. The words "right", "refused" and "fits" too come from
# rules in the code.
#
# Results and clocks are kept apart. Results are equal when the same thing is run twice; clocks never are. So timings are quoted
# from the run's own file:

# %%
clocks = {
    "retrieval_seconds": looked_up.retrieval_seconds,
    "grounded_seconds": looked_up.completion.seconds if looked_up.completion else 0.0,
    "bare_seconds": from_memory.completion.seconds,
}
write_timings("00_start_here", clocks, profile, artifacts)
shown = [quote_metric(f"00_start_here.timings:{name}:.2f", profile, artifacts) for name in clocks]
text = "For the question that lies in text: {} s to find the chunks, {} s to answer from them, {} s to answer from nothing."
display(Markdown(text.format(*shown)))

# %% [markdown]
# The **receipt** at the end of each chapter answers five questions: *what* ran (digests of the notebook, the package, the data
# and the model files), *on what* (processor, memory, graphics card or none), *with which* libraries, *when* and for how long, and in
# how much memory. Two digests that are equal mean the same bytes. If a figure looks odd, compare the receipts before the
# figures. {doc}`/book/receipts` lists them all.
#
# ## The decision

# %%
by_formula = checks["computed, with chunks"][0].correct
by_text = checks["looked up, with chunks"][0].correct
verdict = (
    f"Compute what has a formula: retrieval gave {'a right' if by_formula else 'no right'} answer to the question that SGP4 "
    f"settles to {abs(off):.1f} m of a published run. Look up what lives in prose: with chunks the other question was answered "
    f"{'rightly' if by_text else 'wrongly or not at all'}, with nothing "
    f"{'rightly' if checks['looked up, bare'][0].correct else 'wrongly or not at all'}."
)
display(Markdown(verdict))

# %% [markdown]
# **Retrieve only what you cannot compute**, and keep the source beside it.
#
# ## Exercises
#
# ```{admonition} 1. Cosine and distance
# :class: tip
# Normalise the toy's vectors by {eq}`eq-normalise` and rank the chunks by Euclidean distance to the question. Does the order
# change?
# ```

# %% tags=["hide-input", "hide-output"]
unit = {name: c / np.linalg.norm(c) for name, c in chunks.items()}
distance = {name: float(np.linalg.norm(q / np.linalg.norm(q) - c)) for name, c in unit.items()}
assert all(np.isclose(distance[name] ** 2, 2 - 2 * cosines[name]) for name in chunks)
same = sorted(distance, key=distance.get) == ranked
display(Markdown(f"The order {'stays' if same else 'changes'}: for unit vectors the squared distance is 2 − 2 cos."))

# %% [markdown]
# ```{admonition} 2. A question without a direction
# :class: tip
# Search the index with a vector of zeros. What should happen, and what would be worse?
# ```

# %% tags=["hide-input", "hide-output"]
try:
    frozen.index.search(np.zeros(frozen.index.dimension, dtype=np.float32), k)
    message = "no error"
except InputError as error:
    message = str(error)
print(textwrap.fill(message, width=100))
display(Markdown('Worse would be an empty list, which reads as "nothing relevant", or any list at all.'))

# %% [markdown]
# ```{admonition} 3. The rest of the week
# :class: tip
# Carry the same elements six days further, as if nothing had happened. How often would the pair have come within 500 km again?
# How far off are the elements by then?
# ```

# %% tags=["hide-input", "hide-output"]
week = close_approaches(iridium, cosmos, start + timedelta(days=1), hours=6 * 24)
near = [approach for approach in week if approach.distance_km < 500]
age = (week[-1].time - nearest.time) / timedelta(days=1) + max(ages.values())
text = (
    f"{len(near)} of {len(week)} minima lie below 500 km, the smallest at {min(a.distance_km for a in week):.1f} km. At the end "
    f"the elements are {age:.1f} days old and off by {age:.0f} to {3 * age:.0f} km: nothing here is worth a report before "
    "fresh elements."
)
display(Markdown(text))

# %% [markdown]
# ## Recap
#
# 1. We computed a close approach of two satellites from published elements, and found out how far it can be trusted.
# 2. We put the same question to retrieval, then one that only text can answer, and read both off one figure.
# 3. We decided when retrieval is the wrong tool, and learned what a receipt says.

# %%
path = write_metrics("00_start_here", {
    "close_approach": {
        "metres": metres, "published_metres": published_metres, "speed_km_s": nearest.speed_km_s, "minima": len(approaches),
        "metres_one_km_in_track": [min(one_km), max(one_km)], "metres_three_km_a_day": [min(spread), max(spread)],
        "share_within_screening": within, "age_days": ages,
    },
    "cosines": {"formula": [h.cosine for h in hits], "text": [h.cosine for h in text_hits]},
    "chunks_with_answer": {"formula": found, "text": held},
    "chunks_with_other_distances": others,
    "outcomes": {name: words for name, (_, words) in checks.items()},
    "collection": {"articles": len(frame), "chunks": len(frozen.index), "tokens": tokens, "window": window, "recent": recent},
}, profile, artifacts)  # fmt: skip
reader.close()
embedder.close()

# %%
show_receipt(profile, used=[embedder, reader], data=[choice.evaluation.snapshot])
