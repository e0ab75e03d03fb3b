"""What the tasks' reader and checks promise: a broken line is named, a gold that does not hold is found."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragkit.corpus import check_tasks, chunk_article, gold_chunk, read_tasks, tasks_digest
from ragkit.corpus.tasks import holds
from ragkit.errors import InputError
from ragkit.records import Article, Chunk, Gold, Task

TEXT = "A station steps aside\n\nThe burn lasted 3.5 minutes. It raised the orbit by 25 km, said NASA."
ARTICLE = Article("iss", "A station steps aside", TEXT)


def span(words: str, article_id: str = "iss") -> Gold:
    start = TEXT.index(words)
    return Gold(article_id, start, start + len(words))


TASK = Task(
    "t1",
    "For how long did the engines fire?",
    "3.5 minutes",
    ("three and a half minutes",),
    (span("The burn lasted 3.5 minutes."),),
)


def line(**changes) -> dict:
    row = {
        "task_id": "t1",
        "question": "How long?",
        "gold_answer": "3.5 minutes",
        "aliases": ["210 s"],
        "golds": [{"article_id": "iss", "start": 23, "end": 50}],
        "kind": "fact",
        "answerable": True,
        "counterfactual": "4 minutes",
        "split": "test",
    }
    return {name: value for name, value in {**row, **changes}.items() if value != "absent"}


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_the_full_form(tmp_path):
    unanswerable = {
        "question": "Who?",
        "gold_answer": "",
        "golds": [],
        "kind": "unanswerable",
        "answerable": False,
        "counterfactual": None,
    }
    tasks = read_tasks(write(tmp_path / "t.jsonl", line(), "", unanswerable))
    assert tasks[0] == Task(
        "t1", "How long?", "3.5 minutes", ("210 s",), (Gold("iss", 23, 50),), "fact", True, "4 minutes", "test"
    )
    assert (tasks[1].kind, tasks[1].answerable, tasks[1].golds, tasks[1].split) == ("unanswerable", False, (), "dev")


def test_the_minimal_form_gets_a_stable_id(tmp_path):
    row = {"question": "How long?", "gold_answer": "3.5 minutes", "gold_article_id": 12}
    (task,) = read_tasks(write(tmp_path / "a.jsonl", row))
    assert (task.golds, task.kind, task.answerable) == ((Gold("12"),), "fact", True)
    assert re.fullmatch(r"task-[0-9a-f]{12}", task.task_id)
    again = read_tasks(write(tmp_path / "b.jsonl", {"question": "Other?", "gold_answer": "x", "gold_article_id": "1"}, row))
    assert again[1] == task
    assert again[0].task_id != task.task_id


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"question": "x"', "Expecting"),
        ("[1]", "not a JSON object"),
        (line(question=" "), "no question"),
        (line(question=5), "question is 5, not a text"),
        (line(kind="opinion"), "unknown kind 'opinion', choose from fact, reason"),
        (line(split="train"), "unknown split 'train'"),
        (line(answerable="yes"), "answerable is 'yes'"),
        (line(answerable=False), "contradict"),
        (line(kind="unanswerable"), "contradict"),
        (line(gold_answer=""), "no gold_answer"),
        (line(golds=[]), "no golds"),
        (line(golds="iss"), "golds is 'iss', not a list"),
        (line(golds=["iss"]), "has no article_id"),
        (line(golds=[{"article_id": "iss", "start": "23", "end": 50}]), "span '23':50"),
        (line(golds=[{"article_id": "iss", "start": 23}]), "span 23:None"),
        (line(golds=[{"article_id": "iss", "start": True, "end": 50}]), "span True:50"),
        (line(golds=[{"article_id": "iss", "start": 50, "end": 23}]), "span 50:23"),
        (line(golds=[{"article_id": "iss", "start": -1, "end": 23}]), "span -1:23"),
        (line(aliases="210 s"), "aliases is '210 s'"),
        (line(aliases=[""]), "not a list of texts"),
        (line(kind="unanswerable", answerable=False), "unanswerable, but with"),
        (line(task_id=1.5), "task_id is 1.5"),
        (line(), "stands in line 1 too"),
    ],
)
def test_a_broken_line_is_named(tmp_path, row, words):
    path = write(tmp_path / "t.jsonl", line(), row)
    with pytest.raises(InputError) as caught:
        read_tasks(path)
    assert "t.jsonl, line 2: " in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_empty_and_undecodable_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_tasks(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match="holds no tasks"):
        read_tasks(write(tmp_path / "t.jsonl", ""))
    (tmp_path / "t.jsonl").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        read_tasks(tmp_path / "t.jsonl")


def test_a_sound_task_has_no_problem():
    nothing = Task("u", "Who paid for it?", "", (), (), "unanswerable", False)
    assert check_tasks([TASK, nothing, replace(TASK, task_id="t2", question="Minimal?", golds=(Gold("iss"),))], [ARTICLE]) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"golds": (Gold("gone", 0, 5),)}, "gold article 'gone' is not in the corpus"),
        ({"golds": (Gold("iss", 5, 999),)}, f"span 5:999 is outside article 'iss' of {len(TEXT)} characters"),
        ({"golds": (span("It raised the orbit"),)}, "no span holds the gold answer '3.5 minutes' or an alias"),
        ({"question": "Did the burn of 3.5  Minutes work?"}, "the question gives the answer '3.5 minutes' away"),
        ({"question": "Three and a half minutes?"}, "the question gives the answer 'three and a half minutes' away"),
        ({"counterfactual": "3.5 Minutes"}, "the counterfactual '3.5 Minutes' is a right answer"),
        ({"kind": "multi-article"}, "multi-article, but its golds are in fewer than two articles"),
    ],
)
def test_each_problem_is_found(changes, problem):
    assert check_tasks([replace(TASK, **changes)], [ARTICLE]) == [f"task t1: {problem}"]


def test_one_of_several_spans_is_enough_and_an_alias_counts():
    second = Article("other", "", "unrelated")
    both = replace(TASK, kind="multi-article", golds=(*TASK.golds, Gold("other", 0, 9)))
    assert check_tasks([both], [ARTICLE, second]) == []
    assert check_tasks([replace(TASK, gold_answer="210 s", aliases=("THE  BURN",))], [ARTICLE]) == []


def test_a_question_asked_twice_is_found():
    again = replace(TASK, task_id="t2", question="for how long did  the engines fire")
    assert check_tasks([TASK, again], [ARTICLE]) == ["task t2: asks the same as t1"]


@pytest.mark.parametrize(
    ("text", "answer", "held"),
    [
        ("by 25 km,", "5 km", False),
        ("by 25 km,", "25 KM", True),
        ("lasted 3.5 minutes", "5 minutes", False),
        ("lasted 3.5 minutes", "3", False),
        ("It was 5.", "5", True),
        ("1,500 kg", "500 kg", False),
        ("NASA's", "NASA", True),
        ("S-IVB stage", "s-ivb", True),
        ("C++ (sic)", "c++", True),
        ("Straße", "STRASSE", True),
        ("anything", "", False),
    ],
)
def test_token_borders(text, answer, held):
    assert holds(text, answer) is held


def chunk(start: int, end: int, article_id: str = "iss") -> Chunk:
    return Chunk(f"{article_id}::{start}", article_id, "", None, None, None, TEXT[start:end], start, end)


def test_the_gold_chunk_shares_most_with_the_span_the_earlier_of_equals():
    task = replace(TASK, golds=(Gold("iss", 20, 40),))
    assert gold_chunk(task, [chunk(0, 25), chunk(18, 35), chunk(30, 60)]) == (chunk(18, 35),)
    assert gold_chunk(task, [chunk(30, 60), chunk(10, 30)]) == (chunk(10, 30),)
    assert gold_chunk(task, [chunk(20, 40, "other"), chunk(40, 60)]) == (None,)
    assert gold_chunk(task, []) == (None,)


def test_two_golds_two_chunks_and_a_gold_without_a_span():
    task = replace(TASK, golds=(Gold("iss", 0, 5), Gold("iss", 50, 60)))
    assert gold_chunk(task, [chunk(0, 30), chunk(30, 70)]) == (chunk(0, 30), chunk(30, 70))
    chunks = chunk_article(ARTICLE, None, "recursive", 40, 0, "characters")
    (found,) = gold_chunk(replace(TASK, golds=(Gold("iss"),)), chunks)
    assert "3.5 minutes" in found.text


@settings(deadline=None)
@given(st.integers(0, 90), st.integers(1, 40))
def test_the_gold_chunk_is_the_brute_force_best(start, length):
    chunks = chunk_article(ARTICLE, None, "recursive", 30, 8, "characters")
    places = set(range(start, min(start + length, len(TEXT))))
    shares = [len(places & set(range(c.start, c.end))) for c in chunks]
    (found,) = gold_chunk(replace(TASK, golds=(Gold("iss", start, start + length),)), chunks)
    assert found == (chunks[shares.index(max(shares))] if max(shares) else None)


def test_the_digest_is_the_content_whatever_the_order():
    other = replace(TASK, task_id="t2")
    assert tasks_digest([TASK, other]) == tasks_digest([other, TASK])
    changed = [
        replace(TASK, split="test"),
        replace(TASK, aliases=()),
        replace(TASK, golds=(Gold("iss", 0, 1),)),
        replace(TASK, question="x"),
    ]
    assert len({tasks_digest([task]) for task in [TASK, *changed]}) == 5
