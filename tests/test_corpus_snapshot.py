"""What read_snapshot promises: every format in, every bad row counted, one digest for one content."""

import csv
import gzip
import json
import math
import os
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragkit.corpus import Snapshot, read_snapshot, snapshot_digest, write_snapshot
from ragkit.errors import InputError, ServiceError
from ragkit.records import Article

FIXTURES = Path(__file__).parent / "fixtures" / "corpus"
ROWS = [
    {
        "id": "b",
        "title": "Second",
        "body": "Emoji 🚀, e\u0301, שלום.",
        "url": "https://x.org/b",
        "published_at": "2025-05-01",
        "source": "ESA",
    },
    {"id": "a", "title": "First", "body": 'A "quoted", text\nof two lines', "url": None, "published_at": None, "source": None},
]


def jsonl(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def csv_file(path: Path, rows: list[dict]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def parquet(path: Path, rows: list[dict], schema: pa.Schema | None = None) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


# Formats -------------------------------------------------------------------------------------------------------------


def test_spaceflight_news_responses_of_all_versions():
    v2, v3, v4 = (read_snapshot(FIXTURES / f"snapi_v{n}.json") for n in (2, 3, 4))
    assert v2.articles[0] == Article(
        article_id="5fdc0001",
        title="Cables swapped on a Vega upper stage",
        text="Cables swapped on a Vega upper stage\n\nTwo swapped cables turned a nozzle the wrong way.",
        url="https://example.org/vega",
        published_at="2020-12-18T11:44:43Z",
        source="Example News",
    )
    assert v2.articles[1].text == "A lander wakes"
    assert v2.articles[1].published_at == "2020-12-17T09:05:23Z"
    assert [a.article_id for a in v3.articles] == ["13851"]
    assert [a.article_id for a in v4.articles] == ["21567", "21568"]
    assert not v2.rejected + v3.rejected + v4.rejected


def test_one_article_a_list_of_pages_and_pages_as_lines(tmp_path):
    page = json.loads((FIXTURES / "snapi_v4.json").read_text())
    (tmp_path / "one.json").write_text(json.dumps(page["results"][0]))
    (tmp_path / "pages.json").write_text(json.dumps([page, page]))
    assert len(read_snapshot(tmp_path / "one.json").articles) == 1
    pages = read_snapshot(tmp_path / "pages.json")
    assert [row for row, _ in pages.rejected] == [2, 3]
    assert read_snapshot(jsonl(tmp_path / "pages.jsonl", [page, page])) == pages


def test_repeated_rows_are_taken_once_and_counted():
    snapshot = read_snapshot(FIXTURES / "repeated.csv")
    assert [a.article_id for a in snapshot.articles] == ["32675", "32757"]
    assert snapshot.articles[0].published_at == "2025-08-27T08:00:00"
    assert snapshot.articles[1].text == "Soil moisture\n\nTwo lines\nin one cell."
    assert snapshot.rejected == (
        (2, "repeats an earlier row: id '32675', row 0"),
        (3, "has the id of an earlier row and other content: id '32757', row 1"),
    )


def test_beir_file_folder_and_gzip_agree(tmp_path):
    plain = FIXTURES / "beir" / "corpus.jsonl"
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "README.md").write_text("not an article")
    snapshot = read_snapshot(plain)
    assert snapshot == read_snapshot(plain.parent) == read_snapshot(tmp_path / "corpus.jsonl.gz") == read_snapshot(tmp_path)
    assert snapshot.articles[1].text == "A text without a title."
    assert snapshot.articles[1].title == ""


def test_a_folder_of_markdown_and_text():
    snapshot = read_snapshot(FIXTURES / "folder")
    found = {a.article_id: a for a in snapshot.articles}
    assert set(found) == {"iss-avoidance", "heading.md", "deep/fenced.md", "deep/notes.txt"}
    assert snapshot.rejected == ()
    iss = found["iss-avoidance"]
    assert iss.text.startswith("A station steps aside\n\nThe station burned for three minutes.\n\n## Why\n\n")
    assert (iss.url, iss.published_at, iss.source) == ("https://example.org/iss", "2025-05-01", "NASA")
    assert found["heading.md"].text == "The first heading\n\nProse under it.\n\n```sh\n# a comment\n```"
    assert found["deep/fenced.md"].title == "fenced"
    assert found["deep/notes.txt"].text == "notes\n\nPlain text,\ntwo lines."


def test_front_matter_is_read_as_it_is_written(tmp_path):
    (tmp_path / "a.md").write_text("---\nid: 0012\ntitle: no\npublished_at: 2025-05-01\nurl: null\n---\nBody")
    (tmp_path / "b.md").write_text("---\nid: b\npublished_at: 2023-02-30\n---\nBody")
    (tmp_path / "c.md").write_text("---\nid: [unclosed\n---\nBody")
    (tmp_path / "d.md").write_text("---\nA paragraph between two rules\n---\nBody")
    (tmp_path / "e.md").write_text("---\nid: e\npublishedAt: 2025-05-01T10:00:00+02:00\n---\n# Own title\nBody")
    snapshot = read_snapshot(tmp_path)
    assert {a.article_id: (a.title, a.published_at) for a in snapshot.articles} == {
        "0012": ("no", "2025-05-01"),
        "d.md": ("d", None),
        "e": ("Own title", "2025-05-01T08:00:00Z"),
    }
    assert "2023-02-30" in dict(snapshot.rejected)[1]
    assert dict(snapshot.rejected)[2].startswith("front matter is not YAML: c.md")


def test_files_of_a_folder_that_cannot_be_taken_are_counted(tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    folder = tmp_path / "folder"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "x.md").write_text("hidden")
    (folder / "a-link.md").symlink_to(outside)
    (folder / "b-broken.md").symlink_to(folder / "nowhere.md")
    (folder / "c-empty.txt").write_text(" \n")
    (folder / "d-latin.txt").write_bytes("Grün".encode("latin-1"))
    (folder / "e-null.txt").write_bytes(b"a\0b")
    (folder / "f-good.txt").write_text("good")
    snapshot = read_snapshot(folder)
    assert [a.article_id for a in snapshot.articles] == ["f-good.txt"]
    reasons = [reason.split(":")[0] for _, reason in snapshot.rejected]
    assert reasons == ["a link that leads outside the folder", "cannot be read", "empty file", "not UTF-8", "null byte in text"]


# One content, one digest ---------------------------------------------------------------------------------------------


def test_the_digest_is_the_contents_not_the_formats_or_the_orders(tmp_path):
    dated = [{**row, "published_at": row["published_at"] and date.fromisoformat(row["published_at"])} for row in ROWS]
    files = [
        parquet(tmp_path / "a.parquet", ROWS),
        parquet(tmp_path / "dates.parquet", dated),
        csv_file(tmp_path / "a.csv", ROWS),
        jsonl(tmp_path / "a.jsonl", ROWS[::-1]),
    ]
    (tmp_path / "a.json").write_text(json.dumps({"results": ROWS}))
    digests = {read_snapshot(file).digest for file in [*files, tmp_path / "a.json"]}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


@pytest.mark.parametrize("field", ["article_id", "title", "text", "url", "published_at", "source"])
def test_every_field_counts_in_the_digest(field):
    article = Article("a", "t", "t\n\nx", "u", "2025-05-01", "s")
    changed = Article(**{**{name: getattr(article, name) for name in Article.__slots__}, field: "changed"})
    assert snapshot_digest([article]) != snapshot_digest([changed])


def test_fields_do_not_run_into_one_another_in_the_digest():
    assert snapshot_digest([Article("a", "bc", "d")]) != snapshot_digest([Article("ab", "c", "d")])
    assert snapshot_digest([Article("a", "b", "c", None)]) != snapshot_digest([Article("a", "b", "c", "None")])


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({"id": words, "title": words, "text": words}), min_size=1, max_size=6))
def test_any_unicode_survives_and_reads_the_same_from_parquet_and_jsonl(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    try:
        snapshot = read_snapshot(jsonl(folder / "x.jsonl", rows))
    except InputError:
        return
    assert read_snapshot(parquet(folder / "x.parquet", rows)) == snapshot
    assert len(snapshot.articles) + len(snapshot.rejected) == len(rows)
    assert list(snapshot.articles) == sorted(snapshot.articles, key=lambda article: article.article_id)
    for article in snapshot.articles:
        assert article.text == article.text.strip() != ""
        assert article.text.startswith(article.title)
    written = write_snapshot(snapshot, folder / "y.parquet")
    assert read_snapshot(written).articles == snapshot.articles


# Rows ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"title": "t"}, "no id"),
        ({"id": "  ", "title": "t"}, "no id"),
        ({"id": math.nan, "title": "t"}, "no id"),
        ({"id": True, "title": "t"}, "id is not text (bool): True"),
        ({"id": 12.5, "title": "t"}, "id is not text (float): 12.5"),
        ({"id": math.inf, "title": "t"}, "id is not text (float): inf"),
        ({"id": ["x"], "title": "t"}, "id is not text (list): ['x']"),
        ({"id": "x"}, "neither title nor text"),
        ({"id": "x", "title": " ", "text": "\n"}, "neither title nor text"),
        ({"id": "x", "title": {"a": 1}}, "title is not text (dict): {'a': 1}"),
        ({"id": "x", "title": "t", "published_at": "2023-02-30"}, "published_at is not an ISO 8601 date: '2023-02-30'"),
        ({"id": "x", "title": "t", "published_at": "yesterday"}, "published_at is not an ISO 8601 date: 'yesterday'"),
        ({"id": "x", "title": "t", "published_at": 1719878400}, "published_at is not an ISO 8601 date: '1719878400'"),
        ({"id": "x", "title": "t", "text": "a\0b"}, "null byte in text: 'a\\x00b'"),
        ({"id": "x", "title": "t\ud800"}, "lone surrogate in title: character 1 is no Unicode character"),
        (["x"], "not a JSON object: ['x']"),
        (None, "not a JSON object: None"),
    ],
)
def test_a_bad_row_is_rejected_with_its_reason(tmp_path, row, reason):
    snapshot = read_snapshot(jsonl(tmp_path / "x.jsonl", [{"id": "good", "title": "t"}, row]))
    assert snapshot.rejected == ((1, reason),)
    assert [a.article_id for a in snapshot.articles] == ["good"]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("2025-05-01", "2025-05-01"),
        ("2025-05-01 08:00:00", "2025-05-01T08:00:00"),
        ("2025-05-01T08:00:00Z", "2025-05-01T08:00:00Z"),
        ("2025-05-01T08:00:00+02:00", "2025-05-01T06:00:00Z"),
        ("2024-02-29", "2024-02-29"),
        ("", None),
        (None, None),
        (math.nan, None),
    ],
)
def test_dates_become_iso_8601(tmp_path, given, read):
    row = {"id": "x", "title": "t", "published_at": given}
    assert read_snapshot(jsonl(tmp_path / "x.jsonl", [row])).articles[0].published_at == read


def test_parquet_types(tmp_path):
    moment = datetime(2025, 5, 1, 8, tzinfo=UTC)
    table = pa.table(
        {
            "id": pa.array([1.0, None, 3.0]),
            "title": pa.array(["a", "b", "c"]).dictionary_encode(),
            "summary": pa.array([b"bytes", b"x", b"\xff"]),
            "published_at": pa.array([moment] * 3, pa.timestamp("ns", tz="Europe/Berlin")),
        },
    )
    pq.write_table(table, tmp_path / "x.parquet")
    snapshot = read_snapshot(tmp_path / "x.parquet")
    assert snapshot.articles == (Article("1", "a", "a\n\nbytes", published_at="2025-05-01T08:00:00Z"),)
    assert [reason for _, reason in snapshot.rejected] == ["no id", "text is not UTF-8: b'\\xff'"]


def test_csv_cells(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text(
        "\ufeffid,title,text,published_at\n12.0,a,None,nan\n13.0,b,x,NaT\n,c,x,\n14.0,too few\n\n15.0,\0,x,\n", encoding="utf-8"
    )
    snapshot = read_snapshot(file)
    assert [(a.article_id, a.text, a.published_at) for a in snapshot.articles] == [
        ("12", "a\n\nNone", None),
        ("13", "b\n\nx", None),
    ]
    assert [row for row, _ in snapshot.rejected] == [2, 3, 4]
    file.write_text("id,title\n1.0,a\n1.0b,b\n")
    assert [a.article_id for a in read_snapshot(file).articles] == ["1.0", "1.0b"]


def test_the_fullest_text_is_taken_and_line_ends_are_one(tmp_path):
    row = {"id": "x", "title": " A\r\nB ", "summary": "short", "body": "", "text": "one\r\ntwo\rthree\n", "newsSite": "N"}
    article = read_snapshot(jsonl(tmp_path / "x.jsonl", [row])).articles[0]
    assert (article.title, article.text, article.source) == ("A B", "A B\n\none\ntwo\nthree", "N")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_ten_megabytes_in_one_field(tmp_path, suffix):
    row = {"id": "x", "title": "t", "text": "é🚀 " * 1_500_000}
    write = {".csv": csv_file, ".jsonl": jsonl, ".parquet": parquet}[suffix]
    limit = csv.field_size_limit()
    article = read_snapshot(write(tmp_path / f"x{suffix}", [row])).articles[0]
    assert article.text == "t\n\n" + row["text"].strip()
    assert csv.field_size_limit() == limit


# Files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.parquet", b"", "is empty"),
        ("text.parquet", b"not parquet at all", "not a whole Parquet file"),
        ("x.doc", b"x", "none of the kinds"),
        ("x.md", b"# x", "none of the kinds"),
        ("x.csv", b"id,title\n", "holds no rows"),
        ("x.csv", b'id,title\n1,"unclosed', "not a whole CSV file"),
        ("x.csv", "id,title\n1,Grün\n".encode("latin-1"), "is not UTF-8"),
        ("x.csv", b"name,size\na,1\n", "every row was rejected (1), 1 for this: no id"),
        ("x.jsonl", b'{"id": "1", "title": "t"}\n{"id": "2", "ti', "line 2 is not JSON"),
        ("x.jsonl", b"\n\n", "holds no rows"),
        ("x.json", b'[{"id": "1"', "is not whole JSON"),
        ("x.json", b"[]", "holds no rows"),
        ("x.json", b'{"count": 0, "results": []}', "holds no rows"),
        ("x.json", b'{"detail": "Not found."}', "fields found: detail"),
        ("x.json", b"[" * 100_000, "is not whole JSON"),
        ("x.json", b"\xff\xfe{", "is not UTF-8"),
        ("x.jsonl.gz", b"not gzip", "not a whole gzip file"),
        ("x.jsonl.gz", gzip.compress(b'{"id": "1", "title": "t"}\n' * 100)[:-12], "not a whole gzip file"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_snapshot(tmp_path / name)
    message = str(caught.value)
    assert name in message
    assert words in message
    assert "\n" not in message


def test_missing_truncated_and_empty_things(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_snapshot(tmp_path / "nothing.parquet")
    with pytest.raises(InputError, match=r"holds no \.md or \.txt"):
        read_snapshot(tmp_path)
    whole = parquet(tmp_path / "x.parquet", ROWS * 100)
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(InputError, match="not a whole Parquet file"):
        read_snapshot(whole)
    with pytest.raises(InputError, match=r"no column that is known.*found size"):
        read_snapshot(parquet(tmp_path / "y.parquet", [{"size": 1}]))


def test_the_commonest_reason_is_named_when_every_row_is_rejected(tmp_path):
    rows = [
        {"id": "1"},
        {"id": "2", "title": "t", "published_at": "2023-02-30"},
        {"id": "3", "title": "t", "published_at": "2023-13-01"},
    ]
    with pytest.raises(InputError, match=r"every row was rejected \(3\), 2 for this: published_at is not an ISO 8601 date"):
        read_snapshot(jsonl(tmp_path / "x.jsonl", rows))


# Writing -------------------------------------------------------------------------------------------------------------


def test_written_bytes_are_the_same_for_the_same_articles(tmp_path):
    snapshot = read_snapshot(jsonl(tmp_path / "x.jsonl", ROWS))
    one = write_snapshot(snapshot, tmp_path / "new" / "one.parquet")
    two = write_snapshot(Snapshot(snapshot.articles[::-1]), tmp_path / "two.parquet")
    assert one.read_bytes() == two.read_bytes()
    assert pq.read_schema(one).names == ["id", "title", "text", "url", "published_at", "source"]
    assert read_snapshot(one).digest == snapshot.digest
    assert os.listdir(one.parent) == ["one.parquet"]


def test_other_content_is_not_overwritten_unless_asked(tmp_path):
    snapshot = read_snapshot(jsonl(tmp_path / "x.jsonl", ROWS))
    other = Snapshot(snapshot.articles[:1])
    path = write_snapshot(snapshot, tmp_path / "x.parquet")
    before = path.read_bytes()
    write_snapshot(snapshot, path)
    with pytest.raises(InputError, match="overwrite=True"):
        write_snapshot(other, path)
    assert path.read_bytes() == before
    assert read_snapshot(write_snapshot(other, path, overwrite=True)).digest == other.digest
    path.write_text("someone's notes")
    with pytest.raises(InputError, match="overwrite=True"):
        write_snapshot(snapshot, path)
    assert path.read_text() == "someone's notes"


def test_what_cannot_be_written_is_refused(tmp_path):
    good = Article("a", "t", "t\n\nx")
    with pytest.raises(InputError, match=r"\.parquet"):
        write_snapshot(Snapshot((good,)), tmp_path / "x.csv")
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        write_snapshot(Snapshot((good,)), tmp_path / "d.parquet")
    for bad in (Article("a", "t", "another text"), Article("a", "t", "t\n\nx", published_at="May"), Article("", "t", "t")):
        with pytest.raises(InputError, match="cannot be written"):
            write_snapshot(Snapshot((bad,)), tmp_path / "x.parquet")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ServiceError, match="cannot be written"):
        write_snapshot(Snapshot((good,)), tmp_path / "file" / "x.parquet")
