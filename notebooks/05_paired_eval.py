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
# # The paired evaluation: does retrieval help?
#
# **Claim.** Whether retrieval helps is a question about *differences on the same questions*: which ones are answered only with
# the retrieved context (gains), which only without it (harms). The interval of that difference decides, and it is computed by a
# rule that was fixed before anyone looked.
#
# **Its limit.** The figures are of the **development split**, which was looked at while this book was made: they are exploratory
# until the frozen test split is run. They hold for one reader, one corpus and a checker that compares strings.

# %% [markdown]
# | at a glance | |
# |---|---|
# | needs | {doc}`/book/labs/04_retrieval_metrics`; the arms' answers, which `make rerun` stored |
# | helpful | having once met a confidence interval |
# | time and memory | about a minute; no model is loaded, the stored answers are read |
# | writes | `artifacts/PROFILE/rag_report.json`, `items.parquet`, `metrics/05_paired_eval.json` |

# %% [markdown]
# In this notebook we
#
# 1. work out a paired comparison of fifty questions by hand, and say beforehand what ours can detect;
# 2. compare the reader with and without retrieved context, question by question: gains and harms first, marginals last;
# 3. ask what could make the numbers lie, read three items closely, and decide.

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
power: float = 0.8  # the chance with which a detectable difference would be found
alpha: float = 0.05  # of the exact test in the power statement
excerpt: int = 420  # characters of a chunk that are shown where an item is read closely

# %%
import math
import re

import matplotlib.pyplot as plt
from IPython.display import Markdown, display

from ragkit.corpus.tasks import tasks_digest
from ragkit.errors import InputError
from ragkit.evaluation.arms import ARMS
from ragkit.evaluation.checking import check_answer, contains_answer
from ragkit.evaluation.items import covers, paired, read_records
from ragkit.evaluation.report import rag_report, retrieval_rows, write_items, write_report
from ragkit.evaluation.statistics import (
    effective_sample_size,
    intraclass_correlation,
    mcnemar_exact,
    minimum_detectable_effect,
    paired_binary,
    wilson_interval,
)
from ragkit.lab import figures, read_metric, show_receipt, write_metrics
from ragkit.profile import load_profile
from ragkit.retrieval.frozen import open_frozen

figures.use_book_style()


# %% tags=["hide-input"]
def plain(text, longest=None):
    """Text of an article, a question or a model as it stands, on one line: nothing in it is taken for Markdown."""
    line = " ".join(str(text).split())
    line = line if longest is None or len(line) <= longest else line[:longest].rsplit(" ", 1)[0] + " …"
    return re.sub(r"[\\`*_{}\[\]<>$|#~&:]", lambda found: f"&#{ord(found.group())};", line)


def table(*rows):
    """Show rows as a Markdown table; the first is the head."""
    head, *body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    display(Markdown("\n".join([head, "|" + "---|" * len(rows[0]), *body])))


def between(interval, form="+.3f"):
    """An interval as text."""
    return "–" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}"


def share(part):
    """A proportion with its count and Wilson interval as text."""
    return f"{part['count']} of {part['n']} ({between(part['interval'], '.2f')})" if part["n"] else "no such question"


# %% [markdown]
# ## By hand: fifty questions, two arms
#
# Both arms answer the same fifty questions. 36 are right in both, 12 only in the treated arm, 2 only in the control, none in
# neither. The difference is (12 − 2) / 50: the 36 say nothing about it, whatever their number.

# %%
both, gains, harms, neither = 36, 12, 2, 0
toy = paired_binary([1] * 36 + [1] * 12 + [0] * 2, [1] * 36 + [0] * 12 + [1] * 2)
assert (toy.both, toy.gains, toy.harms, toy.neither) == (both, gains, harms, neither)
assert toy.delta == (12 - 2) / 50

# %% [markdown]
# If context made no difference, each of the 14 changed questions would fall to either side like a coin. **McNemar's exact p** is
# the chance of a split at least as uneven as 12 to 2.

# %%
coin = 2 * (math.comb(14, 0) + math.comb(14, 1) + math.comb(14, 2)) / 2**14
assert math.isclose(toy.p_exact, coin)
assert [round(limit, 4) for limit in toy.interval] == [0.0611, 0.3447]  # Tango's score interval

# %%
text = (
    f"Difference {toy.delta:+.3f}, 95 % interval {between(toy.interval, '+.4f')} ({toy.interval_method}), exact p = "
    f"{toy.p_exact:.4f}, mid-p = {toy.p_midp:.4f}: **{toy.verdict}**."
)
display(Markdown(text))

# %% [markdown]
# Why not compare two accuracies? Because two intervals that overlap say nothing about a paired difference. Another table: 171
# right in both, 14 gains, 4 harms, 35 in neither. Look at the overlap of the first two intervals, then at the third.

# %%
other = paired_binary([1] * 171 + [1] * 14 + [0] * 4 + [0] * 35, [1] * 171 + [0] * 14 + [1] * 4 + [0] * 35)
table(
    ("", "estimate", "95 % interval"),
    ("treated", f"{185 / 224:.3f}", between(wilson_interval(185, 224), ".3f")),
    ("control", f"{175 / 224:.3f}", between(wilson_interval(175, 224), ".3f")),
    ("difference, paired", f"{other.delta:+.3f}", between(other.interval)),
)
assert wilson_interval(185, 224)[0] < wilson_interval(175, 224)[1]
assert other.interval[0] > 0

# %% [markdown]
# ## Declared before looking
#
# Four arms: one reader, one question, one token budget. Only what stands in the prompt differs.

# %%
read = ("A0", "A1", "A4", "A6")
table(("arm", "what the prompt holds; what it isolates"), *((arm, ARMS[arm]) for arm in read))

# %% [markdown]
# **Hypothesis.** Retrieved context makes more answers right than it makes wrong. **Primary comparison:** A4 − A1, so that the
# instructions are the same on both sides and only the context differs. **Rule:** the verdict is "helps" (or "hurts") where
# Tango's interval *and* a bootstrap over gold articles exclude zero on that side, else "not established"; with fewer than five
# changed questions Newcombe's method 10 takes Tango's place. P-values are printed and do not rule. Wrong, truncated and failed
# answers are all wrong. Unanswerable questions score refusal, apart.

# %%
chosen = load_profile(profile)
k, seed = chosen.retrieval.k, chosen.evaluation.seed
frozen = open_frozen(chosen, artifacts)
tasks = frozen.select(chosen.evaluation.split, chosen.evaluation.limit)
task_of = {task.task_id: task for task in tasks}
records = read_records(f"{artifacts}/{chosen.name}/runs/{chosen.evaluation.split}", read)

# %%
for arm in read:
    expected = {task.task_id for task in tasks if task.golds or arm != "A6"}
    assert {row["task_id"] for row in records[arm]} == expected, f"the rows of {arm} are of other tasks: run the arm again"
treated, control = chosen.evaluation.primary
pairs = paired(records[treated], records[control])
state = "exploratory" if chosen.evaluation.split == "dev" else "confirmatory"
text = (
    f"Reader {chosen.reader.model}, k = {k}, split {chosen.evaluation.split} (**{state}**): {len(tasks)} questions, "
    f"{len(pairs)} answerable, {sum(not task.answerable for task in tasks)} not. Primary: {treated} − {control}."
)
display(Markdown(text))

# %% [markdown]
# ### What can this comparison detect?
#
# The smallest true difference that the exact test finds with the wanted power, for several shares of questions on which the arms
# might disagree. Questions about one article are not independent: the intraclass correlation (ICC) of the differences says what
# n clustered questions are worth. It is estimated on the development split; that uses the outcomes' spread, not their sign.

# %%
clusters = [a["cluster"] for a, _ in pairs]
differences = [int(a["correct"]) - int(b["correct"]) for a, b in pairs]
icc = intraclass_correlation(differences, clusters) if len(set(clusters)) > 1 else 0.0
size = len(pairs) / len(set(clusters))
worth = effective_sample_size(len(pairs), size, icc)
test_n = sum(task.answerable for task in frozen.select("test"))


def points(n, discordance):
    """The detectable difference in points, rounded up, or that there is none."""
    effect = minimum_detectable_effect(n, discordance, power, alpha) if n else None
    return "none" if effect is None else f"{math.ceil(100 * effect - 1e-9)}"


# %%
table(
    ("the arms disagree on", f"n = {len(pairs)}", f"clustered, worth {worth}", f"test split, n = {test_n}", "n = 200"),
    *((f"{part:.0%}", *(points(n, part) for n in (len(pairs), worth, test_n, 200))) for part in (0.2, 0.4, 0.6)),
)
text = (
    f"Detectable differences in points. {len(set(clusters))} articles stand behind {len(pairs)} questions: {size:.2f} a piece, "
    f"ICC {icc:.2f}, worth {worth} independent ones."
)
display(Markdown(text))

# %% [markdown]
# ## Predict, then measure
#
# What to expect comes from a first trial on another collection (80 of SQuAD's questions about Apollo, the same reader): few
# answers known without context, a difference of some sixty points, a ceiling about ten points above retrieval. **Prediction:**
# A4 − A1 of at least 30 points; A1 and A0 less than 10 points apart; A6 above A4, by less than 25 points.

# %%
retrieval = retrieval_rows(tasks, frozen.hits(tasks, k), k)
provenance = {
    "profile": chosen.digest,
    "reader": chosen.reader.model,
    "embedder": chosen.embedder.model,
    "index": frozen.index.manifest["key"],
    "tasks": tasks_digest(tasks),
    "split": chosen.evaluation.split,
    "status": state,
}
report = rag_report(records, retrieval, k, chosen.evaluation.primary, provenance, seed)
primary = report["comparisons"][report["primary"]]

# %% [markdown]
# ### Gains and harms first
#
# The harms, each with both answers. A harm is a right answer that the context took away, so each deserves a look.

# %%
by_id = {arm: {row["task_id"]: row for row in rows} for arm, rows in records.items()}
display(Markdown(f"**{primary['harms']} harms** of {treated} against {control}:"))
if primary["harm_ids"]:
    table(
        ("item", "question", f"{control} (right)", f"{treated} (wrong)"),
        *(
            (key, plain(task_of[key].question), *(plain(by_id[arm][key]["answer"], 120) for arm in (control, treated)))
            for key in primary["harm_ids"]
        ),
    )

# %% [markdown]
# The gains: questions answered with the retrieved context and not without it. Hold each answer against the gold: the checker
# matches strings, and an answer can hold the right words and still say something else.

# %%
display(Markdown(f"**{primary['gains']} gains** of {treated} against {control}:"))
if primary["gain_ids"]:
    table(
        ("item", "question", "gold", f"{treated} (right)"),
        *(
            (key, plain(task_of[key].question), plain(task_of[key].gold_answer), plain(by_id[treated][key]["answer"], 240))
            for key in primary["gain_ids"]
        ),
    )

# %% [markdown]
# ### The difference, its interval, the p-values
#
# Look at the interval before the p-value, and at the bootstrap over articles beside it.

# %%
text = (
    f"{treated} − {control}, n = {primary['n']}: both {primary['both']}, gains {primary['gains']}, harms {primary['harms']}, "
    f"neither {primary['neither']}. Difference **{primary['delta']:+.3f}**, 95 % interval **{between(primary['interval'])}** "
    f"({primary['interval_method']}), over {primary['clusters']} articles {between(primary['cluster_interval'])} (BCa). "
    f"Exact p = {primary['mcnemar_p']:.2g}, mid-p = {primary['mcnemar_midp']:.2g}. Verdict: **{primary['verdict']}**."
)
display(Markdown(text))

# %% [markdown]
# Beside it the other comparisons. A4 − A0 mixes the context with the instructions. A6 − A4 is what perfect retrieval would still
# add, and a little more: A6 gets the gold chunk alone, so it is also spared the near misses. A1 − A0 is what the instructions
# do alone.

# %%
table(
    ("comparison", "n", "both", "gains", "harms", "neither", "difference", "interval", "over articles", "verdict"),
    *(
        (
            f"{row['treated']} − {row['control']}",
            *(row[name] for name in ("n", "both", "gains", "harms", "neither")),
            f"{row['delta']:+.3f}",
            between(row["interval"]),
            between(row["cluster_interval"]),
            row["verdict"],
        )
        for row in report["comparisons"].values()
    ),
)

# %% mystnb={"image": {"alt": "Horizontal 95 per cent intervals of the paired differences in points, the primary comparison on top, one row for each pair of arms, against a vertical line at zero"}, "figure": {"caption": "Paired differences in the share of right answers, in points, with Tango's (or Newcombe's) 95 % interval; the declared comparison on top. Filled dots: the interval excludes zero.", "name": "fig-paired-differences"}} tags=["hide-input"]
fig, ax = plt.subplots(figsize=(7.0, 2.8))
lines = [(f"{row['treated']} − {row['control']}", row["delta"], *row["interval"]) for row in report["comparisons"].values()]
figures.forest(ax, lines, "difference, points", unit=100)
plt.show()

# %% [markdown]
# The comparisons that were not declared form a family, and each of several tests gets a chance to err. **Holm's** correction
# counts them.

# %%
secondary = report["secondary"]
table(
    ("secondary comparison", "exact p", f"Holm, family of {secondary['family_size']}"),
    *(
        (name.replace("-", " − "), f"{report['comparisons'][name]['mcnemar_p']:.2g}", f"{p:.2g}")
        for name, p in secondary["holm"].items()
    ),
)

# %% [markdown]
# ### Marginals, last
#
# The share of right answers of each arm. Their intervals are for describing one arm; they do not compare two.

# %%
table(
    ("arm", "right, of answerable questions", "rate"),
    *((arm, share(row["accuracy"]), f"{row['accuracy']['rate']:.3f}") for arm, row in report["arms"].items()),
)
delta = {name: row["delta"] for name, row in report["comparisons"].items()}
outcomes = {
    "A4 − A1 of at least 30 points": delta["A4-A1"] >= 0.30,
    "A1 and A0 less than 10 points apart": abs(delta["A1-A0"]) < 0.10,
    "A6 above A4, by less than 25 points": 0 < delta["A6-A4"] < 0.25,
}

# %%
table(("prediction", "outcome"), *((name, "held" if held else "**failed**") for name, held in outcomes.items()))

# %% [markdown]
# ### Refusals
#
# On questions that the corpus cannot answer a refusal is **due**; on answerable ones it is **undue**. Only A4 and A6 are told the
# refusal sentence, and A6 has no unanswerable questions, since they have no gold chunk.

# %%
table(
    ("arm", "due refusals given", "undue refusals"),
    *((arm, share(row["refusals"]["due"]), share(row["refusals"]["undue"])) for arm, row in report["arms"].items()),
)
due = report["arms"]["A4"]["refusals"]["due"]
if due["n"]:
    text = (
        f"With retrieval the reader **invented or borrowed an answer to {due['n'] - due['count']} of {due['n']}** questions "
        "that its sources do not answer."
    )
    display(Markdown(text))

# %% [markdown]
# ## Where the answers come from
#
# Two families of numbers, side by side: was a gold chunk in the context, and was the answer right? They fail apart in both
# directions, so look at the two counts off the diagonal.

# %%
found = report["arms"]["A4"]["attribution"]
table(
    ("A4", "right", "wrong"),
    ("gold chunk in the context", found["evidence_right"], found["evidence_wrong"]),
    ("not in the context", found["no_evidence_right"], found["no_evidence_wrong"]),
)

# %%
wrong = found["evidence_wrong"] + found["no_evidence_wrong"]
recall = report["retrieval"]["detail"]["chunk_hit"]["mean"]
text = (
    f"Retrieval put a gold chunk into {found['evidence_right'] + found['evidence_wrong']} of {primary['n']} contexts (chunk hit@{k} "
    f"{recall:.3f}, article recall@{k} {report['retrieval']['recall_at_k']:.3f}, MRR {report['retrieval']['mrr']:.3f}). Of the "
    f"{wrong} wrong answers **{found['evidence_wrong']} had the evidence before them**: there the reader failed, not the search."
)
display(Markdown(text))

# %% [markdown]
# ### Suspicion: is it only a look-up?
#
# Where a difference tracks recall exactly, the answer may simply be copied. So: in how many contexts does the gold answer (or an
# alias) stand word for word? A right answer without the string in its context was worked out, remembered, or guessed.

# %%
text_of = {chunk.chunk_id: chunk.text for chunk in frozen.index.chunks}


def string_in_context(row):
    """Whether the gold answer or an alias stands in the chunks that the reader was given."""
    task = task_of[row["task_id"]]
    return any(contains_answer(text_of[key], answer) for key in row["context"] for answer in (task.gold_answer, *task.aliases))


answered = [row for row in records["A4"] if row["answerable"]]
copied = {right: [string_in_context(row) for row in answered if row["correct"] == right] for right in (True, False)}

# %%
table(
    ("A4", "n", "the answer's string stands in the context"),
    *((name, len(copied[right]), sum(copied[right])) for name, right in (("right answers", True), ("wrong answers", False))),
)
lookup = sum(copied[True]) / len(copied[True]) if copied[True] else None
known = "No right answer to judge" if lookup is None else f"{lookup:.0%} of the right answers can have been copied"
adds = "What retrieval adds here is looking up, and that is what these questions ask for." if lookup and lookup > 0.9 else ""
display(Markdown(f"**{known}.** {adds}"))

# %% [markdown]
# ## Is the benchmark valid?
#
# Five doubts, each with its count: answers cut at the token limit; contexts that the token budget cut, and whether evidence went
# with what was cut; questions that the reader knows without any context (they cannot become gains); the ceiling, that is what
# the reader makes of the gold chunk alone; and the checker.

# %%
arms = report["arms"]
knows = sorted(key for key, row in by_id["A0"].items() if row["answerable"] and (row["correct"] or by_id["A1"][key]["correct"]))
ceiling = arms["A6"]["accuracy"]
lost = sum(bool(at["chunk_hit"]) and by_id["A4"][at["task_id"]]["gold_chunk_rank"] is None for at in retrieval)
table(
    ("doubt", "count"),
    ("answers cut at the token limit", ", ".join(f"{arm} {len(arms[arm]['truncated'])}" for arm in read)),
    ("contexts cut by the token budget", ", ".join(f"{arm} {arms[arm]['cut_contexts']}" for arm in read)),
    (f"gold chunk among the {k} found, but cut from the context (A4)", lost),
    ("known without context (A0 or A1 right)", f"{len(knows)}: {', '.join(knows) or 'none'}"),
    ("ceiling: right with the gold chunk alone (A6)", share(ceiling)),
)

# %% [markdown]
# **The checker** accepts an answer that *contains* the gold answer, so an arm that quotes its context at length has more chances
# to contain it. A harsher rule counts the first sentence only. Look whether the difference survives it.


# %%
def first_sentence(text):
    """The text up to its first full stop, question mark or exclamation mark that ends a sentence."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z\[])", text.strip(), maxsplit=1)[0]


def right_at_once(row):
    """Whether the first sentence alone is a right answer."""
    task = task_of[row["task_id"]]
    rule = check_answer(first_sentence(row["answer"]), task.gold_answer, task.aliases, finish_reason=row["finish_reason"])
    return int(rule.correct)


# %%
harsher = paired_binary([right_at_once(a) for a, _ in pairs], [right_at_once(b) for _, b in pairs], clusters, seed)
lengths = {arm: sum(len(row["answer"].split()) for row in rows) / len(rows) for arm, rows in records.items()}
text = (
    f"Words an answer: {', '.join(f'{arm} {length:.0f}' for arm, length in lengths.items())}. By the first sentence alone: "
    f"{harsher.gains} gains, {harsher.harms} harms, {harsher.delta:+.3f} ({between(harsher.interval)}): **{harsher.verdict}**, "
    f"against {primary['delta']:+.3f} by the whole answer."
)
display(Markdown(text))

# %% [markdown]
# And a match can be false: the words are there, the meaning is not. How many gains may be false before the verdict falls?


# %%
def withdrawn(false):
    """The comparison with some gains taken back (without clusters)."""
    left = [1] * (primary["both"] + primary["gains"] - false) + [0] * (false + primary["harms"] + primary["neither"])
    zeros, ones = [0] * primary["gains"], [1] * primary["harms"]
    return paired_binary(left, [1] * primary["both"] + zeros + ones + [0] * primary["neither"], seed=seed)


falls = next((f for f in range(primary["gains"] + 1) if withdrawn(f).verdict != "helps"), 0)
text = (
    f"The verdict falls when **{falls} of {primary['gains']} gains** are taken back as false matches."
    if falls
    else "There is no verdict in favour that could fall."
)
display(Markdown(text))

# %% [markdown]
# ## Three items, read closely
#
# Chosen by a rule, not by taste: the first harm (the first gain where there is none), the first that both arms fail with the
# evidence in the context, the first that both arms know. Numbers describe a set of items; only reading tells what happened.


# %% tags=["hide-input"]
def shown(key):
    """One item with both answers and its contexts, the gold chunk marked, as Markdown."""
    task, row = task_of[key], by_id[treated][key]
    chunks = {chunk.chunk_id: chunk for chunk in frozen.index.chunks}
    lines = [f"**{key}.** {plain(task.question)}", f"Gold: *{plain(task.gold_answer)}*"]
    lines += [f"{arm} ({by_id[arm][key]['rule']}): {plain(by_id[arm][key]['answer'], excerpt)}" for arm in (control, treated)]
    quotes = []
    for rank, name in enumerate(row["context"], 1):
        gold = next((g for g in task.golds if covers(task, g, chunks[name])), None)
        start = max(0, gold.start - chunks[name].start - excerpt // 3) if gold and gold.start is not None else 0
        lead = "… " if start else ""
        mark = "**gold** " if gold else ""
        quotes.append(f"> {rank}. {mark}`{name}`: {lead}{plain(chunks[name].text[start:], excerpt if gold else 110)}")
    return "\n\n".join([*lines, "\n".join(quotes)])


# %%
unused = [a["task_id"] for a, b in pairs if not a["correct"] and not b["correct"] and a["gold_chunk_rank"]]
alike = [a["task_id"] for a, b in pairs if a["correct"] and b["correct"]]
kinds = {
    "A harm" if primary["harm_ids"] else "A gain": primary["harm_ids"] or primary["gain_ids"],
    "Evidence in the context, answer wrong": unused,
    "Right with and without context": alike,
}
for name, keys in kinds.items():
    display(Markdown(f"**{name}** ({len(keys)} such items)\n\n{shown(keys[0]) if keys else 'None.'}"))

# %% [markdown]
# ## When the numbers do not license the claim
#
# A difference can be large and still not carry the sentence "retrieval helps". Each line is a reason, with whether it applies
# here.

# %%
crosses = {
    name: not (limits[0] > 0 or limits[1] < 0)
    for name, limits in (("interval", primary["interval"]), ("clusters", primary["cluster_interval"]))
}
discordance = (primary["gains"] + primary["harms"]) / primary["n"]
detectable = minimum_detectable_effect(worth, discordance, power, alpha) if discordance else None
reasons = [
    ("the interval holds zero: not established, whatever the estimate", crosses["interval"]),
    ("interval and bootstrap over articles disagree on zero", crosses["interval"] != crosses["clusters"]),
    ("the difference is smaller than what this n detects", detectable is None or abs(primary["delta"]) < detectable),
    ("the verdict changes with a harsher checker", harsher.verdict != primary["verdict"]),
    ("an answer of either arm was cut off", any(arms[arm]["truncated"] for arm in (treated, control))),
    ("the split was looked at before: exploratory", state == "exploratory"),
    ("one reader, one corpus: it says nothing about another", True),
]
table(("reason", "applies here"), *((reason, "**yes**" if applies else "no") for reason, applies in reasons))

# %% [markdown]
# Three patterns to know. *Recall high, interval across zero:* the evidence was found and not used; work on the reader or the
# prompt. *A large difference that tracks recall exactly:* look for leakage before celebrating. *Both low:* repair the search
# first, the reader had no chance.
#
# ### The same on others' questions
#
# SQuAD's questions about the Apollo programme, with its own paragraphs as the corpus, were run by hand with `make verify`.

# %%
try:
    squad = read_metric("verify_squad:comparisons", "cpu", artifacts)
    squad_recall = read_metric("verify_squad:retrieval.recall_at_k", "cpu", artifacts)
except InputError:
    squad = {}
    display(Markdown("SQuAD: **not measured yet on this machine** (`make verify DATA=folder`)."))
if squad:
    table(
        ("comparison", "n", "gains", "harms", "difference", "interval", "verdict"),
        *(
            (name.replace("-", " − "), c["n"], c["gains"], c["harms"], f"{c['delta']:+.3f}", between(c["interval"]), c["verdict"])
            for name, c in squad.items()
        ),
    )
    display(Markdown(f"Article recall there: {squad_recall:.3f}."))

# %% [markdown]
# ## The decision
#
# Two questions: does the retrieved context earn its place, and what should be worked on next? The second is answered by where
# the wrong answers lie: search, if the evidence was missing; the reader, if it stood in the context.

# %%
headroom = report["comparisons"]["A6-A4"]
target = "the reader" if found["evidence_wrong"] > found["no_evidence_wrong"] else "the search" if wrong else "nothing here"
text = (
    f"Retrieval, {treated} against {control}: **{primary['verdict']}** ({primary['delta']:+.3f}, {between(primary['interval'])}, "
    f"n = {primary['n']}; {state}). A perfect search on top, A6 against A4: **{headroom['verdict']}** ({headroom['delta']:+.3f}, "
    f"{between(headroom['interval'])}). Next to work on: **{target}**, which stands behind "
    f"{max(found['evidence_wrong'], found['no_evidence_wrong'])} of {wrong} wrong answers."
)
display(Markdown(text))

# %%
write_report(report, f"{artifacts}/{chosen.name}")
rows_file = write_items(records, f"{artifacts}/{chosen.name}")
display(Markdown(f"Stored: `rag_report.json`, and `{rows_file.name}` with {sum(map(len, records.values()))} rows."))

# %% [markdown]
# ## Exercises
#
# ```{admonition} 1. Forget the pairing
# :class: tip
# Take the two accuracies as if two different sets of questions had been asked, and work out the interval of their difference
# (Newcombe's for independent samples: square root of the sum of the squared Wilson distances). Is it wider than the paired one?
# ```

# %% tags=["hide-input", "hide-output"]
n = primary["n"]
right = {
    arm: sum(row["correct"] for row in pair) for arm, pair in ((treated, [a for a, _ in pairs]), (control, [b for _, b in pairs]))
}
(low_t, high_t), (low_c, high_c) = wilson_interval(right[treated], n), wilson_interval(right[control], n)
p_t, p_c = right[treated] / n, right[control] / n
unpaired = (
    p_t - p_c - math.hypot(p_t - low_t, high_c - p_c),
    p_t - p_c + math.hypot(high_t - p_t, p_c - low_c),
)
widths = unpaired[1] - unpaired[0], primary["interval"][1] - primary["interval"][0]
text = (
    f"Unpaired {between(unpaired)}, paired {between(primary['interval'])}: {widths[0]:.3f} wide against {widths[1]:.3f}. "
    "Pairing helps most where both arms are right on the same questions."
)
display(Markdown(text))

# %% [markdown]
# ```{admonition} 2. How fragile is the verdict?
# :class: tip
# Taking a gain back is one thing; turn gains into harms one by one. After how many is the difference no longer established?
# ```


# %% tags=["hide-input", "hide-output"]
def flipped(turned):
    """The comparison with some gains turned into harms (without clusters)."""
    gained, harmed = primary["gains"] - turned, primary["harms"] + turned
    left = [1] * (primary["both"] + gained) + [0] * (harmed + primary["neither"])
    return paired_binary(left, [1] * primary["both"] + [0] * gained + [1] * harmed + [0] * primary["neither"])


turns = next((t for t in range(primary["gains"] + 1) if flipped(t).verdict != "helps"), None)
text = f"After **{turns}** of {primary['gains']} gains turned." if turns else "It is not established as helping to begin with."
display(Markdown(text))

# %% [markdown]
# ```{admonition} 3. Fewest changes
# :class: tip
# With gains only and no harm, how many gains does the exact test need to fall below 5 %? And mid-p?
# ```

# %% tags=["hide-input", "hide-output"]
fewest = next(g for g in range(1, 20) if mcnemar_exact(g, 0) <= 0.05)
table(("gains, no harm", "exact p", "mid-p"), *((g, f"{2 * 0.5**g:.4f}", f"{0.5**g:.4f}") for g in range(4, 8)))
display(Markdown(f"**{fewest}** by the exact test; mid-p, half as large here, needs one gain less."))

# %% [markdown]
# ## Recap
#
# 1. We worked out a paired comparison of fifty questions by hand, and said beforehand what ours can detect.
# 2. We compared the reader with and without retrieved context, question by question: gains and harms first, marginals last.
# 3. We asked what could make the numbers lie, read three items closely, and decided.

# %%
path = write_metrics("05_paired_eval", {
    "n": report["n"], "k": k, "status": state, "primary": primary, "comparisons": report["comparisons"],
    "secondary": secondary, "accuracy": {arm: row["accuracy"] for arm, row in arms.items()},
    "refusals": {arm: row["refusals"] for arm, row in arms.items()},
    "attribution": found, "retrieval": {name: report["retrieval"][name] for name in ("recall_at_k", "mrr", "detail")},
    "lookup_share": lookup, "known_without_context": len(knows), "icc": icc, "worth": worth, "discordance": discordance,
    "detectable": detectable, "first_sentence": {"delta": harsher.delta, "interval": harsher.interval, "verdict": harsher.verdict},
    "gains_to_withdraw": falls, "evidence_cut": lost, "predictions_held": sum(outcomes.values()), "predictions": len(outcomes), "next": target,
}, profile, artifacts)  # fmt: skip

# %%
show_receipt(profile, data=[chosen.evaluation.tasks, chosen.evaluation.snapshot])
