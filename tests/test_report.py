"""Arms, rows and the report: worked examples, and what is refused. No model is loaded."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragkit.answering.prompts import REFUSAL
from ragkit.errors import InputError, RagkitError, ServiceError
from ragkit.evaluation.arms import arm_depth, arm_prompts
from ragkit.evaluation.experiment import run_arm, stored_completions, timings
from ragkit.evaluation.items import covers, paired, read_records, write_records, write_whole
from ragkit.evaluation.metrics import average_precision, hit_at_k, ndcg_at_k, recall_at_k, reciprocal_rank
from ragkit.evaluation.report import (
    METRICS,
    attribution,
    compare,
    mean_with_interval,
    rag_report,
    rate,
    refusals,
    retrieval_rows,
    retrieval_summary,
    write_items,
    write_report,
)
from ragkit.records import Chunk, Completion, Gold, Hit, Task


def chunk(article, start, text):
    return Chunk(f"{article}::{start}", article, article.title(), None, None, None, text, start, start + len(text))


def hits(*chunks):
    return [Hit(found, 1 - rank / 10, rank) for rank, found in enumerate(chunks, 1)]


def task(key, *golds, answer="blue", answerable=True):
    return Task(key, f"What of {key}?", answer if answerable else "", (), golds, answerable=answerable)


def row(key, arm, correct, **changes):
    """A stored row, as `run_arm` makes it."""
    base = {
        "task_id": key, "arm": arm, "split": "dev", "kind": "fact", "answerable": True, "cluster": f"article of {key}",
        "question": f"What of {key}?", "gold_answer": "blue", "answer": "blue" if correct else "red", "correct": correct,
        "rule": "gold" if correct else "no match", "refused": False, "finish_reason": "stop", "context": ["a::0"],
        "context_tokens": 10, "cut": 0, "article_in_context": True, "gold_chunk_rank": 1, "prompt_tokens": 20,
        "completion_tokens": 2, "prompt_sha256": "0" * 64, "gives_counterfactual": None, "key": "0" * 64,
    }  # fmt: skip
    return base | changes


def rows(arm, outcomes):
    return [row(f"t{number:02d}", arm, bool(correct)) for number, correct in enumerate(outcomes)]


# The chapters' worked examples


def test_five_documents_by_hand():
    ranked, relevant = ["d3", "d1", "d5", "d2", "d4"], {"d1", "d2", "d6"}
    assert hit_at_k(ranked, relevant, 3) == 1.0
    assert recall_at_k(ranked, relevant, 5) == 2 / 3
    assert reciprocal_rank(ranked, relevant) == 1 / 2
    assert average_precision(ranked, relevant) == pytest.approx((1 / 2 + 2 / 4) / 3, abs=1e-15)
    best = 1 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert ndcg_at_k(ranked, dict.fromkeys(relevant, 1), 5) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / best)


def test_fifty_questions_by_hand():
    treated, control = [1] * 48 + [0] * 2, [1] * 36 + [0] * 12 + [1] * 2
    result, plain = compare(rows("A4", treated), rows("A1", control))
    assert (result.both, result.gains, result.harms, result.neither) == (36, 12, 2, 0)
    assert [round(limit, 4) for limit in plain["interval"]] == [0.0611, 0.3447]
    assert plain["mcnemar_p"] == pytest.approx(2 * (1 + 14 + 91) / 2**14)
    assert plain["mcnemar_effect"] == 6.0
    assert plain["harm_ids"] == ["t48", "t49"]
    assert plain["gain_ids"] == [f"t{number}" for number in range(36, 48)]
    assert plain["verdict"] == "helps"


# Retrieval rows


def test_chunks_of_one_article_count_once_and_the_span_decides_the_chunk():
    gold = task("t1", Gold("moon", 100, 110))
    found = hits(chunk("moon", 0, "x" * 50), chunk("mars", 0, "x" * 50), chunk("moon", 90, "x" * 50))
    (at,) = retrieval_rows([gold], [found], 3)
    assert (at["article_recall"], at["article_rr"], at["chunk_recall"], at["chunk_rr"]) == (1.0, 1.0, 1.0, 1 / 3)
    assert [cut["chunk_hit"] for cut in at["by_k"]] == [0.0, 0.0, 1.0]
    assert [cut["article_hit"] for cut in at["by_k"]] == [1.0, 1.0, 1.0]


def test_rank_of_an_article_is_its_place_among_different_articles():
    found = hits(chunk("moon", 0, "x"), chunk("moon", 5, "x"), chunk("mars", 0, "x"))
    (at,) = retrieval_rows([task("t1", Gold("mars", 0, 1))], [found], 3)
    assert (at["article_rr"], at["chunk_rr"]) == (1 / 2, 1 / 3)


def test_two_golds_are_recalled_by_half():
    both = task("t1", Gold("moon", 0, 5), Gold("mars", 0, 5))
    (at,) = retrieval_rows([both], [hits(chunk("mars", 0, "red dust"), chunk("sun", 0, "hot"))], 2)
    assert (at["article_hit"], at["article_recall"], at["chunk_hit"], at["chunk_recall"]) == (1.0, 0.5, 1.0, 0.5)


def test_an_unanswerable_task_has_no_recall():
    assert retrieval_rows([task("t1", answerable=False)], [hits(chunk("moon", 0, "x"))], 5) == []
    assert retrieval_summary([]) == {"recall_at_k": None, "mrr": None, "detail": {}, "by_k": []}


@pytest.mark.parametrize(
    ("start", "end", "overlaps"), [(10, 20, False), (9, 20, True), (0, 5, False), (0, 6, True), (6, 8, True)]
)
def test_a_chunk_that_only_touches_a_span_is_no_evidence(start, end, overlaps):
    gold = Gold("moon", start, end)
    assert covers(task("t1", gold), gold, chunk("moon", 5, "x" * 5)) is overlaps  # characters 5 to 9


def test_a_gold_without_a_span_is_covered_by_the_answer():
    gold = Gold("moon")
    assert covers(task("t1", gold), gold, chunk("moon", 0, "A blue moon."))
    assert not covers(task("t1", gold), gold, chunk("moon", 0, "A bluest moon."))
    assert not covers(task("t1", gold), gold, chunk("mars", 0, "A blue moon."))


PLACES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=8, unique=True)


@settings(deadline=None)
@given(PLACES, st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=3), st.integers(1, 9))
def test_every_metric_lies_in_the_unit_interval_and_recall_never_falls(found, golds, k):
    marked = task("t1", *(Gold(article, place * 10, place * 10 + 5) for article, place in golds))
    (at,) = retrieval_rows([marked], [hits(*(chunk(article, place * 10, "x" * 10) for article, place in found))], k)
    assert all(0 <= cut[name] <= 1 for cut in at["by_k"] for name in METRICS)
    for name in ("article_recall", "chunk_recall", "article_hit", "chunk_hit"):
        assert all(before[name] <= after[name] for before, after in zip(at["by_k"], at["by_k"][1:], strict=False))


def test_an_interval_of_a_metric_stays_in_its_range():
    (low, high) = mean_with_interval([0.0, 1.0, 1.0, 1.0])["interval"]
    assert 0 <= low <= 0.75 <= high <= 1
    assert mean_with_interval([0.5], clusters=["a"])["interval"] == [0.0, 1.0]  # one article says nothing about others
    with pytest.raises(InputError, match="outside"):
        mean_with_interval([1.5, 0.5])
    with pytest.raises(InputError, match="empty"):
        mean_with_interval([])


def test_two_questions_of_one_article_are_no_two_articles():
    values, clusters = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], ["a", "a", "a", "b", "b", "b"]
    loose = mean_with_interval(values)["interval"]
    tied = mean_with_interval(values, clusters=clusters)["interval"]
    assert tied[1] - tied[0] > loose[1] - loose[0]


# Arms


CORPUS = [
    chunk("moon", 0, "The moon is grey."),
    chunk("moon", 12, "grey. Its far side is blue."),
    chunk("mars", 0, "Mars is red."),
]


def prompts(arm, tasks, found=None, budget=10**6):
    return arm_prompts(arm, tasks, found or [hits(*CORPUS)] * len(tasks), CORPUS, 3, budget, len)


def test_arms_differ_by_their_context_alone():
    asked = [task("t1", Gold("moon", 35, 39))]
    by_arm = {arm: prompts(arm, asked)[0] for arm in ("A0", "A1", "A4", "A6")}
    assert [len(by_arm[arm].context) for arm in by_arm] == [0, 0, 3, 1]
    assert by_arm["A0"].messages == [{"role": "user", "content": "What of t1?"}]
    assert by_arm["A4"].messages[0] == by_arm["A6"].messages[0]
    assert by_arm["A4"].messages[0]["content"].startswith(by_arm["A1"].messages[0]["content"])
    assert by_arm["A6"].context == (CORPUS[1],)
    assert prompts("A5", asked)[0].messages == by_arm["A4"].messages


def test_the_oracle_gives_one_chunk_a_gold_and_no_chunk_twice():
    (two,) = prompts("A6", [task("t1", Gold("moon", 0, 8), Gold("mars", 0, 4))])
    assert two.context == (CORPUS[0], CORPUS[2])
    (one,) = prompts("A6", [task("t1", Gold("moon", 0, 3), Gold("moon", 4, 8))])
    assert one.context == (CORPUS[0],)


def test_the_oracle_leaves_out_what_has_no_gold_and_refuses_a_gold_that_is_gone():
    assert prompts("A6", [task("t1", answerable=False)]) == []
    with pytest.raises(InputError, match=r"t1.*'venus' is not in the corpus"):
        prompts("A6", [task("t1", Gold("venus", 0, 3))])
    with pytest.raises(InputError, match=r"t1.*'mars' holds no such span"):
        prompts("A6", [task("t1", Gold("mars", 400, 410))])


def test_the_budget_cuts_the_last_chunks_and_counts_them():
    (whole,) = prompts("A4", [task("t1")])
    (cut,) = prompts("A4", [task("t1")], budget=whole.context_tokens - 1)
    assert (whole.cut, cut.cut) == (0, 1)
    assert cut.context == whole.context[:2]
    assert cut.context_tokens < whole.context_tokens


def test_noise_comes_from_other_articles_and_is_drawn_by_the_task():
    (drawn,) = prompts("A2", [task("t1", Gold("moon", 35, 39))])
    assert drawn.context == (CORPUS[2],)
    (all_of_them,) = prompts("A2", [task("t2", answerable=False)])
    assert sorted(c.chunk_id for c in all_of_them.context) == sorted(c.chunk_id for c in CORPUS)
    assert prompts("A2", [task("t2", answerable=False)]) == [all_of_them]


def test_distractors_are_the_nearest_of_other_articles():
    (near,) = prompts("A3", [task("t1", Gold("moon", 35, 39))])
    assert near.context == (CORPUS[2],)
    assert prompts("A3", [task("t1", answerable=False)]) == []
    assert (arm_depth("A4", 5, CORPUS), arm_depth("A3", 5, CORPUS)) == (5, 8)


def test_the_oracle_article_gives_every_chunk_of_it():
    (whole,) = prompts("A7", [task("t1", Gold("moon", 35, 39))])
    assert whole.context == tuple(CORPUS[:2])


def test_the_leak_is_the_sentence_that_states_the_answer_and_lies_where_it_says():
    (leak,) = prompts("A8", [task("t1", Gold("moon", 20, 39))])
    (sentence,) = leak.context
    assert sentence.text == "Its far side is blue."
    assert CORPUS[1].text[sentence.start - CORPUS[1].start : sentence.end - CORPUS[1].start] == sentence.text
    assert prompts("A8", [task("t1", Gold("mars", 0, 4))]) == []


def test_the_answer_is_masked_or_swapped_in_the_gold_chunk_alone():
    asked = task("t1", Gold("moon", 35, 39))
    (masked,) = prompts("A9", [asked])
    assert [chunk.text for chunk in masked.context] == ["grey. Its far side is [...]."]
    assert prompts("A10", [asked]) == []
    (swapped,) = prompts("A10", [replace(asked, counterfactual="green")])
    assert [chunk.text for chunk in swapped.context] == ["grey. Its far side is green."]
    assert prompts("A9", [task("t1", Gold("mars", 0, 4))]) == []


def test_an_unknown_arm_is_refused():
    with pytest.raises(InputError, match="'A11'"):
        prompts("A11", [task("t1")])


# Running an arm


class Stopping:
    """A reader that stops with a fault after some answers."""

    def __init__(self, answers, stops_after=None, model="stopping"):
        self.identity = {"model": model}
        self.batch_size = 1
        self.answers, self.stops_after, self.asked = answers, stops_after, []

    def iter_answers(self, messages):
        for number, message in enumerate(messages):
            if number == self.stops_after:
                raise ServiceError("the server went away")
            self.asked.append(message[-1]["content"])
            yield Completion(self.answers[len(self.asked) - 1], "stop", 5, 2, 0.5)


def test_what_was_answered_before_a_fault_is_not_asked_again(tmp_path):
    asked = prompts("A0", [task(f"t{n}", Gold("moon", 0, 3)) for n in range(3)])
    journal = tmp_path / "j.jsonl"
    with pytest.raises(ServiceError):
        run_arm(asked, Stopping(["blue"] * 3, stops_after=2), journal, progress=False)
    second = Stopping(["red"])
    records, seconds = run_arm(asked, second, journal, progress=False)
    assert second.asked == ["What of t2?"]
    assert [record["correct"] for record in records] == [True, True, False]
    assert timings(records, seconds)["seconds_per_item"] == 0.5


def test_a_stored_answer_is_taken_over_where_prompt_batch_and_reader_are_the_same(tmp_path):
    asked = prompts("A0", [task(f"t{n}", Gold("moon", 0, 3)) for n in range(2)])
    records, seconds = run_arm(asked, Stopping(["blue", "red"]), tmp_path / "first.jsonl", progress=False)
    write_records(records, tmp_path / "runs" / "dev" / "A0.jsonl")
    write_whole(tmp_path / "metrics" / "eval_dev_A0.timings.json", timings(records, seconds))
    known = stored_completions(tmp_path, "dev", "A0")
    more = prompts("A0", [task(f"t{n}", Gold("moon", 0, 3)) for n in range(3)])
    second = Stopping(["green"])
    again, _ = run_arm(more, second, tmp_path / "second.jsonl", progress=False, known=known)
    assert second.asked == ["What of t2?"]
    assert again[:2] == records
    other = Stopping(["green"] * 2, model="other")
    run_arm(asked, other, tmp_path / "third.jsonl", progress=False, known=known)
    assert len(other.asked) == 2
    assert stored_completions(tmp_path / "nowhere", "dev", "A0") == {}


def test_another_reader_is_asked_anew(tmp_path):
    asked = prompts("A0", [task("t1", Gold("moon", 0, 3))])
    run_arm(asked, Stopping(["blue"]), tmp_path / "j.jsonl", progress=False)
    other = Stopping(["red"], model="other")
    records, _ = run_arm(asked, other, tmp_path / "j.jsonl", progress=False)
    assert records[0]["answer"] == "red"


def test_a_row_says_where_the_evidence_stood_and_what_was_refused(tmp_path):
    asked = prompts("A4", [task("t1", Gold("moon", 35, 39)), task("t2", Gold("venus", 0, 3)), task("t3", answerable=False)])
    records, _ = run_arm(asked, Stopping(["blue [2]", "red", REFUSAL["en"]]), tmp_path / "j.jsonl", progress=False)
    assert [record["gold_chunk_rank"] for record in records] == [2, None, None]
    assert [record["correct"] for record in records] == [True, False, True]
    assert [record["cluster"] for record in records] == ["moon", "venus", None]
    assert [record["refused"] for record in records] == [False, False, True]


# Rows on disk


def test_rows_come_back_as_they_were_even_with_line_separators(tmp_path):
    stored = [row("t1", "A4", True, answer="one\u2028two\nthree\x85four")]
    write_records(stored, tmp_path / "A4.jsonl")
    assert read_records(tmp_path, ["A4"]) == {"A4": stored}


def test_an_arm_that_was_not_run_or_is_torn_is_named(tmp_path):
    with pytest.raises(InputError, match="arm A6 has no records"):
        read_records(tmp_path, ["A6"])
    (tmp_path / "A6.jsonl").write_text('{"task_id": "t1"\n', encoding="utf-8")
    with pytest.raises(InputError, match="does not parse"):
        read_records(tmp_path, ["A6"])


def test_items_parquet_holds_every_row_in_order_and_the_same_bytes(tmp_path):
    records = {"A4": rows("A4", [1, 0]), "A1": rows("A1", [0, 0])}
    file = write_items(records, tmp_path)
    first = file.read_bytes()
    write_items({"A1": records["A1"][::-1], "A4": records["A4"]}, tmp_path)
    assert file.read_bytes() == first
    table = pq.read_table(file).to_pylist()
    assert [(item["task_id"], item["arm"]) for item in table] == [("t00", "A1"), ("t00", "A4"), ("t01", "A1"), ("t01", "A4")]
    assert table[1] == records["A4"][0]
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet"]


def test_a_folder_that_cannot_be_written_is_said_on_one_line(tmp_path):
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    for write in (
        lambda: write_items({"A4": rows("A4", [1])}, tmp_path / "file"),
        lambda: write_records(rows("A4", [1]), tmp_path / "file" / "A4.jsonl"),
        lambda: write_report({"n": 1}, tmp_path / "file"),
    ):
        with pytest.raises(RagkitError, match="cannot write"):
            write()
    assert (tmp_path / "file").read_text(encoding="utf-8") == "not a folder"


def test_pairs_are_the_same_answerable_questions_in_order():
    treated, control = rows("A4", [1, 0, 1])[::-1], rows("A1", [0, 0, 1])
    treated.append(row("t09", "A4", True))
    control.append(row("t08", "A1", True))
    assert [(a["task_id"], b["task_id"]) for a, b in paired(treated, control)] == [(f"t0{n}",) * 2 for n in range(3)]
    with pytest.raises(InputError, match="nothing can be paired"):
        paired([row("t1", "A4", True)], [row("t2", "A1", True)])
    with pytest.raises(InputError, match="t1 was another question in arm A1"):
        paired([row("t1", "A4", True)], [row("t1", "A1", True, question="What else?")])


# The report


def made(**changes):
    records = {"A0": rows("A0", [0, 0, 0, 1]), "A1": rows("A1", [0, 0, 0, 1]), "A4": rows("A4", [1, 1, 0, 1])}
    found = retrieval_rows([task("t1", Gold("moon", 0, 3))], [hits(*CORPUS)], 3)
    given = {"records": records, "retrieval": found, "k": 3, "primary": ("A4", "A1"), "provenance": {"split": "dev"}}
    return rag_report(**(given | changes))


def test_the_report_has_the_keys_others_rely_on(tmp_path):
    report = made()
    keys = {"n", "k", "retrieval", "end_task", "arms", "comparisons", "primary", "provenance"}
    assert keys <= set(report)
    assert {"recall_at_k", "mrr"} <= set(report["retrieval"])
    end = report["end_task"]
    assert (end["parametric"], end["template"], end["rag"]) == (0.25, 0.25, 0.75)
    assert end["paired_delta"] == end["paired_delta_template"] == 0.5
    assert end["mcnemar_p"] == 0.5
    assert report["primary"] == next(iter(report["comparisons"])) == "A4-A1"
    text = write_report(report, tmp_path).read_text(encoding="utf-8")
    assert json.loads(text)["comparisons"]["A4-A1"]["gain_ids"] == ["t00", "t01"]
    assert write_report(made(), tmp_path).read_text(encoding="utf-8") == text


def test_an_odds_ratio_without_harms_is_null_beside_its_counts():
    comparison = made()["comparisons"]["A4-A1"]
    assert (comparison["gains"], comparison["harms"], comparison["mcnemar_effect"]) == (2, 0, None)


def test_the_family_of_holm_leaves_the_declared_comparison_out():
    secondary = made()["secondary"]
    assert secondary == {"family_size": 2, "holm": {"A4-A0": 1.0, "A1-A0": 1.0}}


def test_arms_that_were_not_run_have_no_comparison_and_no_tasks_no_recall():
    report = made(records={"A0": rows("A0", [1, 0])}, retrieval=[])
    assert (report["n"], report["comparisons"], report["retrieval"]["recall_at_k"]) == (2, {}, None)
    with pytest.raises(InputError, match="no arm was run"):
        made(records={})


def test_unanswerable_rows_score_refusal_alone():
    due = [row("u1", "A4", True, answerable=False, refused=True), row("u2", "A4", False, answerable=False)]
    refused = row("t00", "A4", False, refused=True)
    arm = made(records={"A4": [*due, refused], "A1": rows("A1", [0])})["arms"]["A4"]
    assert arm["accuracy"]["n"] == 1
    assert (arm["refusals"]["due"]["count"], arm["refusals"]["due"]["n"]) == (1, 2)
    assert (arm["refusals"]["undue"]["count"], arm["refusals"]["undue"]["n"]) == (1, 1)
    assert refusals([])["due"] == {"n": 0, "count": 0, "rate": None, "interval": None}


def test_attribution_counts_every_answerable_row_once():
    some = [row("t1", "A4", True), row("t2", "A4", False), row("t3", "A4", True, gold_chunk_rank=None)]
    some.append(row("u1", "A4", True, answerable=False))
    assert attribution(some) == {"evidence_right": 1, "evidence_wrong": 1, "no_evidence_right": 1, "no_evidence_wrong": 0}


def test_27_of_30_is_no_certainty():
    assert [round(limit, 2) for limit in rate(27, 30)["interval"]] == [0.74, 0.97]


def test_a_report_that_holds_no_number_is_refused_and_the_old_one_stays(tmp_path):
    file = write_report({"n": 1}, tmp_path)
    with pytest.raises(InputError, match="nan"):
        write_report({"n": math.nan}, tmp_path)
    assert json.loads(file.read_text(encoding="utf-8")) == {"n": 1}
