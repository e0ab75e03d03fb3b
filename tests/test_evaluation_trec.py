"""TREC files: what is written reads back, here and by ir_measures; wrong files are refused; our metrics equal theirs on runs with
ties, repeated and unjudged documents, and queries without results.
"""

from __future__ import annotations

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import AP, RR, P, R, Success, nDCG

from ragkit.errors import InputError, ServiceError
from ragkit.evaluation import average_precision, dedupe, hit_at_k, ndcg_at_k, precision_at_k, recall_at_k, reciprocal_rank
from ragkit.evaluation.trec import Qrels, read_qrels, read_run, write_qrels, write_run

DOCUMENTS = [f"d{number}" for number in range(12)]
IDS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=6).filter(
    lambda key: key.split() == [key] and not key.startswith("\ufeff")
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
RUNS = st.dictionaries(IDS, st.dictionaries(IDS, FINITE, min_size=1, max_size=5), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trec")


def write(folder, text):
    path = folder / "given.txt"
    path.write_text(text, encoding="utf-8", newline="")
    return path


# --- qrels -------------------------------------------------------------------------------------------------------------------


def test_trec_and_beir_say_the_same(folder):
    grades = {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d1": 1.0}}
    assert read_qrels(write(folder, "q1 0 d1 2\nq1\t0\td2\t0\n\nq2 0 d1 1\n")) == Qrels(grades)
    beir = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td1\t1"
    assert read_qrels(write(folder, beir)) == Qrels(grades)
    assert read_qrels(write(folder, beir.split("\n", 1)[1])) == Qrels(grades)  # without the header
    assert read_qrels(write(folder, "\ufeff" + beir.replace("\n", "\r\n"))) == Qrels(grades)  # as spreadsheets save it


def test_beir_ids_may_hold_spaces(folder):
    assert read_qrels(write(folder, "query-id\tcorpus-id\tscore\nq 1\ta b\t1\n")).grades == {"q 1": {"a b": 1.0}}


def test_grades_are_kept_as_they_are(folder):
    graded = read_qrels(write(folder, "q 0 a 1\nq 0 b 3\nq 0 c -1\nq 0 d 0\nq 0 e 0.5\n")).grades
    assert graded == {"q": {"a": 1.0, "b": 3.0, "c": -1.0, "d": 0.0, "e": 0.5}}


def test_a_judgement_said_twice_counts_once(folder):
    assert read_qrels(write(folder, "q 0 a 1\nq 0 a 1\n")).grades == {"q": {"a": 1.0}}
    with pytest.raises(InputError, match=r"given.txt:2 judges document 'a' of query 'q' again"):
        read_qrels(write(folder, "q 0 a 1\nq 0 a 2\n"))


def test_unknown_ids_are_reported_and_a_missing_relevant_document_stays_a_miss(folder):
    path = write(folder, "q1 0 d1 1\nq1 0 gone 1\nq2 0 gone 0\nq9 0 d1 1\nq9 0 gone 1\n")
    qrels = read_qrels(path, queries=["q1", "q2", "q3"], documents=["d1", "d2"])
    assert qrels.unknown_queries == ("q9",)
    assert qrels.unknown_documents == (("q1", "gone"), ("q2", "gone"))
    assert qrels.grades == {"q1": {"d1": 1.0, "gone": 1.0}, "q2": {"gone": 0.0}}
    assert recall_at_k(["d1", "d2"], set(qrels.grades["q1"]), 2) == 0.5
    assert read_qrels(path, queries=iter(["q9"]), documents=()).unknown_documents == (("q9", "d1"), ("q9", "gone"))
    assert read_qrels(path) == Qrels(read_qrels(path).grades)  # without known ids nothing is unknown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no judgements"),
        ("\n \n", "holds no judgements"),
        ("query-id\tcorpus-id\tscore\n", "holds no judgements"),
        ("q 0 a 1\nq 0 a\n", r"given.txt:2 is not query iteration document grade: 'q 0 a'"),
        ("q 0 a 1 more\n", r":1 is not query iteration"),
        ("1 184 2\n", r":1 is not query iteration"),
        ("q\ta\t1\nq\tb\n", r":2 is not query<TAB>document<TAB>grade"),
        ("q\t\t1\n", r":1 is not query<TAB>"),
        ("q 0 a yes\n", r":1 has grade 'yes'"),
        ("q 0 a nan\n", r":1 has grade 'nan'"),
        ("q 0 a 1\nq 0 b inf\n", r":2 has grade 'inf'"),
        ("q\ta\t\n", r":1 is not query<TAB>"),
    ],
)
def test_wrong_qrels_are_refused_with_their_line(folder, text, says):
    with pytest.raises(InputError, match=says):
        read_qrels(write(folder, text))


# --- runs --------------------------------------------------------------------------------------------------------------------


def test_a_run_is_ordered_by_score_then_id_whatever_its_ranks_say(folder):
    run = read_run(write(folder, "q Q0 c 1 0.5 me\nq Q0 b 2 1e0 me\nq\tQ0\ta\t3\t0.5\tme\r\np Q0 a 1 -3 me\n"))
    assert {query: list(scores.items()) for query, scores in run.items()} == {
        "q": [("b", 1.0), ("a", 0.5), ("c", 0.5)],
        "p": [("a", -3.0)],
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no results"),
        ("q Q0 a 1 0.5 me\nq Q0 b 2 nan me\n", r"given.txt:2 has score 'nan'"),
        ("q Q0 a 1 -inf me\n", r":1 has score '-inf'"),
        ("q Q0 a 1 high me\n", r":1 has score 'high'"),
        ("q Q0 a 1 0.5 me\np Q0 a 1 0.5 me\nq Q0 a 2 0.4 me\n", r":3 repeats document 'a' of query 'q'"),
        ("q Q0 a 1 0.5\n", r":1 is not query Q0 document rank score tag"),
        ("q 0 a 1\n", r":1 is not query Q0"),
    ],
)
def test_a_wrong_run_is_refused_with_its_line(folder, text, says):
    with pytest.raises(InputError, match=says):
        read_run(write(folder, text))


@pytest.mark.parametrize("read", [read_qrels, read_run])
def test_what_is_no_text_file_is_refused(folder, read):
    (folder / "binary").write_bytes(b"\xff\xfe\x00q")
    for path in (folder / "binary", folder / "nowhere", folder):
        with pytest.raises(InputError, match="cannot be read"):
            read(path)


# --- writing -----------------------------------------------------------------------------------------------------------------


def test_the_written_form(folder):
    write_qrels(folder / "qrels", {"q2": {"b": 1, "a": 0.5}, "q1": {"a": -1}})
    assert (folder / "qrels").read_text("utf-8") == "q1 0 a -1\nq2 0 a 0.5\nq2 0 b 1\n"
    write_run(folder / "run", {"q": {"b": 0.25, "a": 0.25, "c": 3}, "empty": {}, "r": ["z", "y"]}, tag="bm25")
    assert (folder / "run").read_text("utf-8").splitlines() == [
        "q Q0 c 1 3.0 bm25",
        "q Q0 a 2 0.25 bm25",
        "q Q0 b 3 0.25 bm25",
        "r Q0 z 1 2.0 bm25",
        "r Q0 y 2 1.0 bm25",
    ]


@given(RUNS)
def test_what_is_written_reads_back_to_the_last_bit(folder, given_values):
    write_run(folder / "run", given_values)
    write_qrels(folder / "qrels", given_values)
    assert read_run(folder / "run") == given_values
    assert read_qrels(folder / "qrels") == Qrels(given_values)
    for scores in read_run(folder / "run").values():
        assert list(scores.items()) == sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize(
    ("write_it", "values", "says"),
    [
        (write_run, {}, "no results"),
        (write_run, {"q": {}}, "no results"),
        (write_qrels, {}, "no judgements"),
        (write_run, {"q": {"a": float("nan")}}, "score of document 'a' for query 'q' is nan"),
        (write_qrels, {"q": {"a": float("inf")}}, "grade of document 'a'"),
        (write_run, {"q": ["a", "b", "a"]}, "repeat a document"),
        (write_run, {"q": "abc"}, "a string"),
        (write_run, {"q 1": ["a"]}, "id 'q 1'"),
        (write_run, {"q": ["a\u00a0b"]}, "white space"),
        (write_qrels, {"": {"a": 1}}, "id ''"),
        (write_qrels, {7: {"a": 1}}, "id 7"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_no_file(tmp_path, write_it, values, says):
    with pytest.raises(InputError, match=says):
        write_it(tmp_path / "out", values)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="cannot write"):
        write_run(tmp_path / "file" / "run", {"q": ["a"]})


# --- parity with ir_measures -------------------------------------------------------------------------------------------------

OURS = {
    nDCG @ 10: lambda ranked, gains, _: ndcg_at_k(ranked, gains, 10),
    nDCG @ 3: lambda ranked, gains, _: ndcg_at_k(ranked, gains, 3),
    AP: lambda ranked, _, relevant: average_precision(ranked, relevant),
    AP @ 4: lambda ranked, _, relevant: average_precision(ranked, relevant, 4),
    RR: lambda ranked, _, relevant: reciprocal_rank(ranked, relevant),
    RR @ 3: lambda ranked, _, relevant: reciprocal_rank(ranked, relevant, 3),
    R @ 5: lambda ranked, _, relevant: recall_at_k(ranked, relevant, 5),
    P @ 5: lambda ranked, _, relevant: precision_at_k(ranked, relevant, 5),
    Success @ 2: lambda ranked, _, relevant: hit_at_k(ranked, relevant, 2),
}
GRADES = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(-1, 4), min_size=1).filter(lambda g: max(g.values()) > 0)
TIED = st.dictionaries(st.sampled_from([*DOCUMENTS, "unjudged"]), st.sampled_from([0.25, 0.5, 1.0]))


def theirs(qrels, run):
    return list(ir_measures.iter_calc(list(OURS), ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(run))))


@given(st.lists(st.tuples(GRADES, TIED), min_size=1, max_size=4))
def test_metrics_equal_those_of_ir_measures(folder, queries):
    """Both sides read the same files. Some queries have no results, and one is judged that nobody ran."""
    grades = {f"q{number}": judged for number, (judged, _) in enumerate(queries)} | {"unrun": {"d0": 1}}
    scored = {f"q{number}": scores for number, (_, scores) in enumerate(queries)} | {"unjudged": {"d0": 1.0}}
    ranked = {query: sorted(scores, key=lambda key: (-scores[key], key)) for query, scores in scored.items()}
    write_qrels(folder / "qrels", grades)
    write_run(folder / "run", ranked)
    run, qrels = read_run(folder / "run"), read_qrels(folder / "qrels").grades
    compared = {}
    for score in theirs(folder / "qrels", folder / "run"):
        gains = qrels[score.query_id]
        relevant = {document for document, grade in gains.items() if grade > 0}
        value = OURS[score.measure](list(run.get(score.query_id, ())), gains, relevant)
        assert value == pytest.approx(score.value, abs=1e-12), score
        compared[score.query_id, score.measure] = value
    assert set(compared) == {(query, measure) for query in qrels for measure in OURS}


@given(GRADES, st.lists(st.sampled_from([*DOCUMENTS, "unjudged"]), min_size=1, max_size=30))
def test_repeated_documents_score_as_their_first_places_do(folder, grades, ranked):
    """Chunks ranked, articles judged: our metrics take the repeats, ir_measures gets the ranking without them."""
    write_qrels(folder / "qrels", {"q": grades})
    write_run(folder / "run", {"q": dedupe(ranked)})
    relevant = {document for document, grade in grades.items() if grade > 0}
    scores = theirs(folder / "qrels", folder / "run")
    assert len(scores) == len(OURS)
    for score in scores:
        assert OURS[score.measure](ranked, grades, relevant) == pytest.approx(score.value, abs=1e-12), score


def test_equal_scores_are_why_a_ranking_is_written_with_falling_ones(folder):
    """The same tie is two orders inside one tool; written from a list of ids there is no tie left."""
    write_qrels(folder / "qrels", {"q": {"a": 1}})
    write_run(folder / "tied", {"q": {"a": 1.0, "b": 1.0}})
    write_run(folder / "falling", {"q": list(read_run(folder / "tied")["q"])})
    tied, falling = (
        {str(score.measure): score.value for score in theirs(folder / "qrels", folder / name)} for name in ("tied", "falling")
    )
    assert (tied["RR"], tied["RR@3"]) == (0.5, 1.0)
    assert (falling["RR"], falling["RR@3"]) == (1.0, 1.0)
