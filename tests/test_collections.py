"""Others' collections: every format read from small folders, what is counted, what is refused, published rows, and fetching."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import yaml

from ragkit import verify
from ragkit.errors import InputError, ServiceError
from ragkit.evaluation import fetching, reproduce
from ragkit.evaluation.collections import Collection, collection_kind, read_beir, read_collection, read_squad
from ragkit.evaluation.reproduce import Method, Published, measure, rank_collection, read_published, retrieval_report
from ragkit.evaluation.trec import read_run, write_run
from ragkit.profile import load_profile
from ragkit.records import Article

BM25 = Method(name="bm25")


def files(folder, content):
    """Write {name: text}; a name that ends in .gz is packed."""
    for name, text in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


BEIR = {
    "corpus.jsonl": '{"_id": "d1", "title": "Mars", "text": "red dust"}\n{"_id": "d2", "title": "", "text": "blue ice"}\n',
    "queries.jsonl": '{"_id": "1", "text": "red dust?"}\n{"_id": "2", "text": "blue?"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\td1\t1\n2\td2\t1\n",
}
CRANFIELD = {
    "cran.all.1400": """.I 1
.T
slipstream .
.A
brenckman,m.
.B
j. ae. scs. 25, 1958, 324.
.W
a wing in a slipstream .
.I 2
.T
.A
.B
.W
.I 3
.T
shear flow
.W
first part
.W
second part
""",
    "cran.qry": ".I 001\n.W\nwing in a\nslipstream .\n.I 004\n.W\nshear flow .\n",
    "cranqrel": "1 1 1 \n1 3 4\n1 2 -1\n2 3 3",
}
NPL = {
    "doc-text": "1\ncompact memories have\nflexible capacities\n   /\n2\nan electronic analogue computer\n   /\n",
    "query-text": "1\nCOMPACT MEMORIES\n/\n2\nANALOGUE COMPUTER\n/\n",
    "rlv-ass": "1\n 1\n   /\n2\n 1 2\n   /\n",
}
TREC = {
    "docs.trec": """<DOC>
<DOCNO> FT911-1 </DOCNO>
<HEADLINE>Orbit &amp; debris</HEADLINE>
<TEXT>
<P>A satellite was <i>moved</i>.</P>
</TEXT>
<TEXT>Twice.</TEXT>
</DOC>
<DOC><DOCNO>FT911-2</DOCNO>
plain words inside
</DOC>
""",
    "topics.txt": """<top>
<num> Number: 051
<title> Topic: moved satellite
<desc> Description:
Which satellite was moved?
</top>
<top>
<num>52</num><title>
plain words
</title>
</top>
""",
    "qrels.txt": "51 0 FT911-1 1\n51 0 FT911-2 0\n52 0 FT911-2 1\n",
}


# Reading


def test_a_beir_folder_is_read_and_a_query_that_the_run_lacks_counts_zero(tmp_path):
    queries = '{"_id": "1", "text": "red\u2028planet?"}\r\n{"_id": "2", "text": "blue?"}\n{"_id": "3", "text": "nothing?"}\n'
    qrels = "1\td1\t1\r\n2\td1\t2\n3\td1\t0\n"
    found = read_beir(files(tmp_path, BEIR | {"queries.jsonl": queries, "qrels/test.tsv": qrels}))
    assert found.queries == {"1": "red\u2028planet?", "2": "blue?"}
    assert retrieval_report({"1": ["d1"]}, found.qrels)["recall@1"] == 0.5
    assert any("1 query with nothing judged relevant" in note for note in found.notes)


def test_a_packed_folder_is_the_same_collection(tmp_path):
    plain = read_collection(files(tmp_path / "plain", BEIR))
    packed = read_collection(files(tmp_path / "packed", {f"{name}.gz": text for name, text in BEIR.items()}))
    assert replace(packed, notes=()) == replace(plain, notes=())
    broken = files(tmp_path / "broken", BEIR)
    (broken / "qrels" / "test.tsv").rename(broken / "qrels" / "test.tsv.gz")
    with pytest.raises(InputError, match=r"test\.tsv\.gz is not a whole gzip file"):
        read_collection(broken)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queries.jsonl": '{"_id": "1"}\n'}, "queries.jsonl:1 is not a query"),
        ({"queries.jsonl": '{"_id": "1", "text": null}\n'}, "queries.jsonl:1 is not a query"),
        ({"queries.jsonl": '{"_id": "1", "text": "a"}\n{"_id": "1", "text": "b"}\n'}, "repeats query id '1'"),
        ({"qrels/test.tsv": "1\td1\n"}, "test.tsv:1 is not query"),
        ({"qrels/test.tsv": "1\td1\tnan\n"}, "finite"),
        ({"qrels/test.tsv": "1\td1\t1\n1\td1\t2\n"}, "with another grade"),
        ({"qrels/test.tsv": "9\td1\t1\n"}, "nothing can be measured"),
        ({"qrels/test.tsv": "1\td1\t0\n"}, "nothing can be measured"),
    ],
)
def test_a_beir_folder_that_does_not_fit_together_is_refused(tmp_path, changes, says):
    with pytest.raises(InputError, match=says):
        read_beir(files(tmp_path, BEIR | changes))


@pytest.mark.parametrize("whole", [BEIR, CRANFIELD, NPL, TREC], ids=["beir", "cranfield", "npl", "trec"])
def test_a_missing_file_is_named_whatever_the_kind(tmp_path, whole):
    kind = collection_kind(files(tmp_path / "whole", whole))
    for number, gone in enumerate(whole):
        folder = files(tmp_path / str(number), {name: text for name, text in whole.items() if name != gone})
        word = {"docs.trec": "documents", "topics.txt": "topics", "qrels.txt": "qrels"}.get(gone, gone)
        with pytest.raises(InputError, match=f"holds no {word}"):
            read_collection(folder, kind)


def test_unknown_queries_and_documents_of_qrels_are_counted_and_a_missing_relevant_document_is_a_miss(tmp_path):
    qrels = "1\td1\t1\n1\tgone\t1\n7\td1\t1\n8\td2\t1\n"
    found = read_beir(files(tmp_path, BEIR | {"qrels/test.tsv": qrels}))
    assert set(found.queries) == {"1"}
    assert any(note.startswith("2 judged queries not there, left out: 7, 8") for note in found.notes)
    assert any(note.startswith("1 judgement of documents that are not there") and "gone" in note for note in found.notes)
    assert any(note == "1 query without judgements, left out" for note in found.notes)
    assert retrieval_report({"1": ["d1", "d2"]}, found.qrels)["recall@10"] == 0.5


def test_mixed_grades_are_gains_for_ndcg_and_relevant_for_the_rest(tmp_path):
    found = read_beir(files(tmp_path, BEIR | {"qrels/test.tsv": "1\td1\t2\n1\td2\t1\n2\td2\t1\n"}))
    assert any(note.startswith("gains 1, 2, 1 query with only one of them") for note in found.notes)
    report = retrieval_report({"1": ["d2", "d1"], "2": ["d2"]}, found.qrels)
    ideal, got = 2 + 1 / np.log2(3), 1 + 2 / np.log2(3)
    assert report["ndcg@10"] == pytest.approx((got / ideal + 1) / 2)
    assert report["map@1000"] == 1.0


def test_cranfield_numbers_queries_by_place_joins_repeated_fields_and_leaves_empty_documents_out(tmp_path):
    found = read_collection(files(tmp_path, CRANFIELD))
    assert [article.article_id for article in found.articles] == ["1", "3"]
    assert found.articles[0] == Article("1", "slipstream .", "slipstream .\n\na wing in a slipstream .")
    assert found.articles[1].text == "shear flow\n\nfirst part\nsecond part"
    assert found.queries == {"1": "wing in a\nslipstream .", "2": "shear flow ."}
    assert found.qrels == {"1": {"1": 1.0, "3": 1.0, "2": 1.0}, "2": {"3": 1.0}}
    said = "\n".join(found.notes)
    assert "repeats a field in records 3" in said
    assert "1 empty document left out: 2" in said
    assert "all 4 judged pairs count as relevant" in said
    assert "2 for query 1" in said


def test_cranfields_inverse_grades_are_gains_only_when_asked_for_and_with_a_warning(tmp_path):
    found = read_collection(files(tmp_path, CRANFIELD), graded=True)
    assert found.qrels == {"1": {"1": 4.0, "3": 1.0, "2": 4.0}, "2": {"3": 2.0}}
    assert any(note.startswith("warning, graded reading") for note in found.notes)
    with pytest.raises(InputError, match="graded is a reading of Cranfield"):
        read_collection(files(tmp_path / "npl", NPL), graded=True)
    with pytest.raises(InputError, match="cranqrel:1 is not query document grade"):
        read_collection(files(tmp_path / "bad", CRANFIELD | {"cranqrel": "1 1 9\n"}))


def test_npl_records_end_in_a_slash_and_are_read_under_other_names_too(tmp_path):
    found = read_collection(files(tmp_path, NPL))
    assert [article.text for article in found.articles] == [
        "compact memories have\nflexible capacities",
        "an electronic analogue computer",
    ]
    assert found.queries == {"1": "COMPACT MEMORIES", "2": "ANALOGUE COMPUTER"}
    assert found.qrels == {"1": {"1": 1.0}, "2": {"1": 1.0, "2": 1.0}}
    assert read_collection(tmp_path, "trec") == read_collection(tmp_path, "cranfield") == found
    with pytest.raises(InputError, match="holds a NPL collection, not a BEIR folder"):
        read_collection(tmp_path, "beir")


def test_trec_sgml_is_read_with_open_and_closed_tags_and_padded_numbers(tmp_path):
    found = read_collection(files(tmp_path, TREC))
    assert found.kind == "trec"
    assert found.articles[0].title == "Orbit & debris"
    assert " ".join(found.articles[0].text.split()) == "Orbit & debris A satellite was moved . Twice."
    assert found.articles[1].text == "plain words inside"
    assert found.queries == {"51": "moved satellite", "52": "plain words"}
    assert rank_collection(found, BM25)["52"] == ["FT911-2"]


@pytest.mark.parametrize(
    "content",
    [
        {"docs/part.jsonl": '{"docno": "a", "contents": "red"}\n{"id": 7, "title": "blue"}\n', "topics.tsv": "1\tred\n"},
        {"collection.tsv": "a\tred\n7\tblue\n", "queries.tsv.gz": "qid\tquery\n1\tred\n"},
        {
            "x.sgml": "<doc><docno>a</docno>red</doc><doc><docno>7</docno>blue</doc>",
            "topics.jsonl": '{"qid": 1, "query": "red"}\n',
        },
        {
            "corpus/a.trec.gz": "<DOC><DOCNO>a</DOCNO>red</DOC>",
            "corpus/b.trec": "<DOC><DOCNO>7</DOCNO>blue</DOC>",
            "topics.xml": '<topics><topic number="1"><query>red</query></topic></topics>',
        },
    ],
)
def test_trec_folders_of_every_form_are_the_same_collection(tmp_path, content):
    found = read_collection(files(tmp_path, content | {"qrels.trec": "1 0 a 1\n"}))
    assert [(article.article_id, article.text) for article in found.articles] == [("7", "blue"), ("a", "red")]
    assert (found.queries, found.qrels) == ({"1": "red"}, {"1": {"a": 1.0}})


def test_several_qrels_are_told_apart_by_their_split(tmp_path):
    files(tmp_path, TREC | {"qrels.txt": "x", "qrels.dev.txt": "51 0 FT911-2 1\n", "qrels.test.txt": "51 0 FT911-1 1\n"})
    (tmp_path / "qrels.txt").unlink()
    assert read_collection(tmp_path).qrels == {"51": {"FT911-1": 1.0}}
    assert read_collection(tmp_path, split="dev").qrels == {"51": {"FT911-2": 1.0}}
    with pytest.raises(InputError, match=r"several qrels: qrels\.dev\.txt, qrels\.test\.txt"):
        read_collection(tmp_path, split="eval")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (TREC | {"docs.trec": "<DOC><DOCNO>a</DOCNO>x</DOC><DOC><DOCNO>b</DOCNO>"}, "holds 2 <DOC> and 1 whole records"),
        (TREC | {"docs.trec": "<DOC>x</DOC>"}, "without DOCNO"),
        (TREC | {"docs.trec": "<DOC><DOCNO>a</DOCNO>x</DOC>" * 2}, "document 'a' twice"),
        (TREC | {"docs.trec": "one column\n"}, "docs.trec:1 is not id<TAB>text"),
        (TREC | {"docs.trec": ""}, "docs.trec is empty"),
        (CRANFIELD | {"cran.all.1400": "words\n.I 1\n"}, "comes before the first .I"),
        (NPL | {"doc-text": "no number here\ntext\n /\n"}, "does not begin with a number alone"),
        ({"notes.txt": "x"}, "holds no collection that is known"),
    ],
)
def test_what_does_not_parse_is_refused_by_name(tmp_path, content, says):
    with pytest.raises(InputError, match=says):
        read_collection(files(tmp_path, content))


def test_text_that_is_not_utf8_is_read_as_latin_1_and_noted(tmp_path):
    files(tmp_path, TREC)
    (tmp_path / "docs.trec").write_bytes(TREC["docs.trec"].replace("words", "Ariane à").encode("latin-1"))
    found = read_collection(tmp_path)
    assert found.articles[1].text == "plain Ariane à inside"
    assert "docs.trec is not UTF-8 and was read as Latin-1" in found.notes


# Ranking and scoring


def collection(documents, queries, kind="trec"):
    articles = tuple(Article(key, "", text) for key, text in sorted(documents.items()))
    return Collection(articles, queries, {query: {min(documents): 1.0} for query in queries}, kind)


def test_odd_queries_find_what_they_can_and_count_zero_otherwise():
    queries = {"empty": " ", "stop": "the of and", "long": "wing " * 10_000, "one": "wing"}
    found = rank_collection(collection({"a": "wing flutter"}, queries), BM25)
    assert found == {"empty": [], "stop": [], "long": ["a"], "one": ["a"]}
    report = retrieval_report(found, {query: {"a": 1.0} for query in queries})
    assert report["hit@5"] == report["map@1000"] == 0.5


def test_equal_scores_go_by_the_documents_own_ids_and_depth_cuts():
    documents = dict.fromkeys(("10", "1", "9", "2"), "wing")
    assert rank_collection(collection(documents, {"q": "wing"}), BM25, depth=3) == {"q": ["1", "10", "2"]}


def test_a_beir_query_never_finds_itself():
    documents = {"a": "wing flutter", "b": "wing"}
    assert rank_collection(collection(documents, {"a": "wing flutter"}, "beir"), BM25) == {"a": ["b"]}
    assert rank_collection(collection(documents, {"a": "wing flutter"}), BM25) == {"a": ["a", "b"]}


def test_dense_needs_an_embedder():
    with pytest.raises(InputError, match="needs an embedder"):
        rank_collection(collection({"a": "x"}, {"q": "x"}), Method(name="dense", model="all-minilm-l6-v2"))


@pytest.mark.models
def test_dense_truncates_and_counts_and_hybrid_fuses_both_rankings(tmp_path):
    from ragkit.models import open_embedder

    documents = {"a": "a wing in a wind tunnel", "b": "the price of bread", "c": "flutter " * 400}
    asked = {"1": "aircraft aerodynamics", "2": "", "3": "flutter " * 10_000}
    with open_embedder(load_profile("ci").in_float32()) as embedder:
        dense = rank_collection(collection(documents, asked), Method(name="dense", model="all-minilm-l6-v2"), embedder, tmp_path)
        assert embedder.truncated == 2
        both = rank_collection(collection(documents, asked), Method(name="hybrid", model="all-minilm-l6-v2"), embedder, tmp_path)
    assert dense["1"][0] == "a"
    assert dense["2"] == both["2"] == []
    assert sorted(dense["1"]) == ["a", "b", "c"]  # k over the corpus gives all of it
    assert both["3"][0] == "c"


def test_a_run_written_for_other_tools_keeps_the_order(tmp_path):
    found = rank_collection(collection({"a": "wing", "b": "wing flutter", "c": "bread"}, {"q": "wing flutter"}), BM25)
    write_run(tmp_path / "run.txt", found)
    assert {query: list(scores) for query, scores in read_run(tmp_path / "run.txt").items()} == found == {"q": ["b", "a"]}


@pytest.mark.parametrize("name", ["ndcg", "ndcg@0", "ndcg@-1", "ndcg@1.5", "recall@", "foo@5", "MRR@10"])
def test_an_unknown_measure_is_refused(name):
    with pytest.raises(InputError, match="is unknown"):
        measure(name)


# Published figures


def test_the_published_rows_are_read_and_name_sets_and_models_that_are_known():
    published = read_published()
    assert {entry.set for entry in published} <= set(fetching.addresses())
    assert all(entry.url for entry in published if entry.set != "cranfield")
    minilm = Method(name="dense", model="all-minilm-l6-v2")
    (mteb,) = [entry for entry in published if (entry.set, entry.method) == ("scifact", minilm)]
    assert len(mteb.figures) == 11
    assert (mteb.figures["ndcg@10"], mteb.tolerance) == (0.64508, 0.0005)


ENTRY = {"set": "tiny", "method": {"name": "bm25"}, "figures": {"hit@1": 1.0, "recall@1": 0.25}, "tolerance": 0.1, "source": "x"}


def test_what_misses_its_tolerance_fails_and_what_is_not_at_hand_is_skipped_with_its_reason(tmp_path):
    entries = [
        Published.model_validate(ENTRY),
        Published.model_validate(ENTRY | {"set": "elsewhere"}),
        Published.model_validate(ENTRY | {"method": {"name": "dense", "model": "bge-small-en-v1.5"}}),
        Published.model_validate(ENTRY | {"method": {"name": "dense", "model": "no-such-model"}}),
    ]
    files(tmp_path, BEIR | {"qrels/test.tsv": "1\td1\t1\n1\tgone\t1\n"})
    said = []
    found = reproduce.reproduce(entries, {"tiny": (tmp_path, "beir")}, load_profile("ci"), said.append)
    assert [(one.measure, one.got, one.passed) for one in found.outcomes] == [("hit@1", 1.0, True), ("recall@1", 0.5, False)]
    assert (found.missed, found.outcomes[0].queries, found.outcomes[0].documents, found.outcomes[0].truncated) == (1, 1, 2, 0)
    reasons = {(one.set, one.method): one.why for one in found.skipped}
    assert reasons["elsewhere", "BM25 plain, k1 1.2, b 0.75"] == "the collection is not at hand"
    assert "not among this package's pinned models" in reasons["tiny", "dense no-such-model"]
    assert any("gone" in line for line in said)
    assert found.lines()[-1] == "1 passed, 1 failed, 6 skipped"
    assert found.as_dict()["sets"] == {"tiny": {"documents": 2, "queries": 1, "truncated": 0}}
    assert [line.split()[-1] for line in found.lines()[:2]] == ["pass", "FAIL"]


def test_weights_that_are_not_here_are_a_reason_not_a_download(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGKIT_WEIGHTS", str(tmp_path / "none"))
    entry = Published.model_validate(ENTRY | {"method": {"name": "dense", "model": "all-minilm-l6-v2"}})
    found = reproduce.reproduce([entry], {"tiny": (files(tmp_path, BEIR), "beir")}, load_profile("ci"))
    assert [one.why for one in found.skipped] == ["the weights are not here: `ragkit models fetch all-minilm-l6-v2`"]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tolerance": 0}, "tolerance"),
        ({"figures": {"ndcg": 0.5}}, "is unknown"),
        ({"figures": {"ndcg@10": 50}}, "between 0 and 1"),
        ({"figures": {}}, "figures"),
        ({"method": {"name": "dense"}}, "name a model"),
        ({"method": {"name": "bm25", "k2": 1}}, "k2"),
        ({"value": 1}, "value"),
    ],
)
def test_a_row_that_cannot_be_held_is_refused_with_its_place(tmp_path, changes, says):
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump([ENTRY, ENTRY | changes]), encoding="utf-8")
    with pytest.raises(InputError, match=rf"rows\.yaml, entry 2: .*{says}"):
        read_published(tmp_path)


def test_no_rows_and_no_list_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no \.yaml"):
        read_published(tmp_path)
    (tmp_path / "rows.yaml").write_text("set: scifact\n", encoding="utf-8")
    with pytest.raises(InputError, match="no list"):
        read_published(tmp_path)


def test_verify_stores_rows_with_a_receipt_and_fails_where_one_is_missed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGKIT_COLLECTIONS", str(tmp_path / "cache"))
    files(tmp_path / "data" / "scifact", BEIR)
    entry = ENTRY | {"set": "scifact", "figures": {"recall@1": 1.0}}
    files(tmp_path, {"data/published/rows.yaml": yaml.safe_dump([entry])})
    assert verify.main(["data", "reproduce"]) == 0
    stored = json.loads((tmp_path / "artifacts/cpu/metrics/reproduced.json").read_text())
    assert [(row["measure"], row["published"], row["got"], row["passed"]) for row in stored["rows"]] == [
        ("recall@1", 1.0, 1.0, True)
    ]
    receipt = json.loads((tmp_path / "artifacts/cpu/receipts/reproduced.json").read_text())
    assert "data/published" in receipt["data"]
    assert "ragkit.evaluation.reproduce" in receipt["package"]
    files(tmp_path, {"data/published/rows.yaml": yaml.safe_dump([entry | {"figures": {"recall@1": 0.5}}])})
    assert verify.main(["data"]) == 1
    assert "1 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ((), 2, "give one folder"),
        ((".", "everything"), 2, "at most one of reproduce, squad"),
        ((".",), 1, "holds no collection with published figures"),
        ((".", "squad"), 1, "holds no squad11_apollo_program.json"),
        (("nowhere",), 1, "nowhere is not a folder"),
    ],
)
def test_verify_without_anything_to_do_says_so(tmp_path, monkeypatch, capsys, words, status, says):
    monkeypatch.chdir(tmp_path)
    assert verify.main(list(words)) == status
    assert says in capsys.readouterr().err


# Fetching


def zipped(content, top="tiny"):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in content.items():
            archive.writestr(f"{top}/{name}", text)
    return stream.getvalue()


def tarred(content):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A server of one archive and the data file that names it: `state` holds what it sends, and what it was asked for."""
    state = {"body": zipped(BEIR), "status": 200, "cut": None, "asked": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state["asked"].append(self.headers.get("Range"))
            start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            self.send_response(206 if start and state["status"] == 200 else state["status"])
            self.send_header("Content-Length", str(len(state["body"]) - start))
            self.end_headers()
            self.wfile.write(state["body"][start : state["cut"]])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("RAGKIT_COLLECTIONS", str(tmp_path / "cache"))
    monkeypatch.setattr(fetching, "ADDRESSES", tmp_path / "addresses.yaml")

    def pin(**changes):
        body = state["body"]
        entry = {
            "kind": "beir",
            "folders": ["tiny", "other/tiny"],
            "url": f"http://127.0.0.1:{server.server_port}/tiny",
            "bytes": len(body),
            "md5": hashlib.md5(body).hexdigest(),
        }
        fetching.ADDRESSES.write_text(yaml.safe_dump({"tiny": entry | changes}), encoding="utf-8")

    state["pin"], state["stop"] = pin, server.shutdown
    pin()
    yield state
    server.shutdown()
    server.server_close()


def test_a_set_is_fetched_once_unpacked_whole_and_its_digest_remembered(served, tmp_path):
    folder = fetching.fetch_collection("tiny", progress=False)
    assert read_collection(folder).queries == {"1": "red dust?", "2": "blue?"}
    assert fetching.fetch_collection("tiny", progress=False) == folder
    assert served["asked"] == [None]
    kept = json.loads((tmp_path / "cache" / "fetched.json").read_text())["tiny"]
    assert (kept["bytes"], kept["sha256"]) == (len(served["body"]), hashlib.sha256(served["body"]).hexdigest())
    assert fetching.collections_at_hand() == {"tiny": (folder, "beir")}
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_a_tar_without_a_top_folder_and_a_part_of_an_archive_are_unpacked(served):
    served["body"] = tarred({f"physics/{name}": text for name, text in BEIR.items()} | {"readme": "x"})
    served["pin"](inside="physics")
    assert read_collection(fetching.fetch_collection("tiny", progress=False)).kind == "beir"


def test_a_download_that_was_broken_off_goes_on_where_it_ended(served, tmp_path):
    served["cut"] = 100
    with pytest.raises(ServiceError, match="what came is kept"):
        fetching.fetch_collection("tiny", progress=False)
    assert fetching.collections_at_hand() == {}
    served["cut"] = None
    assert read_collection(fetching.fetch_collection("tiny", progress=False)).kind == "beir"
    assert served["asked"] == [None, "bytes=100-"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": 404}, "the server answered 404"),
        ({"status": 503}, "the server answered 503"),
        ({"body": zipped(BEIR)[:-9] + b"tampered!"}, "gave other bytes"),
        ({"body": zipped(BEIR)[:50]}, "gave 50 bytes, not the pinned"),
    ],
)
def test_a_fault_of_the_server_is_one_line_and_leaves_nothing(served, change, says):
    served.update(change)
    with pytest.raises(ServiceError, match=f"cannot fetch tiny from .*{says}"):
        fetching.fetch_collection("tiny", progress=False)
    assert fetching.collections_at_hand() == {}


def test_other_bytes_than_last_time_and_what_is_no_archive_are_refused(served, tmp_path):
    fetching.fetch_collection("tiny", progress=False)
    (tmp_path / "cache" / "tiny").rename(tmp_path / "away")
    served["body"] = zipped(BEIR, "renamed")
    served["pin"]()
    with pytest.raises(ServiceError, match="other bytes than before"):
        fetching.fetch_collection("tiny", progress=False)
    (tmp_path / "cache" / "fetched.json").unlink()
    served["body"] = b"no archive at all"
    served["pin"]()
    with pytest.raises(ServiceError, match="no whole archive"):
        fetching.fetch_collection("tiny", progress=False)
    assert fetching.collections_at_hand() == {}


def test_without_a_network_the_error_says_what_to_do(served):
    served["pin"](url="http://127.0.0.1:9/tiny")  # the discard port: nothing listens
    with pytest.raises(ServiceError, match=r"ConnectError.*give it with --data"):
        fetching.fetch_collection("tiny", progress=False)
    with pytest.raises(InputError, match="choose from tiny"):
        fetching.fetch_collection("huge")


def test_collections_are_looked_for_by_name_in_the_folder_that_is_given(served, tmp_path):
    files(tmp_path / "data" / "other" / "tiny", BEIR)
    expected = tmp_path / "data" / "other" / "tiny"
    assert fetching.collections_at_hand(tmp_path / "data") == {"tiny": (expected, "beir")}
    assert fetching.collections_at_hand(expected) == {"tiny": (expected, "beir")}
    with pytest.raises(fetching.NothingAtHand, match="looked for tiny"):
        fetching.collections_at_hand(tmp_path / "data" / "other" / "tiny" / "qrels")
    with pytest.raises(InputError, match="is not a folder"):
        fetching.collections_at_hand(tmp_path / "nowhere")


# SQuAD


SQUAD = {
    "data": [
        {
            "title": "Apollo_program",
            "paragraphs": [
                {
                    "context": "Apollo ran from 1961 to 1972.",
                    "qas": [
                        {"id": "q1", "question": "When did it end?", "answers": [{"text": "1972", "answer_start": 24}] * 2},
                        {"id": "q2", "question": "When did it begin?", "answers": [{"text": "1961", "answer_start": 16}]},
                    ],
                }
            ],
        }
    ]
}


def test_squad_spans_hold_the_answer_in_the_articles_own_text(tmp_path):
    file = tmp_path / "squad.json"
    file.write_text(json.dumps(SQUAD), encoding="utf-8")
    articles, tasks = read_squad(file)
    assert articles[0].text == "Apollo program\n\nApollo ran from 1961 to 1972."
    for one in tasks:
        assert articles[0].text[one.golds[0].start : one.golds[0].end] == one.gold_answer
    assert tasks[0].aliases == ()  # the same answer twice is one answer


def test_a_draw_of_squad_questions_does_not_depend_on_their_order(tmp_path):
    turned = json.loads(json.dumps(SQUAD))
    turned["data"][0]["paragraphs"][0]["qas"].reverse()
    drawn = []
    for name, content in (("one", SQUAD), ("two", turned)):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        drawn.append([read_squad(tmp_path / name, 1, seed)[1][0].task_id for seed in range(8)])
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) == {"q1", "q2"}


@pytest.mark.parametrize("content", ["", "[]", '{"data": [{"title": "x"}]}', '{"data": 3}'])
def test_what_is_no_squad_file_is_refused(tmp_path, content):
    file = tmp_path / "squad.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"not a SQuAD 1\.1 file"):
        read_squad(file)
    with pytest.raises(InputError, match="at least 1"):
        read_squad(file, 0)
