"""Snapshots: the articles of a file or a folder, each row taken whole or rejected with a reason.

Never repairs a row, never drops one in silence, never reaches the network or the clock.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar

from ragkit.corpus.chunking import markdown_headings
from ragkit.errors import InputError, ServiceError
from ragkit.records import Article

# Where each field may stand, in order of preference (the fullest text first). Names are compared without case and underscores,
# so that `id`, `_id`; `published_at`, `publishedAt`; `news_site`, `newsSite` are one each.
_ALIASES = {
    "id": ("id", "articleid"),
    "title": ("title", "headline"),
    "text": ("body", "text", "content", "summary", "summarytext"),
    "url": ("url", "articleurl"),
    "published_at": ("publishedat", "published", "publisheddate", "date"),
    "source": ("source", "newssite"),
}
_KNOWN = {alias for aliases in _ALIASES.values() for alias in aliases}
_COLUMNS = ("id", "title", "text", "url", "published_at", "source")
_READABLE = ".parquet, .csv, .jsonl, .jsonl.gz, .json, or a folder of .md and .txt files or with a corpus.jsonl"
_CSV_MISSING = {"nan", "NaN", "NaT", "None", "null", "<NA>"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """What was read: `articles` sorted by `article_id`, and `rejected`, the (0-based row, reason) of each row not taken."""

    articles: tuple[Article, ...]
    rejected: tuple[tuple[int, str], ...] = ()

    @cached_property
    def digest(self) -> str:
        """64 hex digits that name the content: see `snapshot_digest`."""
        return snapshot_digest(self.articles)


class _Rejection(Exception):
    """Why a row is not taken: what is wrong, then a colon, then the value (the part before the colon is counted)."""


def snapshot_digest(articles: Iterable[Article]) -> str:
    """SHA-256 over the articles' fields, sorted by id: the content, not the file, its format or the order of its rows.

    Each article is one line of JSON, whose quoting keeps two fields from running into one.
    """
    digest = hashlib.sha256()
    for a in sorted(articles, key=lambda article: article.article_id):
        line = json.dumps([a.article_id, a.title, a.text, a.url, a.published_at, a.source], ensure_ascii=False)
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def read_snapshot(path: str | Path) -> Snapshot:
    r"""Read the articles of a file or folder.

    Parameters
    ----------
    path
        `.parquet`; `.csv`, `.jsonl`, `.json` (each also with `.gz`); Spaceflight News API responses of versions 2, 3 and 4 are
        such JSON (a list, one article, a page with `results`, a list of pages), a BEIR `corpus.jsonl` is such JSONL. A folder
        that holds `corpus.jsonl` or `corpus.jsonl.gz` is read as BEIR, any other as its `.md` and `.txt` files: recursively, in
        the order of their paths, without hidden ones; links to directories are not followed.

    Returns
    -------
    Snapshot
        Articles sorted by id. `Article.text` is the title, a blank line and the body; where one of the two is missing, the other
        alone. Line ends become `\n`, white space around title and body goes, a line break inside a title becomes one space;
        nothing else is changed. Dates become ISO 8601 (`2025-05-01`, `2025-05-01T08:00:00`, with a zone: UTC and `Z`).

    Raises
    ------
    InputError
        The path is missing, empty, truncated, undecodable, of another kind, or every row was rejected.

    Notes
    -----
    Markdown files may have YAML front matter (id, title, url, published_at, source). Without it the id is the path relative to
    the folder and the title the first `# ` heading outside code fences (taken out of the body where it leads it), else the
    file's stem. Rejected are rows without an id, with neither title nor text, with an id that an earlier row has, with a date
    that is none (`2023-02-30`), with null bytes or lone surrogates, with a value of a wrong type; files that are empty, that
    are not UTF-8, and links that lead outside the folder.
    """
    path = Path(path)
    rows = read_rows(path)
    if not rows:
        raise InputError(f"{path} holds no rows: give {_READABLE}")
    snapshot = _collect(rows)
    if not snapshot.articles:
        raise InputError(_all_rejected(path, rows, snapshot.rejected))
    return snapshot


def read_rows(path: Path) -> list[Row | _Rejection]:
    """The rows of a file or folder as they stand, before any is judged; raises `InputError` where they cannot be read."""
    if not path.exists():
        raise InputError(f"{path} does not exist: give {_READABLE}")
    try:
        return list(_rows(path))
    except UnicodeDecodeError as error:
        place = f"byte 0x{error.object[error.start]:02x}, {error.reason}"
        raise InputError(f"{path} is not UTF-8 ({place}): save it as UTF-8") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): fetch or compress it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): check its permissions") from error


def write_snapshot(snapshot: Snapshot, path: str | Path, overwrite: bool = False) -> Path:
    """Write a snapshot as Parquet that reads back with the same digest; the same articles give the same bytes.

    Columns, all text: id, title, text (the body), url, published_at, source. The file appears whole or not at all.

    Raises
    ------
    InputError
        The path does not end in `.parquet`, is a folder, or holds other content and `overwrite` is not set; an article's text is
        not its title, a blank line and a body.
    ServiceError
        The disk refuses.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if path.suffix.lower() != ".parquet":
        raise InputError(f"a snapshot is written as .parquet, not {path.name!r}: change the name's ending")
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a file name in it")
    if path.exists() and not overwrite and _digest_or_none(path) != snapshot.digest:
        raise InputError(f"{path} exists with other content: choose another name or pass overwrite=True")
    articles = sorted(snapshot.articles, key=lambda article: article.article_id)
    rows = [_row(article) for article in articles]
    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in _COLUMNS}
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            pq.write_table(pa.table(columns), file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise ServiceError(
            f"{path} cannot be written ({error.strerror or error}): free the disk or choose another place"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink()
    return path


# From rows to articles -----------------------------------------------------------------------------------------------


def _collect(rows: Iterable[Row | _Rejection]) -> Snapshot:
    taken: dict[str, tuple[int, Article]] = {}
    rejected: list[tuple[int, str]] = []
    for number, row in enumerate(rows):
        try:
            article = _article(row)
            if article.article_id in taken:
                first, known = taken[article.article_id]
                how = "repeats an earlier row" if known == article else "has the id of an earlier row and other content"
                raise _Rejection(f"{how}: id {_short(article.article_id)}, row {first}")
            taken[article.article_id] = (number, article)
        except _Rejection as reason:
            rejected.append((number, str(reason)))
    return Snapshot(tuple(article for _, (_, article) in sorted(taken.items())), tuple(rejected))


def _all_rejected(path: Path, rows: list[Row | _Rejection], rejected: tuple[tuple[int, str], ...]) -> str:
    kinds = Counter(reason.split(":", 1)[0] for _, reason in rejected)
    kind, times = kinds.most_common(1)[0]
    example = next(reason for _, reason in rejected if reason.split(":", 1)[0] == kind)
    first = next((row for row in rows if isinstance(row, Mapping)), {})
    found = ", ".join(str(name) for name in list(first)[:12]) or "none"
    needs = "a row needs an id (id, _id, article_id) and a title or a text (body, text, content, summary)"
    return f"{path}: every row was rejected ({len(rejected)}), {times} for this: {example}; {needs}; fields found: {found}"


def _article(row: Row | _Rejection) -> Article:
    if isinstance(row, _Rejection):
        raise row
    fields = _fields(row)
    article_id = _text(fields.get("id"), "id").strip()
    title = re.sub(r"\s*\n\s*", " ", _text(fields.get("title"), "title").strip())
    body = _text(fields.get("text"), "text").strip()
    if not article_id:
        raise _Rejection("no id")
    if not title and not body:
        raise _Rejection("neither title nor text")
    return Article(
        article_id=article_id,
        title=title,
        text="\n\n".join(part for part in (title, body) if part),
        url=_text(fields.get("url"), "url").strip() or None,
        published_at=_iso_date(fields.get("published_at")),
        source=_text(fields.get("source"), "source").strip() or None,
    )


def _row(article: Article) -> dict[str, str | None]:
    """The row that `_article` makes this article from."""
    a = article
    body = a.text.removeprefix(a.title).removeprefix("\n\n") if a.title else a.text
    row = dict(zip(_COLUMNS, (a.article_id, a.title, body, a.url, a.published_at, a.source), strict=True))
    try:
        if _article(row) == article:
            return row
        why = "it would read back as another: its text must be title, blank line, body, and its date ISO 8601"
    except _Rejection as reason:
        why = str(reason)
    raise InputError(f"article {_short(article.article_id)} cannot be written ({why}): make it with read_snapshot")


def _key(name: object) -> str:
    return str(name).strip().casefold().replace("_", "")


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or (isinstance(value, float) and math.isnan(value))


def _fields(row: Row) -> dict[str, Any]:
    """The row under our own names; of several columns for one field the first that is filled."""
    given: dict[str, Any] = {}
    for name, value in row.items():
        if _key(name) in _KNOWN and not _missing(value):
            given.setdefault(_key(name), value)
    found = {field: next((given[alias] for alias in aliases if alias in given), None) for field, aliases in _ALIASES.items()}
    return {field: value for field, value in found.items() if value is not None}


def _text(value: Any, field: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise _Rejection(f"{field} is not UTF-8: {_short(value)}") from None
    if isinstance(value, float) and value.is_integer():  # a whole-number column with a gap in it comes as floats
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise _Rejection(f"{field} is not text ({type(value).__name__}): {_short(value)}")
    if "\0" in value:
        raise _Rejection(f"null byte in {field}: {_short(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Rejection(f"lone surrogate in {field}: character {error.start} is no Unicode character") from None
    return value.replace("\r\n", "\n").replace("\r", "\n")


def _iso_date(value: Any) -> str | None:
    """ISO 8601 from a date, a datetime or a text; a moment with a zone in UTC, one without stays without."""
    if not isinstance(value, date):
        text = _text(value, "published_at").strip()
        if not text:
            return None
        value = _parsed_date(text)
    if not isinstance(value, datetime):
        return value.isoformat()
    if value.tzinfo is None:
        return value.isoformat()
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise _Rejection(f"published_at is not an ISO 8601 date: {value.isoformat()!r}") from None


def _parsed_date(text: str) -> date:
    for parse in (date.fromisoformat, datetime.fromisoformat):
        try:
            return parse(text)
        except ValueError:
            continue
    raise _Rejection(f"published_at is not an ISO 8601 date: {_short(text)}")


def _short(value: Any) -> str:
    shown = repr(value[:60] if isinstance(value, str | bytes) else value)
    return shown if len(shown) <= 70 else shown[:67] + "..."


def _digest_or_none(path: Path) -> str | None:
    try:
        return read_snapshot(path).digest
    except InputError:
        return None


# From files to rows --------------------------------------------------------------------------------------------------


def _rows(path: Path) -> Iterator[Row | _Rejection]:
    if path.is_dir():
        corpus = [path / name for name in ("corpus.jsonl", "corpus.jsonl.gz") if (path / name).is_file()]
        yield from _jsonl_rows(corpus[0]) if corpus else _folder_rows(path)
        return
    if not path.stat().st_size:
        raise InputError(f"{path} is empty: fetch or write it again")
    readers = {".parquet": _parquet_rows, ".csv": _csv_rows, ".jsonl": _jsonl_rows, ".json": _json_rows}
    name = path.name.lower()
    reader = readers.get(Path(name.removesuffix(".gz")).suffix)
    if reader is None or (reader is _parquet_rows and name.endswith(".gz")):
        raise InputError(f"{path} is none of the kinds that are read: give {_READABLE}")
    yield from reader(path)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """A text file, unpacked where it is `.gz`, without a byte order mark, its line ends as they are."""
    if path.suffix.lower() == ".gz":
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as packed:
            yield packed
    else:
        with path.open(encoding="utf-8-sig", newline="") as plain:
            yield plain


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        names = [name for name in file.schema_arrow.names if _key(name) in _KNOWN]
        if not names and file.metadata.num_rows:
            found = ", ".join(file.schema_arrow.names) or "none"
            raise InputError(f"{path} has no column that is known: it needs id, title, text; found {found}")
        for batch in file.iter_batches(batch_size=1024, columns=names):
            columns = [_microseconds(column) for column in batch.columns]
            yield from pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path} is not a whole Parquet file ({first}): write or fetch it again") from error


def _microseconds(column: Any) -> Any:
    """Timestamps as Python can hold them, those with a zone in UTC."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", tz="UTC" if column.type.tz else None), safe=False)


@contextmanager
def _unlimited_csv_fields() -> Iterator[None]:
    """The csv module refuses fields over 128 KiB unless told otherwise; an article may be longer."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _csv_rows(path: Path) -> list[Row | _Rejection]:
    with _opened(path) as file, _unlimited_csv_fields():
        reader = csv.reader(file, strict=True)
        try:
            table = [cells for cells in reader if cells]
        except csv.Error as error:
            raise InputError(
                f"{path}, line {reader.line_num}: not a whole CSV file ({error}): write or fetch it again"
            ) from error
    header, *lines = table or [[]]
    ids = [i for i, name in enumerate(header) if _key(name) in _ALIASES["id"]]
    floats = {i for i in ids if all(re.fullmatch(r"(\d+\.0)?", cells[i]) for cells in lines if len(cells) > i)}
    return [_csv_row(header, cells, floats) for cells in lines]


def _csv_row(header: list[str], cells: list[str], floats: set[int]) -> Row | _Rejection:
    """One line by its header's names; `floats` are id columns that a data frame has turned from 12 to 12.0."""
    if len(cells) != len(header):
        return _Rejection(f"another number of cells than the header: {len(cells)} instead of {len(header)}")
    row: dict[str, Any] = {}
    for i, (name, cell) in enumerate(zip(header, cells, strict=True)):
        blank = cell.strip() in _CSV_MISSING and _key(name) not in _ALIASES["title"] + _ALIASES["text"]
        value = None if blank else cell.removesuffix(".0") if i in floats else cell
        if _missing(row.get(name)):
            row[name] = value
    return row


def _jsonl_rows(path: Path) -> Iterator[Row | _Rejection]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    content = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise InputError(f"{path}, line {number} is not JSON ({error}): fetch or write the file again") from error
                yield from _unpacked(content)


def _json_rows(path: Path) -> Iterator[Row | _Rejection]:
    with _opened(path) as file:
        try:
            content = json.load(file)
        except UnicodeDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not whole JSON ({error}): fetch or write it again") from error
    for item in content if isinstance(content, list) else [content]:
        yield from _unpacked(item)


def _unpacked(item: Any) -> Iterator[Row | _Rejection]:
    """One article, or the articles of one page of the Spaceflight News API, version 4."""
    if isinstance(item, dict) and isinstance(item.get("results"), list):
        for result in item["results"]:
            yield from _unpacked(result)
    elif isinstance(item, dict):
        yield item
    else:
        yield _Rejection(f"not a JSON object: {_short(item)}")


def _folder_rows(root: Path) -> list[Row | _Rejection]:
    files = sorted(_visible_files(root), key=lambda file: file.relative_to(root).as_posix())
    if not files:
        raise InputError(f"folder {root} holds no .md or .txt file and no corpus.jsonl: give {_READABLE}")
    return [_file_row(root, file) for file in files]


def _visible_files(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in {".md", ".txt"}:
                yield Path(folder) / name


def _file_row(root: Path, file: Path) -> Row | _Rejection:
    name = file.relative_to(root).as_posix()
    try:
        if not file.resolve(strict=True).is_relative_to(root.resolve()):
            return _Rejection(f"a link that leads outside the folder: {name}")
        content = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        return _Rejection(f"not UTF-8: {name}, byte {error.start}")
    except (OSError, RuntimeError) as error:
        return _Rejection(f"cannot be read: {name} ({getattr(error, 'strerror', None) or error})")
    if file.suffix.lower() == ".txt":
        return {"id": name, "title": file.stem, "body": content} if content.strip() else _Rejection(f"empty file: {name}")
    return _markdown_row(name, file.stem, content)


def _markdown_row(name: str, stem: str, content: str) -> Row | _Rejection:
    try:
        front, body = _front_matter(content)
    except ValueError as error:
        return _Rejection(f"front matter is not YAML: {name} ({error})")
    fields = {"id": name, **{key: value for key, value in _fields(front).items() if key != "text"}}
    if "title" not in fields:
        first = next((heading for heading in markdown_headings(body) if heading.level == 1 and heading.title), None)
        if first is None and not body.strip():
            return _Rejection(f"empty file: {name}")
        fields["title"] = first.title if first else stem
        if first and not body[: first.start].strip():
            body = body[first.end :]
    return {**fields, "body": body}


def _front_matter(content: str) -> tuple[dict[str, Any], str]:
    """The YAML mapping between two lines of `---` at the top, and the rest; scalars stay the texts that they are written as."""
    import yaml

    match = re.match(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", content, re.DOTALL)
    if not match:
        return {}, content
    try:
        front = yaml.load(match[1] or "", Loader=_text_loader())
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error).splitlines()[0]) from error
    if front is None:
        return {}, content[match.end() :]
    if not isinstance(front, dict):  # two thematic breaks with a paragraph between them
        return {}, content
    return front, content[match.end() :]


def _text_loader() -> Any:
    """A safe YAML loader that knows texts and null only: `id: 0012` stays 0012, and a date is validated here, not there."""
    import yaml

    class TextLoader(yaml.SafeLoader):
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag == "tag:yaml.org,2002:null"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return TextLoader
