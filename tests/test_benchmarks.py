"""The benchmarks measure what they say: turns, windows, exact searches that agree, an approximate index and its distances.

Smallest sizes; no time is judged.
"""

from __future__ import annotations

import json
import shlex
import sys
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

from ragkit.errors import InputError
from ragkit.lab.receipts import digest_of, read_receipt
from ragkit.records import Article, Chunk

FILES = ("run", "exact_search", "index_build", "approximate_search")


@pytest.fixture(autouse=True)
def benchmarks_on_path(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))


def unit(rng, count, dimension):
    rows = rng.standard_normal((count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def gathered():
    """600 unit vectors in 20 heaps, 24 queries near them: neighbours that an approximate index can find."""
    rng = np.random.default_rng(0)
    heaps = unit(rng, 20, 32)

    def near(count):
        rows = heaps[np.arange(count) % 20] + 0.3 * unit(rng, count, 32)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    return near(600), near(24)


def words_tokenizer():
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, **{f"w{i}": i for i in range(1, 100)}}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    return tokenizer


def article(name, words):
    return Article(name, name, " ".join(words), None, None, None)


def windows_of(vectors, queries):
    text = [f"window {i}" for i in range(len(vectors))]
    chunks = tuple(Chunk(f"a::{i:04d}", "a", "A", None, None, None, one, 0, len(one)) for i, one in enumerate(text))
    questions = tuple(f"question {i}" for i in range(len(queries)))
    return import_module("windows").Windows(chunks, vectors, questions, queries, "digest", {"model": "generated"})


def test_every_turn_begins_with_the_next_way_and_the_first_round_only_warms_up():
    called = []
    turns = import_module("turns")
    taken = turns.take_turns({name: lambda name=name: called.append(name) for name in "abc"}, 4)
    assert "".join(called) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert {name: len(values) for name, values in taken.items()} == {"a": 4, "b": 4, "c": 4}


def test_ratios_are_formed_within_a_turn():
    turns = import_module("turns")
    assert turns.ratio([2.0, 40.0, 3.0], [1.0, 10.0, 1.0]) == {"median": 3.0, "low": 2.0, "high": 4.0}
    assert turns.milliseconds({"a": [0.2, 0.1, 0.9]}, 20) == {"a": pytest.approx(10.0)}


@given(st.integers(1, 400), st.data())
def test_spread_is_increasing_within_bounds_and_whole_where_all_are_wanted(there, data):
    spread = import_module("windows").spread
    wanted = data.draw(st.integers(1, there))
    places = spread(there, wanted)
    assert len(set(places.tolist())) == wanted
    assert places[0] == 0
    assert places[-1] < there
    assert spread(there, there).tolist() == list(range(there))


def test_windows_are_slices_of_their_article_with_the_tokens_they_promise_each_sequence_once():
    windows, tokenizer = import_module("windows"), words_tokenizer()
    words = [f"w{i}" for i in range(1, 60)]
    both = [article("one", words), article("two", [word.upper() for word in words])]  # the same tokens, other letters
    possible = sum(len(range(0, 59 - length + 1, windows.STRIDE)) for length in windows.LENGTHS)
    chunks = windows.cut(both, tokenizer, possible)
    assert {chunk.article_id for chunk in chunks} == {"one"}
    assert all(both[0].text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert {len(tokenizer.encode(chunk.text)) for chunk in chunks} == set(windows.LENGTHS)
    assert len({chunk.chunk_id for chunk in chunks}) == len({chunk.text for chunk in chunks}) == possible
    with pytest.raises(InputError, match=rf"have {possible} windows, not {possible + 1}: give more articles"):
        windows.cut(both, tokenizer, possible + 1)


def test_a_stored_vector_follows_its_text(gathered):
    windows = windows_of(*gathered)
    stored = import_module("windows").Stored(windows.part(100))
    part = windows.part(100)
    assert np.array_equal(stored.encode_passages([part.chunks[7].text, part.chunks[3].text]), part.vectors[[7, 3]])


@pytest.mark.parametrize("k", [1, 10, 600])
def test_the_numpy_product_finds_what_a_full_sort_finds(gathered, k):
    vectors, queries = gathered
    found = import_module("exact_search").numpy_top(vectors, queries, k)
    scores = queries @ vectors.T
    assert np.array_equal(np.take_along_axis(scores, found, axis=1), -np.sort(-scores, axis=1)[:, :k])


def test_all_exact_searches_agree_and_every_ratio_is_there(gathered, tmp_path):
    exact = import_module("exact_search")
    found, timings = exact.measure_size(windows_of(*gathered), k=5, singles=2, turns=1, folder=tmp_path)
    assert found == {
        "vectors": 600,
        "dimension": 32,
        "same_as_ragkit": dict.fromkeys(("ragkit", "faiss", "numpy", "lancedb"), 24),
    }
    for way in ("faiss", "numpy", "lancedb"):
        for kind in ("single", "batch"):
            assert timings[f"{kind}_ragkit_over_{way}"]["median"] > 0
    beyond = timings["single_ms"]["ragkit"] - 2 * timings["single_ms"]["faiss"]
    assert timings["single_ms_beyond_twice_faiss"] == pytest.approx(beyond)  # one turn: a median of one
    assert timings["single_goal_met"] == (beyond <= 1)


def test_parity_is_the_cosine_of_one_text_in_two_arithmetics():
    same = import_module("index_build").parity(np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[0.6, 0.8], [1.0, 1.0]]))
    assert same == {"smallest_cosine": pytest.approx(2**-0.5), "mean_cosine": pytest.approx((1 + 2**-0.5) / 2)}


def test_generated_vectors_have_norm_one_and_the_promised_cosine_to_a_window(gathered):
    approximate = import_module("approximate_search")
    windows = unit(np.random.default_rng(1), 50, 384)
    made = approximate.generated(windows, 2000, seed=3)
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-6)
    nearest = (made @ windows.T).max(axis=1)
    assert np.mean(nearest) == pytest.approx((1 + approximate.NOISE**2) ** -0.5, abs=0.01)
    assert np.array_equal(made, approximate.generated(windows, 2000, seed=3))


def test_an_index_asked_everywhere_is_exact_and_a_compressed_one_lies_about_distances(gathered, tmp_path):
    """The trap: under cosine a compressed index gives about 2(1 - cos), until its hits are scored again from the vectors."""
    approximate, exact = import_module("approximate_search"), import_module("exact_search")
    vectors, queries = gathered
    best = exact.numpy_top(vectors, queries, 10)
    table = approximate.write_table(vectors, tmp_path)

    def quality(**setting):
        return approximate.quality(table, vectors, queries, best, approximate.Setting(**setting), min_cosine=0.9)

    with approximate.indexed(table, approximate.KINDS["IVF_FLAT"].config(600)) as built:
        assert built["bytes"] > vectors.nbytes
        whole, little = quality(nprobes=approximate.partitions(600)), quality(nprobes=1)
    assert (whole["recall"], whole["wrongly_refused"]) == (1.0, 0.0)
    assert whole["cosine_lost"] == pytest.approx(0, abs=1e-6)
    assert whole["distance_over_truth"] == pytest.approx(1, abs=1e-3)
    assert 0 < little["recall"] < 1
    assert little["cosine_lost"] > 0
    with approximate.indexed(table, approximate.KINDS["HNSW_SQ"].config(600)):
        raw, refined = quality(nprobes=20, ef=100), quality(nprobes=20, ef=100, refine=5)
    assert raw["distance_over_truth"] == pytest.approx(2, abs=0.05)
    assert raw["wrongly_refused"] > 0
    assert refined["distance_over_truth"] == pytest.approx(1, abs=1e-3)
    assert refined["wrongly_refused"] == 0
    assert table.list_indices() == []


def test_the_cheapest_setting_is_chosen_among_those_with_enough_recall():
    approximate = import_module("approximate_search")

    def row(recall, over_exact, over_flat):
        return {"recall": recall, "over_exact": {"median": over_exact}, "over_lancedb_flat": {"median": over_flat}}

    rows = {"fast": row(0.90, 0.1, 0.01), "good": row(0.96, 1.4, 0.5), "best": row(1.0, 2.0, 0.9)}
    assert approximate.cheapest(rows) == {
        "setting": "good", "over_exact": 1.4, "pays": False, "pays_over_lancedb_flat": True
    }  # fmt: skip
    assert approximate.cheapest({"fast": rows["fast"]}) is None


@pytest.mark.parametrize("file", FILES)
def test_help_gives_an_example(file, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{file}.py", "--help"])
    with pytest.raises(SystemExit) as end:
        import_module(file).main()
    assert end.value.code == 0
    assert f"example: python benchmarks/{file}.py" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["255", "-1", "1e4", "ten"])
def test_a_size_that_no_index_can_be_trained_on_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as end:
        import_module("run").parser().parse_args(["--sizes", wrong])
    assert end.value.code == 2
    assert f"argument --sizes: {wrong} is no whole number of at least 256" in capsys.readouterr().err


def test_make_bench_runs_the_command(root):
    assert "benchmarks/run.py" in (root / "Makefile").read_text(encoding="utf-8").partition("\nbench:")[2].partition("\n\n")[0]


@pytest.mark.models
def test_too_many_windows_are_refused_on_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "articles").mkdir()
    (tmp_path / "articles" / "short.md").write_text("---\nid: s\ntitle: Short\n---\nThree short words.", encoding="utf-8")
    where = ["--articles", str(tmp_path / "articles"), "--work", str(tmp_path / "work"), "--artifacts", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["run.py", "--sizes", "256", *where])
    assert import_module("run").main() == 1
    assert capsys.readouterr().err == "benchmarks: 1 articles have 0 windows, not 256: give more articles or a smaller size\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.models
def test_one_run_prints_the_tables_and_stores_results_timings_and_receipt(root, tmp_path, capsys):
    run = import_module("run")
    small = shlex.split("--sizes 256 300 --generated 400 --queries 5 --singles 2 --turns 1 --k 3 --chunks 3 --build-turns 1")
    words = run.parser().parse_args([*small, "--work", str(tmp_path / "work"), "--artifacts", str(tmp_path / "artifacts")])
    results, timings = run.run(words)
    printed = capsys.readouterr().out
    for line in (
        "Exact search, top 3",
        "Building an index of 3 chunks",
        "generated_400: 400 vectors, top 3",
        "no goal at this size",
    ):
        assert line in printed
    assert results["windows"]["count"] == 300
    assert results["exact"]["n300"]["same_as_ragkit"] == dict.fromkeys(("ragkit", "faiss", "numpy", "lancedb"), 5)
    assert results["build"]["sentence_transformers"]["smallest_cosine"] > 0.99999
    assert results["build"]["openvino"]["smallest_cosine"] > 0.999
    assert set(timings["approximate"]) == {"windows_256", "windows_300", "generated_400"}
    folder = tmp_path / "artifacts" / "cpu"
    assert json.loads((folder / "metrics" / "benchmarks.json").read_text("utf-8"))["windows"] == results["windows"]
    assert (folder / "metrics" / "benchmarks.timings.json").is_file()
    receipt = read_receipt(folder / "receipts" / "benchmarks.json")
    assert receipt.data["benchmarks/run.py"] == digest_of(root / "benchmarks" / "run.py")
    assert "all-minilm-l6-v2" in receipt.models
