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
# # The data: a statement, with its measured properties
#
# **Claim.** The articles and questions of this book are an instrument whose properties are known: where each fact comes from, how
# far questions repeat the wording of their evidence, what a search without any model finds, what a reader knows without any
# article, and which differences the frozen test split can detect.
#
# **Its limit.** A language model wrote both sides, and what was checked was checked by language models and by scripts. It is
# a collection to compare methods on, not a sample of anything and not a source on spaceflight.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | {doc}`/book/labs/04_retrieval_metrics` for recall and MRR |
# | helpful | {doc}`/book/labs/05_paired_eval` for what a detectable difference is |
# | time and memory | about a minute; the embedder is opened for its tokenizer, nothing is embedded |
# | writes | `artifacts/PROFILE/metrics/10_data_statement.json` |

# %% [markdown]
# In this notebook we
#
# 1. say what the collection holds, where it comes from, and what it cannot stand for;
# 2. measure articles and questions: lengths, near-duplicates, shared words, what BM25 finds, what a bare reader knows;
# 3. print what the frozen test split is, and the smallest difference it can detect.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
k: int = 5  # chunks that a search returns
near: float = 0.8  # cosine of two articles' mean vectors from which they are called near-duplicates
power: float = 0.8  # the chance with which a detectable difference would be found
alpha: float = 0.05  # of the exact test in the power statement

# %%
import json
import math
import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import matplotlib.pyplot as plt
import numpy as np
import yaml
from IPython.display import Markdown, display

from ragkit.corpus import chunk_article, read_snapshot
from ragkit.evaluation.benchmark import clusters, is_frozen, question_overlap, read_freeze, similar_articles, task_articles
from ragkit.evaluation.items import paired, read_records
from ragkit.evaluation.report import accuracy, retrieval_rows, retrieval_summary
from ragkit.evaluation.statistics import (
    intraclass_correlation,
    minimum_detectable_effect,
    minimum_detectable_effect_clustered,
    paired_difference,
    wilson_interval,
)
from ragkit.lab import figures, show_receipt, write_metrics
from ragkit.models import open_embedder
from ragkit.profile import load_profile
from ragkit.records import Hit
from ragkit.retrieval.frozen import open_frozen
from ragkit.retrieval.lexical import build_lexical, tokenize

figures.use_book_style()


# %% tags=["hide-input"]
def table(*rows):
    """Show rows as a Markdown table; the first is the head."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    display(Markdown("\n".join([head, "|" + "---|" * len(rows[0]), *body])))


def plain(text):
    """Text as it stands, on one line: nothing in it is taken for Markdown."""
    return re.sub(r"[\\`*_{}\[\]<>$|#~&:]", lambda found: f"&#{ord(found.group())};", " ".join(str(text).split()))


def spread(summary):
    """A mean and its interval as text."""
    low, high = summary["interval"]
    return f"{summary['mean']:.3f} ({low:.3f} to {high:.3f})"


def part(count, n):
    """A count of n, its share and Wilson's interval as text."""
    low, high = wilson_interval(count, n)
    return f"{count} of {n} ({count / n:.2f}; {low:.2f} to {high:.2f})"


# %%
chosen = load_profile(profile)
frozen = open_frozen(chosen, artifacts)
tasks = frozen.tasks
articles = read_snapshot(chosen.evaluation.snapshot).articles
front = {}
for article in articles:
    file = Path("data/articles", f"{article.article_id}.md")
    front[article.article_id] = yaml.safe_load(file.read_text(encoding="utf-8").split("---\n", 2)[1])
text_of = {article.article_id: article.text for article in articles}

# %% [markdown]
# ## What is in it
#
# | path | what it is |
# |---|---|
# | `data/articles/*.md` | the articles, one Markdown file each, with the addresses their facts come from |
# | `data/articles_snapshot.parquet` | the same articles as one frozen table, the {term}`snapshot` that all runs read |
# | `data/tasks/sda_qualitative_tasks.jsonl` | the questions with answers and evidence, one JSON object a line |
# | `data/tasks/frozen.json` | the digest of the frozen test split, with its date |
# | `data/tasks/curation.json`, `checks.yaml` | what was asked and checked before the freeze, and by what |
# | `data/confusable_articles.yaml` | pairs of articles that a search can take for each other |
# | `data/published/` | figures that others published, which `ragkit reproduce` is held against |
# | `data/model_configs.csv`, `data/configs/`, `data/vllm_memory_observations.csv` | for the memory budget: sizes of models with where they were read, memory that public logs report |
#
# The articles are about spaceflight, above all about what happens to things in orbit: manoeuvres to avoid debris, break-ups,
# anti-satellite tests, re-entries, close approaches, constellations, traffic rules, crews and cargo. A second part are lessons
# that NASA recorded after things went wrong; the rest are missions and observations.

# %%
topics = Counter(front[article.article_id]["topic"] for article in articles)
recent = [a for a in articles if (a.published_at or "") >= "2024-07"]
dated = [a for a in articles if a.published_at]
table(("topic", "articles"), *topics.most_common())
text = (
    f"**{len(articles)} articles.** {len(dated)} carry the date of their main page, {len(recent)} of those a date after mid-2024, "
    f"when the default reader's knowledge ends."
)
display(Markdown(text))

# %% [markdown]
# ### Where the facts come from
#
# Each article names the page its facts come from, and further pages. Not all are an agency's or a newsroom's: a stored copy of
# the public web was read, and where it had only a secondary page, that page is named. The kinds below are told by the address.

# %%
AGENCIES = (
    "nasa.gov",
    "esa.int",
    "jaxa.jp",
    "isro.gov.in",
    ".mil",
    ".gov",
    "gov.uk",
    "europa.eu",
    "eumetsat.int",
    "cnes.fr",
    "dlr.de",
)
PRESS = (
    "spacenews.com", "spaceflightnow.com", "nasaspaceflight.com", "spacepolicyonline.com", "space.com", "arstechnica.com",
    "europeanspaceflight.com", "payloadspace.com", "breakingdefense.com", "universetoday.com", "satellitetoday.com",
)  # fmt: skip


def kind_of(url):
    """agency, space press or other, by the host of an address."""
    host = urlsplit(url).hostname or ""
    if any(host == end.lstrip(".") or host.endswith(end if end.startswith(".") else f".{end}") for end in AGENCIES):
        return "agency"
    return "space press" if any(host == end or host.endswith(f".{end}") for end in PRESS) else "other"


main_kinds = Counter(kind_of(front[a.article_id]["url"]) for a in articles)
urls = {url for fields in front.values() for url in (fields["url"], *(fields.get("sources") or ()))}
all_kinds = Counter(map(kind_of, urls))
table(
    ("kind of page", "as main source", "among all addresses"), *((kind, main_kinds[kind], all_kinds[kind]) for kind in all_kinds)
)

# %% [markdown]
# ### How it was written, and checked
#
# A language model wrote articles and questions with the sources before it. Facts and figures carry over, sentences do not: a
# script looks for runs of eight words in common with any source text. Then, before the freeze, in this order: questions were
# reviewed across articles; a sample of articles was checked fact by fact against its sources; a sample of questions was answered
# from the article alone by a language model that had not seen the answers; and every answerable question was put to *another*
# reader than the one evaluated here, bare and with an article drawn at random. What those answered right was looked at.

# %%
checks = yaml.safe_load(Path("data/tasks/checks.yaml").read_text(encoding="utf-8"))
table(
    ("check", "on", "by", "looked at", "found", "what was done"),
    *((row["check"], row["on"], row["by"], row["looked_at"], row["found"], row["done"]) for row in checks),
)

# %% [markdown]
# ### Where it cannot stand
#
# - **It is small.** Exact search is easy here and distractors are few. Recall in a large archive will be lower.
# - **One house wrote both sides.** Articles and questions share an author that is a language model; so are most of the checks.
# - **It is not a sample.** Articles were chosen because sources were at hand. Nothing follows about spaceflight at large.
# - **It is second-hand.** An error of a source is an error here. Where sources disagreed, articles say so or leave the fact out.
# - **Some of it is old knowledge.** Well-known missions stand in every model's training data; the bare arm shows how much.
# - **It is in English only**, and questions ask for short answers. Long reports, tables, formulas and images are absent.
# - **It ages.** Articles on recent events state what was known on their date.
#
# Do not use it to plan, operate or insure anything.
#
# **Licences.** Code: Apache License 2.0 (`LICENSE`). The book's pages, the prose of the notebooks, articles and tasks: [CC BY
# 4.0](https://creativecommons.org/licenses/by/4.0/) (`LICENSE-text`). The pages that articles draw on keep their own terms. Model
# weights are not part of the repository; their licences stand where the models are pinned. Collections of others are not in it
# either: checks on them are run by hand with `make verify DATA=folder`, and only figures and receipts are committed.
#
# ## The articles, measured
#
# Length decides whether chunking matters at all: where every article is one chunk, every chunker ties.

# %%
words = {a.article_id: len(a.text.split()) for a in articles}
sizes = (64, 128, 256, 512)
with open_embedder(chosen) as embedder:
    per_size = {
        size: [len(chunk_article(a, embedder.tokenizer, size=size, overlap=size // 8)) for a in articles] for size in sizes
    }
counted = list(words.values())
table(
    ("words an article", "value"),
    ("fewest, median, most", f"{min(counted)}, {np.median(counted):.0f}, {max(counted)}"),
    ("over 400", sum(n > 400 for n in counted)),
    ("over 800", sum(n > 800 for n in counted)),
)
table(
    ("tokens a chunk, overlap an eighth", "chunks", "an article, median", "an article, most", "articles of one chunk"),
    *((size, sum(n), f"{np.median(n):.0f}", max(n), sum(one == 1 for one in n)) for size, n in per_size.items()),
)

# %% mystnb={"image": {"alt": "Histogram of article lengths in words, most articles between 150 and 600 words, a tail up to about a thousand"}, "figure": {"caption": "Lengths of the articles in words.", "name": "fig-article-lengths"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(7.0, 2.6))
ax.hist(counted, bins=range(0, max(counted) + 50, 50), edgecolor="white")
ax.set_xlabel("words")
ax.set_ylabel("articles")
plt.show()

# %%
stems = Counter(stem for a in articles for stem in set(tokenize(a.text)))
once = sum(n == 1 for n in stems.values())
text = f"Vocabulary: {len(stems)} stems (names kept whole, stop words out); {once / len(stems):.0%} stand in one article only."
display(Markdown(text))

# %% [markdown]
# ### Near-duplicates and confusable pairs
#
# Two articles on similar events let a search go wrong. Their likeness is the cosine of their mean chunk vectors.

# %%
index = frozen.index
likeness = {frozenset(pair[:2]): pair[2] for pair in similar_articles(index.chunks, index.vectors, -1.0)}
alike = [(a, b) for a, b, _ in similar_articles(index.chunks, index.vectors, near)]
groups = [group for group in clusters(alike) if len(group) > 1]
declared = yaml.safe_load(Path("data/confusable_articles.yaml").read_text(encoding="utf-8"))
median = float(np.median(list(likeness.values())))
text = (
    f"{len(alike)} pairs have a cosine of at least {near}; they hang together in {len(groups)} clusters of {sum(map(len, groups))} "
    f"articles, the largest of {max(map(len, groups), default=0)}. The median over all pairs is {median:.2f}. **{len(declared)} pairs "
    f"were listed as confusable** while writing; their median cosine is "
    f"{np.median([likeness[frozenset(pair[:2])] for pair in declared]):.2f}."
)
display(Markdown(text))

# %% tags=["hide-output"]
table(
    ("article", "article", "cosine", "what they have in common"),
    *((a, b, f"{likeness[frozenset((a, b))]:.2f}", plain(why)) for a, b, why in declared),
)

# %% [markdown]
# ## The questions, measured
#
# Five kinds: a `fact` (name, number, date), a `reason`, `recency` (about an event after mid-2024), `multi-article` (evidence in two
# articles), and `unanswerable` (it sounds as if the collection held the answer, and it does not; a refusal is the right reply).
# An answer is right where the {term}`gold answer` or an alias stands in it, by the rules of {doc}`/book/labs/05_paired_eval`.

# %%
of_split = {split: [task for task in tasks if task.split == split] for split in ("dev", "test")}
kinds = ("fact", "reason", "recency", "multi-article", "unanswerable")
table(
    ("kind", "development", "test", "guessed easy", "medium", "hard"),
    *(
        (
            kind,
            *(sum(task.kind == kind for task in of_split[split]) for split in of_split),
            *(sum(task.kind == kind and task.difficulty == guess for task in tasks) for guess in ("easy", "medium", "hard")),
        )
        for kind in kinds
    ),
    (
        "all",
        *(len(rows) for rows in of_split.values()),
        *(sum(t.difficulty == g for t in tasks) for g in ("easy", "medium", "hard")),
    ),
)

# %% [markdown]
# ### Shared words
#
# A question that repeats the wording of its evidence tests a memory for words. Counted are content words by their stem; names,
# numbers and stop words do not count.

# %%
overlaps = [question_overlap(task, text_of) for task in tasks if task.golds]
shared = Counter(len(overlap.shared) for overlap in overlaps)
mean_share = float(np.mean([len(o.shared) / max(1, len(o.words)) for o in overlaps]))
table(("content words shared with the gold span", "questions"), *sorted(shared.items()))
text = f"**{part(shared[0], len(overlaps))} share none.** On average {mean_share:.0%} of a question's content words stand in its span."
display(Markdown(text))

# %% [markdown]
# ### What a search finds, without any reader
#
# BM25 knows words only, the dense retriever meanings only. Both run on the **development split**; on the test split nothing has
# been searched or answered.

# %%
dev = [task for task in of_split["dev"] if task.golds]
lexical = build_lexical(index.chunks)
found = {
    "dense": frozen.hits(dev, k),
    "BM25": [[Hit(hit.chunk, math.nan, hit.rank) for hit in hits] for hits in lexical.search_many([t.question for t in dev], k)],
}
rows = {name: retrieval_rows(dev, hits, k) for name, hits in found.items()}
summary = {name: retrieval_summary(of, chosen.evaluation.seed)["detail"] for name, of in rows.items()}
levels = ("article_recall", "article_rr", "chunk_recall", "chunk_rr")
table(
    ("retriever", f"article recall@{k}", f"article MRR@{k}", f"chunk recall@{k}", f"chunk MRR@{k}"),
    *((name, *(spread(detail[level]) for level in levels)) for name, detail in summary.items()),
)
compared = {
    level: paired_difference(
        *([row[level] for row in rows[name]] for name in ("dense", "BM25")), clusters=[row["cluster"] for row in rows["dense"]]
    )
    for level in ("article_recall", "chunk_recall")
}
first = sum(row["by_k"][0]["chunk_hit"] == 1 for row in rows["BM25"])
limit = 0.97
ceiling = all(detail["article_recall"]["mean"] > limit for detail in summary.values())
text = (
    f"n = {len(dev)}, intervals over articles. Dense − BM25, chunk recall@{k}: {compared['chunk_recall'].delta:+.3f} "
    f"({compared['chunk_recall'].cluster_interval[0]:+.3f} to {compared['chunk_recall'].cluster_interval[1]:+.3f}): "
    f"**{compared['chunk_recall'].verdict}**. BM25 alone puts a gold chunk first for {part(first, len(dev))}. Article recall@{k} of "
    f"both is {'**above' if ceiling else 'not above'} {limit}{'**: the questions are too easy' if ceiling else ''}."
)
display(Markdown(text))

# %% [markdown]
# ### What a reader knows without any article
#
# Questions that a bare reader answers cannot show a gain. The evaluated reader's bare arm on the development split, by kind:

# %%
bare = [row for row in read_records(f"{artifacts}/{chosen.name}/runs/dev", ["A0"])["A0"] if row["answerable"]]
knows = {kind: accuracy([row for row in bare if row["kind"] == kind]) for kind in kinds[:-1]}
table(
    ("kind", "right without any context"),
    *((kind, part(rate["count"], rate["n"])) for kind, rate in knows.items() if rate["n"]),
    ("all", part(sum(row["correct"] for row in bare), len(bare))),
)

# %% [markdown]
# Before the freeze, the answerable questions of both splits were put to another, smaller reader, bare and with a random article.
# A question that is answered right from a random article needs no evidence and was removed. Others had been removed before. Where
# so small a reader answers nothing, that only says that no question gives its answer away; a larger one may know more.

# %%
curation = json.loads(Path("data/tasks/curation.json").read_text(encoding="utf-8"))
removed = curation["removed"]
table(
    ("asked of " + curation["reader"]["model"], "answered right"),
    ("the bare question", part(len(curation["bare"]), curation["asked"])),
    ("with a random article", part(len(curation["random_article"]), curation["asked"])),
)
text = (
    f"{curation['asked']} questions were asked. Removed before the freeze: "
    + "; ".join(f"{len(ids)} ({why})" for why, ids in removed.items())
    + "."
)
display(Markdown(text))

# %% [markdown]
# ### Unanswerable, and why
#
# For each unanswerable question: the chunks that score best, and what the nearest article says instead.

# %% tags=["hide-output"]
hopeless = [task for task in tasks if not task.answerable]
table(
    ("question", "best chunks (cosine)", "why they do not answer"),
    *(
        (plain(task.question), ", ".join(f"{hit.chunk.chunk_id} ({hit.cosine:.2f})" for hit in hits), plain(task.why or ""))
        for task, hits in zip(hopeless, frozen.hits(hopeless, 2), strict=True)
    ),
)
best = [hits[0].cosine for hits in frozen.hits(hopeless, 1)]
best_dev = [hits[0].cosine for hits in frozen.hits(dev, 1)]

# %%
text = (
    f"{len(hopeless)} unanswerable questions. Their best cosine has a median of {np.median(best):.2f}; that of the answerable "
    f"questions of the development split {np.median(best_dev):.2f}. How far the two overlap is what a score threshold has to live with."
)
display(Markdown(text))

# %% [markdown]
# ## The splits, and what the frozen one can detect
#
# The tasks are split by article: all questions of an article, and of articles that one question joins, lie on one side. The
# development split is for looking and tuning. The test split is frozen: its digest is in the repository, a test fails when it
# changes, and no arm has been run on it before its primary comparison and its checker are declared.

# %%
freeze = read_freeze("data/tasks/frozen.json")
assert is_frozen(tasks, freeze), "the test split is not the frozen one: every figure of it is exploratory"
sides = [{article for task in of_split[split] for article in task_articles(task)} for split in of_split]
assert not sides[0] & sides[1], "an article is on both sides"
table(
    ("split", "answerable", "unanswerable", "gold articles"),
    *(
        (
            split,
            sum(task.answerable for task in rows),
            sum(not task.answerable for task in rows),
            len({gold.article_id for task in rows for gold in task.golds}),
        )
        for split, rows in of_split.items()
    ),
)
display(Markdown(f"Frozen on {freeze['frozen_on']}, digest `{freeze['digest'][:16]}`."))

# %% [markdown]
# The smallest true difference between two arms that the exact test finds with the wanted power, for several shares of questions
# on which the arms disagree. Questions about one article are not independent: the intraclass correlation (ICC) of the
# differences A4 − A1, estimated on the development split, says what n clustered questions are worth.

# %%
records = read_records(f"{artifacts}/{chosen.name}/runs/dev", ["A1", "A4"])
pairs = paired(records["A4"], records["A1"])
differences = [int(a["correct"]) - int(b["correct"]) for a, b in pairs]
icc = max(0.0, intraclass_correlation(differences, [a["cluster"] for a, _ in pairs]))
discordance = sum(d != 0 for d in differences) / len(differences)
test = [task for task in of_split["test"] if task.answerable]
mean_size = len(test) / len({task.golds[0].article_id for task in test})


def points(effect):
    """A detectable difference in points, rounded up, or that there is none."""
    return "none" if effect is None else f"{math.ceil(100 * effect - 1e-9)}"


shares = sorted({0.2, 0.4, round(discordance, 2)} - {0.0})
detectable = {
    share: (
        minimum_detectable_effect(len(test), share, power, alpha),
        minimum_detectable_effect_clustered(len(test), share, mean_size, icc, power, alpha),
    )
    for share in shares
}
table(
    ("the arms disagree on", f"n = {len(test)}, points", "with clusters, points"),
    *((f"{share:.0%}", *map(points, pair)) for share, pair in detectable.items()),
)
text = (
    f"On the development split A4 and A1 disagree on {discordance:.0%} of {len(pairs)} questions, with an ICC of {icc:.2f}; the test split "
    f"has {mean_size:.2f} questions an article."
)
display(Markdown(text))

# %% [markdown]
# ## Decision

# %%
text = (
    f"**Decision.** The collection of {len(articles)} articles and {len(tasks)} questions is used to compare arms on one reader, and "
    f"for nothing else. A difference below {points(detectable[shares[-1]][1])} points on the frozen split is out of its reach where "
    f"the arms disagree on {shares[-1]:.0%} of the questions."
)
display(Markdown(text))

# %% [markdown]
# ## Recap
#
# 1. We said what the collection holds, where it comes from, and what it cannot stand for.
# 2. We measured articles and questions: lengths, near-duplicates, shared words, what BM25 finds, what a bare reader knows.
# 3. We printed what the frozen test split is, and the smallest difference it can detect.

# %%
path = write_metrics("10_data_statement", {
    "articles": len(articles), "topics": dict(topics), "recent": len(recent), "words": {"median": float(np.median(counted)),
    "over_400": sum(n > 400 for n in counted), "over_800": sum(n > 800 for n in counted)}, "pages": len(urls), "main_kinds": dict(main_kinds),
    "chunks": {str(size): sum(n) for size, n in per_size.items()}, "vocabulary": len(stems), "near_pairs": len(alike),
    "near_clusters": len(groups), "confusable_pairs": len(declared),
    "tasks": {split: dict(Counter(task.kind for task in rows)) for split, rows in of_split.items()},
    "no_shared_word": shared[0], "spans": len(overlaps), "mean_overlap": mean_share,
    "retrieval": {name: {level: detail[level] for level in levels} for name, detail in summary.items()},
    "bm25_first": first, "n_dev": len(dev), "bare_right": sum(row["correct"] for row in bare), "curation_asked": curation["asked"],
    "removed": {why: len(ids) for why, ids in removed.items()}, "frozen": freeze, "icc": icc, "discordance": discordance,
    "detectable": {str(share): list(pair) for share, pair in detectable.items()},
}, profile, artifacts)  # fmt: skip

# %%
show_receipt(profile, data=[chosen.evaluation.tasks, chosen.evaluation.snapshot])
