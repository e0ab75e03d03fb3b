"""The command line as a user meets it: what it prints, its exit status, and what a mistake gets."""

import json

import pytest

from ragkit.cli import main, parser
from ragkit.corpus import read_snapshot
from ragkit.evaluation.collections import KINDS


def run(capsys, *words: str) -> tuple[int, str, str]:
    try:
        status = main(list(words))
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    out = capsys.readouterr()
    return status, out.out, out.err


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """A folder of two documents, and a working directory to index it from."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "skylark.txt").write_text(
        "The Skylark-9 relay satellite lost its second reaction wheel on 3 March because lubricant had left the bearing.\n"
        "Operators moved to a bias-momentum mode and kept the payload running.",
        encoding="utf-8",
    )
    (folder / "harbour.md").write_text(
        "# Harbour plan\n\nThe harbour opens at nine and closes at five in winter.\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return folder


def commands() -> list[str]:
    actions = parser()._subparsers._group_actions[0]
    return [*actions.choices, *(f"reproduce {kind}" for kind in KINDS)]


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_with_an_example(capsys, command):
    status, out, _ = run(capsys, *command.split(), "--help")
    assert status == 0
    assert "example: ragkit " + command in out


@pytest.mark.parametrize(
    "words",
    [
        ("frobnicate",),
        ("ask",),
        ("ask", "q", "-k", "0"),
        ("ask", "q", "-k", "two"),
        ("models", "eat"),
        ("eval", "--split", "train"),
        ("eval", "--method", "fuzzy"),
        ("ask", "q", "--rerank", "magic"),
        ("reproduce", "cisi", "."),
        ("reproduce", "beir", ".", "--method", "colbert"),
        ("reproduce", "beir", ".", "--k1", "much"),
        ("snapshot", "only-one-word"),
        ("snapshot", "spaceflight-news", "out.parquet", "--since", "yesterday"),
        ("snapshot", "spaceflight-news", "out.parquet", "--version", "v5"),
        ("snapshot", "spaceflight-news", "out.parquet", "--limit", "0"),
        (),
    ],
)
def test_wrong_words_are_status_2_and_one_line(capsys, words):
    status, _, err = run(capsys, *words)
    assert status == 2
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("index", "nowhere"), "nowhere"),
        (("ask", "q", "--profile", "nope"), "unknown profile"),
        (("run", "notebooks/99.py"), "99.py"),
        (("snapshot", "nowhere.parquet", "out.parquet"), "nowhere.parquet"),
        (("snapshot", "a.json", "out.parquet", "--since", "2026-01-01"), "--since belongs to the source spaceflight-news"),
        (("snapshot", "spaceflight-news", "a.json", "out.parquet"), "is fetched alone"),
        (("snapshot", "spaceflight-news", "out.parquet", "--page-size", "501"), "1 to 500"),
        (("snapshot", "spaceflight-news", "out.parquet", "--base-url", "nowhere"), "nowhere"),
        (("snapshot", "spaceflight-news", "out.parquet", "--since", "2026-02-01", "--until", "2026-01-01"), "is after until"),
        (("reproduce", "beir", "nowhere"), "BEIR folder"),
        (("reproduce", "trec", "scifact"), "ragkit reproduce --fetch scifact"),
        (("reproduce", "--data", "nowhere"), "nowhere is not a folder"),
        (("reproduce", "--fetch", "no-such-set"), "no-such-set"),
        (("eval", "--arms", "A1,A77"), "A77"),
        (("eval", "--rerank", "cross-encoder"), "needs a model"),
        (("ab", "q", "--rerank", "server", "--rerank-model", "m"), "needs a base_url"),
        (("ask", "q", "--rerank-url", "http://localhost/v1"), "--rerank-url needs --rerank"),
        (("vram", "NoSuchModel"), "NoSuchModel"),
        (("models", "fetch", "no-such-model"), "no-such-model"),
        (("models", "fetch"), "needs a name"),
    ],
)
def test_what_cannot_be_done_is_status_1_and_one_line_that_names_it(capsys, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, *words)
    assert status == 1
    assert len(err.strip().splitlines()) == 1
    assert says in err


def test_snapshot_counts_rejections_and_keeps_a_file_of_other_content(capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"id": "a", "title": "One", "text": "x"}\n{"title": "no id"}\n'
        '{"id": "b", "title": "Two", "published_at": "2023-02-30"}\n'
    )
    out = tmp_path / "out.parquet"
    status, text, _ = run(capsys, "snapshot", str(rows), str(out))
    assert status == 0
    assert "1 articles" in text
    assert "rejected 2" in text
    assert "2023-02-30" in text
    before = out.read_bytes()
    rows.write_text('{"id": "c", "title": "Three", "text": "y"}\n')
    status, _, err = run(capsys, "snapshot", str(rows), str(out))
    assert status == 1
    assert "overwrite" in err
    assert out.read_bytes() == before


def test_snapshot_merges_several_sources_into_the_last_word(capsys, root, tmp_path):
    files = [str(root / "tests" / "fixtures" / "corpus" / f"snapi_v{n}.json") for n in (2, 3, 4)]
    digests = set()
    for order in (files, files[::-1], [*files, files[0]]):
        status, out, _ = run(capsys, "snapshot", *order, str(tmp_path / "out.parquet"), "--json")
        assert status == 0
        result = json.loads(out)
        digests.add(result["digest"])
    assert len(digests) == 1
    assert result["rows"] == result["articles"] + len(result["rejected"])
    assert result["reasons"] == {"repeats another row": 2}


def test_snapshot_fetches_the_news_keeps_its_pages_and_says_what_came_from_disk(capsys, tmp_path):
    from test_corpus_feeds import FakeApi, news, serving

    api = FakeApi([news(n) for n in (5, 4, 3, 2, 1)])
    out = str(tmp_path / "news.parquet")
    with serving(api) as url:
        words = ("snapshot", "spaceflight-news", out, "--since", "2026-01-01", "--base-url", url, "--page-size", "2")
        status, text, err = run(capsys, *words)
        assert (status, err) == (0, "")
        assert "3 pages, 0 of them from disk" in text
        assert "5 articles written" in text
        assert len(list((tmp_path / "news.raw").iterdir())) == 3
        status, text, _ = run(capsys, *words, "--json")
        result = json.loads(text)
        assert (result["fetch"]["asked"], result["fetch"]["from_disk"], result["fetch"]["missing"]) == (0, 3, 0)
        assert result["digest"] == read_snapshot(out).digest
        status, text, _ = run(capsys, *words)
        assert "nothing was asked for: --refresh fetches anew" in text
        api.fault = lambda api, n, asked: {**api.page("/v4/articles/", asked), "count": 9}
        status, _, err = run(capsys, *words, "--refresh")
        assert status == 0
        assert "the API counts 4 articles more than were found" in err
        api.fault = lambda api, n, asked: b"<html>"
        status, _, err = run(capsys, *words, "--refresh")
    assert status == 1
    assert "not JSON" in err
    assert len(err.strip().splitlines()) == 1


def test_vram_says_what_fits_and_fails_where_nothing_does(capsys):
    status, out, _ = run(capsys, "vram", "Qwen/Qwen3-8B", "--dtype", "awq", "--card-gib", "15.55", "--json")
    fits = json.loads(out)
    assert status == 0
    assert fits["placement"] == "co-resident"
    assert fits["flags"]["generator"].startswith("--model Qwen/Qwen3-8B")
    status, out, _ = run(capsys, "vram", "Qwen/Qwen3-8B", "--dtype", "bf16", "--card-gib", "15.55", "--json")
    assert status == 1
    assert json.loads(out)["placement"] == "impossible"


@pytest.fixture
def scifact(tmp_path, monkeypatch):
    """A folder named like a set with published figures, which it cannot meet; nothing was fetched before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGKIT_COLLECTIONS", str(tmp_path / "cache"))
    monkeypatch.setenv("RAGKIT_WEIGHTS", str(tmp_path / "weights"))
    folder = tmp_path / "data" / "scifact"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '{"_id": "d1", "title": "Wing", "text": "flutter of a wing"}\n{"_id": "d2", "title": "Bread", "text": "its price"}\n'
    )
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "wing flutter"}\n{"_id": "2", "text": "the"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\td1\t1\n2\td2\t1\n9\td2\t1\n")
    return folder


def test_reproduce_of_one_folder_prints_the_ten_keys_and_says_what_was_left_out(capsys, scifact):
    words = ("beir", str(scifact), "--method", "bm25", "--k1", "1.5", "--b", ".75", "--tokenizer", "plain", "--run", "run.txt")
    status, out, err = run(capsys, "reproduce", *words, "--json")
    assert status == 0
    report = json.loads(out)
    keys = ["ndcg@10", "map@1000", "mrr@10", "recall@1", "recall@5", "recall@10", "recall@100", "hit@5", "queries", "truncated"]
    assert list(report) == keys
    assert (report["hit@5"], report["queries"], report["truncated"]) == (0.5, 2, 0)
    assert "1 judged query not there, left out: 9" in err
    assert "1 of 2 queries found nothing" in err
    assert (scifact.parent.parent / "run.txt").read_text().startswith("1 Q0 d1 1 ")
    status, out, _ = run(capsys, "reproduce", "beir", str(scifact), "--method", "bm25", "--tokenizer", "names")
    assert status == 0
    assert "hit@5        0.5000" in out


def test_a_file_that_is_not_a_run_is_never_written_over(capsys, scifact):
    mine = scifact / "queries.jsonl"
    before = mine.read_bytes()
    status, _, err = run(capsys, "reproduce", "beir", str(scifact), "--method", "bm25", "--run", str(mine))
    assert mine.read_bytes() == before
    assert status in (1, 2)
    assert "choose another file" in err


def test_tasks_are_never_written_over_by_their_curation(capsys, tmp_path):
    (tmp_path / "articles").mkdir()
    (tmp_path / "articles" / "a.md").write_text("The craft is grey.", encoding="utf-8")
    task = {
        "task_id": "t",
        "question": "Which colour?",
        "gold_answer": "grey",
        "kind": "fact",
        "split": "dev",
        "answerable": True,
    }
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps({**task, "golds": [{"article_id": "a", "start": 13, "end": 17}]}), encoding="utf-8")
    before = mine.read_bytes()
    words = ("tasks", "curate", str(mine), "--articles", str(tmp_path / "articles"), "--out", str(mine), "--profile", "ci")
    status, _, err = run(capsys, *words)
    assert mine.read_bytes() == before
    assert status in (1, 2)
    assert "choose another file" in err


@pytest.mark.parametrize(("option", "value"), [("--b", "2"), ("--k1", "-1"), ("--k1", "nan")])
def test_bm25_options_out_of_range_are_refused(capsys, scifact, option, value):
    status, _, err = run(capsys, "reproduce", "beir", str(scifact), "--method", "bm25", f"{option}={value}")
    assert status == 1
    assert f"{option[2:]} is" in err


def test_reproduce_fails_where_a_figure_is_missed_and_says_what_was_skipped(capsys, scifact):
    status, out, _ = run(capsys, "reproduce", "--data", str(scifact.parent))
    assert status == 1
    assert "FAIL" in out
    assert "cranfield" in out
    assert "the collection is not at hand" in out
    assert "ragkit models fetch all-minilm-l6-v2" in out
    status, out, err = run(capsys, "reproduce", "--data", str(scifact.parent), "--json")
    found = json.loads(out)
    assert status == 1
    assert found["failed"] == sum(not row["passed"] for row in found["rows"]) > 0
    assert {row["set"] for row in found["rows"]} == {"scifact"}
    assert "BM25 plain, k1 1.5, b 0.75: 2 documents, 2 queries" in err


def test_reproduce_with_nothing_at_hand_measures_nothing_and_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGKIT_COLLECTIONS", str(tmp_path))
    status, out, err = run(capsys, "reproduce")
    assert status == 0
    assert "0 passed, 0 failed" in out
    assert "nothing was measured" in err
    (tmp_path / "empty").mkdir()
    status, _, err = run(capsys, "reproduce", "--data", str(tmp_path / "empty"))
    assert status == 1
    assert "looked for scifact" in err


@pytest.mark.models
def test_a_folder_is_indexed_asked_changed_and_refused_as_stale(capsys, notes):
    status, out, _ = run(capsys, "index", "notes", "--json")
    first = json.loads(out)
    assert status == 0
    assert first["articles"] == 2
    assert first["embedded"] == first["chunks"]

    status, out, _ = run(capsys, "index", "notes", "--json")
    assert json.loads(out)["embedded"] == 0

    question = "Why did Skylark-9 lose a reaction wheel?"
    status, out, _ = run(capsys, "ask", question, "--profile", "ci", "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["hits"][0]["chunk_id"].startswith("skylark")
    assert answer["retrieval_ms"] > 0
    assert answer["generation_ms"] > 0
    assert answer["rerank_ms"] is None

    words = ("--profile", "ci", "--method", "bm25", "--rerank", "reader", "--min-cosine", "-1", "--json")
    status, out, _ = run(capsys, "ask", "wheel", *words)
    answer = json.loads(out)
    assert status == 0
    assert [hit["chunk_id"].partition("::")[0] for hit in answer["hits"]] == ["skylark.txt"]
    assert 0 < answer["rerank_ms"] < answer["retrieval_ms"]
    status, out, _ = run(capsys, "ask", "zeppelin", "--profile", "ci", "--method", "bm25")
    assert "no chunk was found" in out

    (notes / "skylark.txt").write_text("Nothing is left of it.", encoding="utf-8")
    status, _, err = run(capsys, "ask", question, "--profile", "ci")
    assert status == 1
    assert "stale" in err
    (notes / "third.txt").write_text("A third document.", encoding="utf-8")
    run(capsys, "index", "notes")
    (notes / "third.txt").unlink()
    status, _, err = run(capsys, "ask", question, "--profile", "ci")
    assert (status, "stale" in err) == (1, True)


@pytest.mark.models
def test_below_the_threshold_the_reader_is_not_called_and_the_best_score_is_shown(capsys, notes, monkeypatch):
    import ragkit.models

    run(capsys, "index", "notes")
    monkeypatch.setattr(ragkit.models, "open_reader", lambda *_: pytest.fail("the reader was opened"))
    status, out, _ = run(capsys, "ask", "Which sonata did Mozart finish in Paris?", "--profile", "ci", "--min-cosine", "0.6")
    assert status == 0
    assert "I don't have enough information in the provided sources to answer that." in out
    assert "the best score is 0." in out
    assert "reader not called" in out


@pytest.mark.models
def test_ab_shows_both_answers_side_by_side(capsys, notes):
    run(capsys, "index", "notes")
    status, out, _ = run(capsys, "ab", "When does the harbour open?", "--profile", "ci")
    assert status == 0
    head = out.splitlines()[0]
    assert head.index("WITH RETRIEVAL") < head.index("WITHOUT RETRIEVAL")
    assert "top scores" in out
    assert out.count("generation") == 2


@pytest.mark.models
def test_filters_reach_the_search_and_wrong_ones_are_named(capsys, notes):
    run(capsys, "index", "notes")
    status, out, _ = run(capsys, "ask", "harbour", "--profile", "ci", "--where", "article_id=it's", "--json")
    assert status == 0
    assert json.loads(out)["refused"] == "threshold"
    status, _, err = run(capsys, "ask", "harbour", "--profile", "ci", "--where", "colour=red")
    assert status == 1
    assert "colour" in err
    status, _, err = run(capsys, "ask", "harbour", "--profile", "ci", "--where", "colour")
    assert status == 1
    assert "FIELD" in err


@pytest.mark.models
def test_asking_without_an_index_says_how_to_make_one(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, "ask", "anything", "--profile", "ci")
    assert status == 1
    assert "ragkit index SOURCE" in err
