"""The index: exact search against LanceDB's own, immutability, and what survives damage, full disks, kills and company.

Run as a script it is the other process of those tests: it builds an index and pauses where it is told to.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import lancedb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragkit
from ragkit.errors import InputError, ServiceError
from ragkit.records import Chunk
from ragkit.retrieval import build_index, chunks_digest, open_index
from ragkit.retrieval import index as module

PART = 8


class HashEmbedder:
    """A text's vector is drawn from its hash: the same everywhere, and no two texts are near. Counts what it embeds."""

    max_tokens, tokenizer = 10**6, None

    def __init__(self, dimension=16, name="hash"):
        self.dimension, self.identity, self.embedded = dimension, {"model": name}, 0

    def encode_passages(self, texts, truncate=False):
        self.embedded += len(texts)
        return np.stack([self._vector(text) for text in texts])

    encode_queries = encode_passages

    def _vector(self, text):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
        vector = np.random.default_rng(seed).standard_normal(self.dimension)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


class TableEmbedder:
    """Text "i" gets row i of a given table, as it is."""

    max_tokens, tokenizer = 10**6, None

    def __init__(self, rows):
        self.rows = np.asarray(rows, dtype=np.float32)
        self.dimension = self.rows.shape[1]
        self.identity = {"model": hashlib.sha256(self.rows.tobytes()).hexdigest()}

    def encode_passages(self, texts, truncate=False):
        return self.rows[[int(text) for text in texts]]


def make_chunks(count, word="text"):
    return [
        Chunk(f"a{i:05d}::0", f"a{i:05d}", f"Title {i}", None, "2024-07-01", None, f"{word} {i}", 0, len(f"{word} {i}"), "NASA")
        for i in range(count)
    ]


def table_index(rows, folder):
    chunks = [replace(chunk, text=str(i)) for i, chunk in enumerate(make_chunks(len(rows)))]
    return build_index(chunks, TableEmbedder(rows), folder)


def unit(vectors):
    vectors = np.asarray(vectors, dtype=np.float64)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def ids(hits):
    return [hit.chunk.chunk_id for hit in hits]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return build_index(make_chunks(50), HashEmbedder(), tmp_path_factory.mktemp("small"))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(module, "PART", PART)


# Search


@pytest.mark.parametrize(("count", "dimension"), [(1, 3), (40, 2), (700, 384)])
def test_equals_lancedb_flat_search(tmp_path, count, dimension):
    rng = np.random.default_rng(count)
    rows = unit(rng.standard_normal((count, dimension)))
    rows[count // 2 :: 7] = rows[0]  # exact ties
    index = table_index(rows, tmp_path)
    table = lancedb.connect(str(index.folder)).open_table("chunks")
    for query in rng.standard_normal((20, dimension)):
        hits = index.search(query, 25)
        flat = table.search(query.astype(np.float32)).distance_type("cosine").bypass_vector_index().limit(25).to_list()
        ours = np.array([hit.cosine for hit in hits])
        assert len(hits) == len(flat) == min(25, count)
        assert 1 - ours == pytest.approx([row["_distance"] for row in flat], abs=1e-6)
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        exact = dict(zip([chunk.chunk_id for chunk in index.chunks], index.vectors.astype(np.float64) @ unit(query), strict=True))
        for hit, row in zip(hits, flat, strict=True):  # another id only where the two are tied in float32
            assert hit.chunk.chunk_id == row["chunk_id"] or abs(exact[hit.chunk.chunk_id] - exact[row["chunk_id"]]) < 1e-6


def test_the_table_gives_back_the_record(tmp_path):
    odd = "emoji 🚀, e\u0301, שלום, null \x00 byte, 'quote'\r\n"
    chunks = [
        Chunk("b::7", "b", "", None, None, None, odd, 7, 7 + len(odd), None),
        Chunk("a::0", "a", "T", "u", "2024", "H", "x", 0, 1, "s"),
    ]
    build_index(chunks, HashEmbedder(), tmp_path)
    index = open_index(tmp_path)
    assert index.chunks == (chunks[1], chunks[0])
    assert len(index) == 2
    rows = lancedb.connect(str(index.folder)).open_table("chunks").to_arrow()
    assert sorted(rows["text"].to_pylist()) == sorted([odd, "x"])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_search_many_equals_search_one_by_one(tmp_path_factory, data):
    dimension = data.draw(st.integers(1, 5))
    small_rows = st.lists(st.integers(-2, 2), min_size=dimension, max_size=dimension).filter(any)
    rows = data.draw(st.lists(small_rows, min_size=1, max_size=25))
    queries = np.array(data.draw(st.lists(small_rows, min_size=1, max_size=8)), dtype=float)
    k = data.draw(st.integers(1, 30))
    index = table_index(rows, tmp_path_factory.mktemp("many"))
    together = index.search_many(queries, k)
    assert together == [index.search(query, k) for query in queries]
    cosines = unit(queries) @ unit(rows).T
    for hits, row in zip(together, cosines, strict=True):
        assert [hit.cosine for hit in hits] == pytest.approx(sorted(row, reverse=True)[:k], abs=1e-6)
        assert [(-hit.cosine, hit.chunk.chunk_id) for hit in hits] == sorted((-hit.cosine, hit.chunk.chunk_id) for hit in hits)
    # The same vector has the same cosine, so that duplicates lie in order of their ids and none is passed over.
    by_vector = {}
    for chunk, vector in zip(index.chunks, index.vectors, strict=True):
        by_vector.setdefault(vector.tobytes(), []).append(chunk.chunk_id)
    for hits in together:
        for same in by_vector.values():
            given_back = [chunk_id for chunk_id in ids(hits) if chunk_id in same]
            assert given_back == same[: len(given_back)]


def test_batches_change_nothing(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    rows = unit(rng.standard_normal((400, 384)))
    rows[100:300] = rows[:200]  # float32 products of equal rows differ with their place in the batch
    index = table_index(rows, tmp_path)
    queries = np.concatenate([rng.standard_normal((30, 384)), rows[:34]])
    one_by_one = [index.search(query, 7) for query in queries]
    assert index.search_many(queries, 7) == one_by_one
    monkeypatch.setattr(module, "_BLOCK", 1300)  # three queries at a time
    assert index.search_many(queries, 7) == one_by_one


def test_nearly_unit_vectors_are_still_ranked_exactly(tmp_path):
    rng = np.random.default_rng(6)
    directions = unit(np.array([1.0, 0, 0, 0]) + 1e-3 * rng.standard_normal((300, 4)))
    index = table_index(directions * rng.uniform(0.999, 1.001, (300, 1)), tmp_path)
    assert np.linalg.norm(index.vectors.astype(np.float64), axis=1) == pytest.approx(1, abs=1e-6)
    query = np.array([1.0, 1e-3, 0, 0])
    best = np.sort(directions @ unit(query))[::-1][:10]
    assert [hit.cosine for hit in index.search(query, 10)] == pytest.approx(best, abs=1e-9, rel=0)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_the_length_of_a_query_is_irrelevant(small, scale):
    query = np.arange(1.0, 17.0)
    assert ids(small.search(query * scale, 9)) == ids(small.search(query, 9))


def test_lists_are_vectors_too(small):
    assert small.search(small.vectors[4].tolist(), 3) == small.search(small.vectors[4], 3)


def test_a_chunk_finds_itself_first(small):
    for place in (0, 17, 49):
        first = small.search(small.vectors[place], 1)[0]
        assert first.chunk == small.chunks[place]
        assert first.cosine == pytest.approx(1, abs=1e-12)
        assert first.cosine <= 1


def test_k_over_n_gives_all(small):
    assert sorted(ids(small.search(small.vectors[0], 10_000))) == [chunk.chunk_id for chunk in small.chunks]


def test_threshold_cuts_the_tail_and_nothing_else(small):
    full = small.search(small.vectors[3], 50)
    bound = full[20].cosine
    assert small.search(small.vectors[3], 50, min_cosine=bound) == full[:21]
    assert small.search(small.vectors[3], 5, min_cosine=bound) == full[:5]
    assert small.search(-small.vectors[3], 50, min_cosine=1.0) == []


@pytest.mark.parametrize("k", [0, -1, True, 2.5, "5", None, float("nan")])
def test_k_that_is_no_count_is_refused(small, k):
    with pytest.raises(InputError, match="k is"):
        small.search(small.vectors[0], k)


@pytest.mark.parametrize("bound", [float("nan"), 1.5, -2])
def test_a_threshold_that_is_no_cosine_is_refused(small, bound):
    with pytest.raises(InputError, match="min_cosine"):
        small.search(small.vectors[0], 3, min_cosine=bound)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.zeros(16), "zero or not finite"),
        (np.full(16, np.nan), "zero or not finite"),
        (np.r_[np.inf, np.ones(15)], "zero or not finite"),
        (np.r_[np.nan, np.ones(15)], "zero or not finite"),
        (np.ones(15), r"takes \(n, 16\)"),
        (np.ones(384), r"takes \(n, 16\)"),
        (np.ones((2, 16)), r"takes \(n, 16\)"),
        (np.ones((1, 16)), r"takes \(n, 16\)"),
        (np.float32(1.0), r"takes \(n, 16\)"),
        (["a"] * 16, "not numbers"),
        (None, "takes"),
    ],
)
def test_a_query_without_direction_is_refused(small, vector, message):
    with pytest.raises(InputError, match=message):
        small.search(vector, 3)


def test_the_bad_row_of_many_is_named(small):
    queries = small.vectors[:5].copy()
    queries[3] = 0
    with pytest.raises(InputError, match="query vector 3"):
        small.search_many(queries, 3)
    assert small.search_many(np.empty((0, 16)), 3) == []


def test_vectors_cannot_be_changed(small):
    with pytest.raises(ValueError, match="read-only"):
        small.vectors[0, 0] = 1


# Building


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_vector_that_could_not_be_found_is_refused(tmp_path, bad):
    rows = np.ones((5, 3))
    rows[2] = bad
    with pytest.raises(ServiceError, match="a00002::0"):
        table_index(rows, tmp_path)
    with pytest.raises(InputError, match="no index"):
        open_index(tmp_path)


def test_an_embedder_that_gives_another_shape_is_refused(tmp_path):
    embedder = TableEmbedder(np.ones((3, 16)))
    embedder.dimension = 12
    chunks = [replace(chunk, text="0") for chunk in make_chunks(3)]
    with pytest.raises(ServiceError, match=r"shape \(3, 16\), not \(3, 12\)"):
        build_index(chunks, embedder, tmp_path)


def test_chunks_that_cannot_be_indexed_are_refused(tmp_path):
    chunk = make_chunks(1)[0]
    for chunks, message in [
        ([], "no chunks"),
        ([chunk, replace(chunk, text="other")], "occurs twice"),
        ([replace(chunk, text="\ud800")], "surrogate"),
        ([replace(chunk, heading="\udfff")], "surrogate"),
    ]:
        with pytest.raises(InputError, match=message):
            build_index(chunks, HashEmbedder(), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_embedders_own_refusal_passes_through(tmp_path):
    class Refusing(HashEmbedder):
        def encode_passages(self, texts, truncate=False):
            if not truncate:
                raise InputError("text 0 has 300 tokens, over the 256")
            return super().encode_passages(texts)

    with pytest.raises(InputError, match="300 tokens"):
        build_index(make_chunks(3), Refusing(), tmp_path)
    assert len(build_index(make_chunks(3), Refusing(), tmp_path, truncate=True)) == 3


def test_a_second_build_embeds_nothing(tmp_path):
    chunks, embedder = make_chunks(30), HashEmbedder()
    first = build_index(chunks, embedder, tmp_path, {"snapshot": "s"})
    assert embedder.embedded == 30
    second = build_index(chunks[::-1], embedder, tmp_path, {"snapshot": "s"})  # their order is not their content
    assert embedder.embedded == 30
    assert second.manifest == first.manifest == open_index(tmp_path).manifest


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c[:-1],
        lambda c: [*c, *make_chunks(31)[30:]],
        lambda c: [replace(c[0], text="another"), *c[1:]],
        lambda c: [replace(c[0], url="https://example.org/moved"), *c[1:]],
    ],
    ids=["removed", "added", "text", "url"],
)
def test_other_content_is_another_index_and_going_back_makes_it_current(tmp_path, change):
    chunks, embedder = make_chunks(30), HashEmbedder()
    former = build_index(chunks, embedder, tmp_path)
    changed = build_index(change(chunks), embedder, tmp_path)
    assert changed.manifest["key"] != former.manifest["key"]
    assert open_index(tmp_path).manifest == changed.manifest
    embedded = embedder.embedded
    assert build_index(chunks, embedder, tmp_path).manifest == former.manifest
    assert embedder.embedded == embedded
    assert open_index(tmp_path).manifest == former.manifest


def test_the_key_holds_all_that_an_index_depends_on(tmp_path):
    chunks = make_chunks(3)
    keys = [
        build_index(chunks, HashEmbedder(), tmp_path).manifest["key"],
        build_index(chunks, HashEmbedder(name="other"), tmp_path).manifest["key"],
        build_index(chunks, HashEmbedder(), tmp_path, {"snapshot": "another"}).manifest["key"],
        build_index(chunks, HashEmbedder(), tmp_path, truncate=True).manifest["key"],
    ]
    assert len(set(keys)) == 4
    assert build_index(chunks, HashEmbedder(), tmp_path, {"machine": "not content"}).manifest["key"] == keys[0]


def test_digest_counts_every_field_and_no_order():
    chunks = make_chunks(4)
    assert chunks_digest(chunks) == chunks_digest(chunks[::-1])
    assert len(chunks_digest(chunks)) == 64
    for field in Chunk.__dataclass_fields__:
        value = 99 if field in ("start", "end") else "changed"
        assert chunks_digest([replace(chunks[0], **{field: value}), *chunks[1:]]) != chunks_digest(chunks)


def test_rebuild_embeds_again_and_changes_nothing(tmp_path):
    chunks, embedder = make_chunks(10), HashEmbedder()
    first = build_index(chunks, embedder, tmp_path)
    again = build_index(chunks, embedder, tmp_path, rebuild=True)
    assert embedder.embedded == 20
    assert again.folder != first.folder
    assert again.manifest == first.manifest
    assert open_index(tmp_path).folder == again.folder
    assert ids(first.search(first.vectors[0], 3, where={"source": "NASA"})) == ids(again.search(first.vectors[0], 3))
    build_index(chunks, embedder, tmp_path)
    assert embedder.embedded == 20


def test_another_embedder_is_refused_at_search(small):
    small.check_embedder(HashEmbedder())
    with pytest.raises(InputError, match="built with another embedder"):
        small.check_embedder(HashEmbedder(name="other"))


def test_only_the_newest_are_kept(tmp_path):
    embedder = HashEmbedder()
    built = [build_index(make_chunks(count), embedder, tmp_path) for count in range(1, 7)]
    kept = {path.parent for path in tmp_path.glob("*/manifest.json")}
    assert kept == {index.folder for index in built[-module.KEPT :]}
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "CURRENT", *(path.name for path in kept)}


def test_journals_of_killed_builds_do_not_pile_up(tmp_path):
    for number in range(9):
        (tmp_path / f".building-{number}").mkdir()
    (tmp_path / ".old-half-removed").mkdir()
    build_index(make_chunks(2), HashEmbedder(), tmp_path)
    assert len(list(tmp_path.glob(".building-*"))) == module.KEPT
    assert not (tmp_path / ".old-half-removed").exists()


# Damage


def test_nothing_to_open(tmp_path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(InputError, match=r"no index in .*build one with"):
            open_index(folder)


def truncated(data):
    return data[: len(data) // 2]


def one_bit_flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize("damage", [truncated, one_bit_flipped, lambda data: b"", lambda data: b"\xff\xfe" * 50, None])
@pytest.mark.parametrize("pattern", ["chunks.lance/data/*", "chunks.lance/_versions/*.manifest", "table.sha256"])
def test_a_damaged_table_is_refused_and_a_rebuild_mends_it(tmp_path, pattern, damage):
    chunks, embedder = make_chunks(20), HashEmbedder()
    index = build_index(chunks, embedder, tmp_path)
    (file,) = index.folder.glob(pattern)
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage(file.read_bytes()))
    for attempt in (lambda: open_index(tmp_path), lambda: build_index(chunks, embedder, tmp_path)):
        with pytest.raises(ServiceError, match=r"cannot be read.*--rebuild"):
            attempt()
    build_index(chunks, embedder, tmp_path, rebuild=True)
    assert open_index(tmp_path).chunks == index.chunks


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"{}", b'{"format": 0}', b"null"])
def test_a_damaged_manifest_is_refused_and_a_rebuild_mends_it(tmp_path, content):
    chunks, embedder = make_chunks(20), HashEmbedder()
    (build_index(chunks, embedder, tmp_path).folder / "manifest.json").write_bytes(content)
    with pytest.raises(ServiceError, match=r"cannot be read.*--rebuild"):
        open_index(tmp_path)
    build_index(chunks, embedder, tmp_path, rebuild=True)
    assert open_index(tmp_path).chunks == tuple(chunks)


def test_without_its_manifest_an_index_is_not_whole_and_is_built_again(tmp_path):
    chunks, embedder = make_chunks(20), HashEmbedder()
    (build_index(chunks, embedder, tmp_path).folder / "manifest.json").unlink()
    with pytest.raises(InputError, match="no index"):
        open_index(tmp_path)
    assert len(build_index(chunks, embedder, tmp_path)) == len(open_index(tmp_path)) == 20


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"no such index", b"../..", b"/"])
def test_without_a_usable_current_the_newest_is_opened(tmp_path, content):
    former, newest = (build_index(make_chunks(count), HashEmbedder(), tmp_path) for count in (5, 6))
    os.utime(former.folder, ns=(1, 1))
    (tmp_path / "CURRENT").unlink()
    if content is not None:
        (tmp_path / "CURRENT").write_bytes(content)
    assert open_index(tmp_path).folder == newest.folder


def test_a_damaged_part_of_the_journal_is_embedded_again_alone(tmp_path, small_parts):
    chunks = make_chunks(3 * PART)

    class Failing(HashEmbedder):
        def encode_passages(self, texts, truncate=False):
            if self.embedded == 2 * PART:
                raise ServiceError("the server went away")
            return super().encode_passages(texts)

    with pytest.raises(ServiceError, match="went away"):
        build_index(chunks, Failing(), tmp_path)
    first_part = sorted(tmp_path.glob(".building-*/part-*.npy"))[0]
    first_part.write_bytes(first_part.read_bytes()[:-5])
    embedder = HashEmbedder()
    index = build_index(chunks, embedder, tmp_path)
    assert embedder.embedded == 2 * PART
    assert np.array_equal(index.vectors, build_index(chunks, HashEmbedder(), tmp_path / "other").vectors)


# Folders and disks that fail


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("kept")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ServiceError, match="could not be written to"):
            build_index(make_chunks(2), HashEmbedder(), folder)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_an_unwritable_folder_is_named_but_can_be_read(tmp_path):
    chunks, embedder = make_chunks(5), HashEmbedder()
    build_index(chunks, embedder, tmp_path)
    tmp_path.chmod(0o500)
    try:
        assert len(build_index(chunks, embedder, tmp_path)) == 5
        with pytest.raises(ServiceError, match="could not be written to"):
            build_index(make_chunks(6), embedder, tmp_path)
        assert len(open_index(tmp_path)) == 5
    finally:
        tmp_path.chmod(0o700)


# Company: other processes


def other_process(folder, count, pause):
    """Start a build of `count` chunks that stops at `pause`, says so on one line, and goes on when it gets one."""
    environment = {**os.environ, "PYTHONPATH": str(Path(ragkit.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), str(count), pause],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def kill_at_the_pause(folder, count, pause):
    process = other_process(folder, count, pause)
    assert process.stdout.readline() == "paused\n", process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("pause", "left"),
    [("embed", 2 * PART), ("rename", 0), ("utime", 0), ("rmtree", 0)],
    ids=["while embedding", "before the index has its name", "before it is current", "before its journal is gone"],
)
def test_a_killed_build_loses_no_finished_part(tmp_path, small_parts, pause, left):
    former = build_index(make_chunks(5, "former"), HashEmbedder(), tmp_path)
    kill_at_the_pause(tmp_path, 4 * PART, pause)
    assert open_index(tmp_path).folder == former.folder
    embedder = HashEmbedder()
    index = build_index(make_chunks(4 * PART), embedder, tmp_path)
    assert embedder.embedded == left
    assert open_index(tmp_path).folder == index.folder
    assert np.array_equal(index.vectors, HashEmbedder().encode_passages([chunk.text for chunk in index.chunks]))
    assert not list(tmp_path.glob(".building-*"))


def test_two_builds_at_once_end_with_one_index(tmp_path):
    first = other_process(tmp_path, 4 * PART, "embed")
    assert first.stdout.readline() == "paused\n"
    second = other_process(tmp_path, 4 * PART, "never")
    assert "another build is writing to" in second.stderr.readline()
    results = [process.communicate("go on\n" if process is first else None, timeout=60) for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0], results
    (count, key), (second_count, second_key) = (out.split() for out, _ in results)
    assert (count, second_count, second_key) == (str(4 * PART), "0", key)
    assert open_index(tmp_path).manifest["key"] == key
    assert len(list(tmp_path.glob("*/manifest.json"))) == 1


def test_a_full_disk_leaves_the_earlier_index_and_the_embedded_parts(tmp_path, small_parts):
    former = build_index(make_chunks(5, "former"), HashEmbedder(), tmp_path)
    process = other_process(tmp_path, 20 * PART, "full disk")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "could not be written to" in out
    assert "\n" not in out.strip()
    assert open_index(tmp_path).folder == former.folder
    assert not list(tmp_path.glob(".building-*/index"))
    embedder = HashEmbedder()
    assert len(build_index(make_chunks(20 * PART), embedder, tmp_path)) == 20 * PART
    assert embedder.embedded == 0


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_reader_during_a_build_sees_the_former_whole_one(tmp_path, rebuild):
    former = build_index(make_chunks(5), HashEmbedder(), tmp_path)
    seen = []

    class Watched(HashEmbedder):
        def encode_passages(self, texts, truncate=False):
            seen.append(open_index(tmp_path).folder)
            return super().encode_passages(texts)

    chunks = make_chunks(5 if rebuild else 6)
    assert len(build_index(chunks, Watched(), tmp_path, rebuild=rebuild)) == len(chunks)
    assert seen == [former.folder]


def test_unchanged_input_waits_for_nobody(tmp_path):
    chunks, embedder = make_chunks(5), HashEmbedder()
    build_index(chunks, embedder, tmp_path)
    other = other_process(tmp_path, 4 * PART, "embed")
    assert other.stdout.readline() == "paused\n"
    assert len(build_index(chunks, embedder, tmp_path)) == 5
    other.kill()
    other.communicate(timeout=60)


def test_an_index_removed_while_it_is_opened_gives_way_to_its_successor(tmp_path, monkeypatch):
    former, newest = (build_index(make_chunks(count), HashEmbedder(), tmp_path) for count in (5, 6))
    shutil.rmtree(former.folder)
    real, stale = module._current, iter([former.folder])
    monkeypatch.setattr(module, "_current", lambda folder: next(stale, None) or real(folder))
    assert open_index(tmp_path).folder == newest.folder


def test_an_open_index_that_was_removed_says_so_when_filtered(tmp_path):
    index = build_index(make_chunks(5), HashEmbedder(), tmp_path)
    shutil.rmtree(tmp_path)
    assert len(index.search(index.vectors[0], 5)) == 5
    with pytest.raises(ServiceError, match="open it again"):
        index.search(index.vectors[0], 5, where={"source": "NASA"})


# The real model


@pytest.mark.models
def test_end_to_end_with_the_real_embedder(tmp_path):
    from ragkit.models import open_embedder

    texts = {
        "apollo": "Apollo 11 landed on the Moon on 20 July 1969 with Neil Armstrong and Buzz Aldrin.",
        "webb": "The James Webb Space Telescope observes the infrared sky from the second Lagrange point.",
        "debris": "A collision between two satellites left thousands of fragments of debris in low orbit.",
    }
    chunks = [Chunk(f"{name}::0", name, name, None, None, None, text, 0, len(text)) for name, text in texts.items()]
    with open_embedder("ci") as embedder:
        index = build_index(chunks, embedder, tmp_path)
        again = build_index(chunks, embedder, tmp_path)
        questions = [
            "Who walked on the lunar surface?",
            "Which observatory looks at infrared light?",
            "What did the satellite crash leave?",
        ]
        vectors = embedder.encode_queries(questions)
        own = embedder.encode_passages([chunk.text for chunk in index.chunks])
        index.check_embedder(embedder)
    assert again.folder == index.folder
    assert np.abs(index.vectors - own).max() < 1e-6
    assert [hits[0].chunk.article_id for hits in index.search_many(vectors, 3)] == ["apollo", "webb", "debris"]


def main(folder, count, pause):
    module.PART = PART
    embedder = HashEmbedder()

    def wait():
        print("paused", flush=True)
        sys.stdin.readline()

    def pausing(function):
        def first_waits(*arguments, **named):
            wait()
            return function(*arguments, **named)

        return first_waits

    if pause == "embed":
        encode = embedder.encode_passages

        def encode_and_wait(texts, truncate=False):
            if embedder.embedded == 2 * PART:
                wait()
            return encode(texts)

        embedder.encode_passages = encode_and_wait
    elif pause in ("rename", "utime"):
        setattr(os, pause, pausing(getattr(os, pause)))
    elif pause == "rmtree":
        remove = shutil.rmtree
        module.shutil.rmtree = lambda path, **named: (
            wait() if Path(path).name.startswith(".building") else None,
            remove(path, **named),
        )
    elif pause == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        index = build_index(make_chunks(count), embedder, folder)
        print(embedder.embedded, index.manifest["key"])
    except ServiceError as error:
        print(error)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
