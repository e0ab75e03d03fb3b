"""Collections of others, read from a folder: BEIR, Cranfield, NPL (Vaswani) and TREC-style, and SQuAD 1.1 as articles and tasks.

Nothing is ranked or fetched here. What cannot be used as it stands (an empty document, a judgement of a query that is not there)
is counted in `Collection.notes`, never dropped in silence.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ragkit.corpus import read_snapshot
from ragkit.errors import InputError
from ragkit.evaluation.trec import read_qrels
from ragkit.records import Article, Gold, Task

KINDS = ("beir", "cranfield", "npl", "trec")
_CRANFIELD = (("cran.all.1400", "cran.all"), ("cran.qry",), ("cranqrel",))
_NPL = (("doc-text",), ("query-text",), ("rlv-ass",))

Grades = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Collection:
    """A test collection: documents, the judged queries {id: text}, their judgements {query id: {document id: gain}}.

    `notes` say, one line each, what was counted or left out on the way. `kind` is one of `KINDS`.
    """

    articles: tuple[Article, ...]
    queries: dict[str, str]
    qrels: Grades
    kind: str = "beir"
    notes: tuple[str, ...] = ()


def read_collection(folder: str | Path, kind: str | None = None, split: str = "test", graded: bool = False) -> Collection:
    """Read a folder, its kind told by its files or given.

    Parameters
    ----------
    kind : one of `KINDS`; NPL's files are also read under the name of another kind than BEIR.
    split : which of several qrels, BEIR and TREC-style.
    graded : Cranfield only, see `read_cranfield`.

    Raises
    ------
    InputError
        No folder, an unknown kind, files of another kind or of none, or what the reader of that kind refuses.
    """
    folder = Path(folder)
    if kind not in (None, *KINDS):
        raise InputError(f"collection kind {kind!r} is unknown: choose from {', '.join(KINDS)}")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give one that holds a {_NAMES.get(kind or '', 'collection')}")
    found = collection_kind(folder)
    if kind in (None, "cranfield", "trec") and found == "npl":
        kind = "npl"
    if kind is None and found is None:
        raise InputError(f"{folder} holds no collection that is known: {'; '.join(_FILES.values())}")
    chosen = kind or found
    if graded and chosen != "cranfield":
        raise InputError(f"graded is a reading of Cranfield's inverse grades, and {folder} is {chosen}: leave it out")
    if chosen != found and found not in (None, "trec") and chosen != "trec":
        raise InputError(f"{folder} holds a {_NAMES[found]}, not a {_NAMES[chosen or '']}: say {found}")
    if chosen == "beir":
        return read_beir(folder, split)
    if chosen == "cranfield":
        return read_cranfield(folder, graded)
    return read_npl(folder) if chosen == "npl" else read_trec(folder, split)


def collection_kind(folder: str | Path) -> str | None:
    """Which of `KINDS` a folder's files are like, None for none of them; one telling file is enough."""
    folder = Path(folder)
    for kind, names in (("cranfield", _CRANFIELD), ("npl", _NPL)):
        if any(_there(folder, name) for choice in names for name in choice):
            return kind
    if _there(folder, "corpus.jsonl") or _there(folder, "queries.jsonl"):
        return "beir"
    qrels, topics, documents = _trec_files(folder)
    return "trec" if qrels or (topics and documents) else None


def read_beir(folder: str | Path, split: str = "test") -> Collection:
    """Read a BEIR folder: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv, each also with .gz.

    Raises
    ------
    InputError
        A file is missing or a line does not parse; nothing that can be asked is judged relevant.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give a BEIR folder with corpus.jsonl, queries.jsonl and qrels/{split}.tsv")
    corpus, asked = (_find(folder, (name,), "beir") for name in ("corpus.jsonl", "queries.jsonl"))
    judged = _find(folder, (f"qrels/{split}.tsv",), "beir")
    snapshot = read_snapshot(corpus)
    notes = []
    if snapshot.rejected:
        (row, why), count = snapshot.rejected[0], len(snapshot.rejected)
        notes.append(f"{_many(count, 'row')} of {corpus.name} left out, the first (row {row}): {why}")
    return _collection("beir", snapshot.articles, _beir_queries(asked), _judgements(judged), notes)


def _beir_queries(path: Path) -> dict[str, str]:
    queries: dict[str, str] = {}
    # Not splitlines: a query may hold a line separator that JSON leaves as it is.
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            key, text = str(row["_id"]), row["text"]
            if not isinstance(text, str):
                raise TypeError("text is no string")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number} is not a query with _id and text: {line[:60]!r}") from error
        _add(queries, key, text, f"{path}:{number}", "query")
    return queries


def read_cranfield(folder: str | Path, graded: bool = False) -> Collection:
    """Read the Cranfield collection: cran.all.1400, cran.qry, cranqrel.

    Its judgements number the queries by their place in the file, from 1, not by their .I field. Its grades are inverse: 1 is a
    complete answer, 4 of little interest, and −1, once a query, behaves like the best document. A document is its title (.T)
    and abstract (.W); one that has neither is left out, and counted.

    Parameters
    ----------
    graded : False takes every judged pair as relevant, as reference figures do. True takes 5 − grade as gain, and 4 for −1.

    Raises
    ------
    InputError
        A file is missing, or a line or grade is not Cranfield's.
    """
    folder = Path(folder)
    corpus, asked, judged = (_find(folder, names, "cranfield") for names in _CRANFIELD)
    notes: list[str] = []
    records = list(_smart(corpus, notes))
    articles = _articles(((key, part.get("T", ""), part.get("W", "")) for key, part in records), corpus, notes)
    queries = {str(place): part.get("W", "") for place, (_, part) in enumerate(_smart(asked, notes), start=1)}
    grades: dict[str, dict[str, int]] = {}
    for place, parts in _columns(judged):
        if len(parts) not in (3, 4) or not re.fullmatch(r"-1|[1-5]", parts[-1]):
            raise InputError(f"{place} is not query document grade, with a grade of -1 or 1 to 5: {' '.join(parts)[:60]!r}")
        known = grades.setdefault(parts[0], {})
        if known.setdefault(parts[-2], int(parts[-1])) != int(parts[-1]):
            raise InputError(f"{place} judges document {parts[-2]!r} of query {parts[0]!r} again, with another grade: keep one")
    counts = Counter(grade for known in grades.values() for grade in known.values())
    gains = {query: {key: _cranfield_gain(grade, graded) for key, grade in known.items()} for query, known in grades.items()}
    notes.append(
        f"warning, graded reading: Cranfield's grades are inverse, so the gain is 5 - grade (1, a complete answer, weighs 4); "
        f"{_many(counts[-1], 'pair')} of grade -1 weigh 4 too"
        if graded
        else f"binary reading: all {counts.total() - counts[5]} judged pairs count as relevant; the grades, which are inverse "
        f"(1 best, 4 least, -1 in {_many(counts[-1], 'pair')}), are not used"
    )
    return _collection("cranfield", articles, queries, gains, notes)


def _cranfield_gain(grade: int, graded: bool) -> float:
    gain = 4 if grade == -1 else 5 - grade
    return float(gain if graded else gain > 0)


def read_npl(folder: str | Path) -> Collection:
    """Read the NPL collection, also called Vaswani: doc-text, query-text, rlv-ass; records end in a line with one slash.

    Raises
    ------
    InputError
        A file is missing, a record has no number, or a number is there twice.
    """
    folder = Path(folder)
    corpus, asked, judged = (_find(folder, names, "npl") for names in _NPL)
    notes: list[str] = []
    articles = _articles(((key, "", "\n".join(lines)) for key, lines in _slashed(corpus, notes)), corpus, notes)
    queries: dict[str, str] = {}
    for key, lines in _slashed(asked, notes):
        _add(queries, key, "\n".join(lines), str(asked), "query")
    grades: Grades = {}
    for key, lines in _slashed(judged, notes):
        if key in grades:
            raise InputError(f"{judged} holds query {key!r} twice: ids must be unique")
        grades[key] = dict.fromkeys(" ".join(lines).split(), 1.0)
    return _collection("npl", articles, queries, grades, notes)


def read_trec(folder: str | Path, split: str = "test") -> Collection:
    """Read a TREC-style folder: documents as SGML, JSON lines or TSV, topics likewise, and qrels, each also with .gz.

    Files are told by their names, in the folder and below it: "qrel" for judgements (where there are several, the one that also
    has `split` in its name), "topic" or "quer" for topics, "doc", "corpus" or "collection" for documents, else whatever ends in
    .trec, .sgml, .jsonl or .tsv. A topic is asked with its title, or its description where it has no title.

    Raises
    ------
    InputError
        A file is missing or there are several to choose from, or a record does not parse.
    """
    folder = Path(folder)
    judged, asked, documents = _trec_files(folder)
    if not documents:
        raise InputError(f"{folder} holds no documents: {_FILES['trec']}")
    notes: list[str] = []
    qrels, topics = _one(judged, "qrels", split, folder), _one(asked, "topics", split, folder)
    rows = [row for path in documents for row in _records(path, "DOC", notes)]
    articles = _articles(rows, documents[0] if len(documents) == 1 else folder, notes)
    grades = _judgements(qrels)
    queries: dict[str, str] = {}
    for key, title, text in _records(topics, "top(?:ic)?", notes):
        # Topics are often numbered 051 and judged as 51.
        known = key if key in grades or key.lstrip("0") not in grades else key.lstrip("0")
        _add(queries, known, title or text, str(topics), "topic")
    return _collection("trec", articles, queries, grades, notes)


# What a reader has found, put together ----------------------------------------------------------------------------------------


def _collection(
    kind: str, articles: tuple[Article, ...], queries: Mapping[str, str], grades: Grades, notes: list[str]
) -> Collection:
    """Only queries that are there and have a relevant document are measured; a relevant document that is not there is a miss."""
    there = {article.article_id for article in articles}
    unknown = [query for query in grades if query not in queries]
    missing = [(query, key) for query, gains in grades.items() if query in queries for key in gains if key not in there]
    unjudged = [query for query in queries if query not in grades]
    barren = [query for query, gains in grades.items() if query in queries and not any(gain > 0 for gain in gains.values())]
    kept = {query: grades[query] for query in sorted(grades) if query in queries and query not in set(barren)}
    empty = [query for query in kept if not queries[query].strip()]
    if unknown:
        notes.append(f"{_many(len(unknown), 'judged query', 'judged queries')} not there, left out: {_some(unknown)}")
    if missing:
        shown = _some(f"{key} for query {query}" for query, key in missing)
        notes.append(f"{_many(len(missing), 'judgement')} of documents that are not there, misses where relevant: {shown}")
    if barren:
        notes.append(f"{_many(len(barren), 'query', 'queries')} with nothing judged relevant, left out: {_some(barren)}")
    if unjudged:
        notes.append(f"{_many(len(unjudged), 'query', 'queries')} without judgements, left out")
    if empty:
        notes.append(f"{_many(len(empty), 'empty query', 'empty queries')}, which find nothing and count zero: {_some(empty)}")
    if not kept:
        raise InputError("no query that is there has a document judged relevant: nothing can be measured; look at the ids")
    used = {gain for gains in kept.values() for gain in gains.values() if gain > 0}
    if len(used) > 1:
        binary = sum(len({gain for gain in gains.values() if gain > 0}) == 1 for gains in kept.values())
        shown = ", ".join(f"{gain:g}" for gain in sorted(used))
        notes.append(
            f"gains {shown}, {_many(binary, 'query', 'queries')} with only one of them: nDCG weighs them, every other measure "
            "takes any gain above 0 as relevant"
        )
    return Collection(articles, {query: queries[query] for query in kept}, kept, kind, tuple(notes))


def _articles(rows: Iterable[tuple[str, str, str]], path: Path, notes: list[str]) -> tuple[Article, ...]:
    articles: dict[str, Article] = {}
    empty = []
    for key, title, body in rows:
        title, body = " ".join(title.split()), body.strip()
        if key in articles or key in empty:
            raise InputError(f"{path} holds document {key!r} twice: ids must be unique")
        if title or body:
            articles[key] = Article(key, title, "\n\n".join(part for part in (title, body) if part))
        else:
            empty.append(key)
    if not articles:
        raise InputError(f"{path} holds no document with a text")
    if empty:
        notes.append(f"{_many(len(empty), 'empty document')} left out: {_some(empty)}")
    return tuple(articles[key] for key in sorted(articles))


def _add(queries: dict[str, str], key: str, text: str, place: str, what: str) -> None:
    if key in queries:
        raise InputError(f"{place} repeats {what} id {key!r}: ids must be unique")
    queries[key] = text.strip()


def _many(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _some(ids: Iterable[str], shown: int = 5) -> str:
    listed = list(ids)
    return ", ".join(listed[:shown]) + (f" and {len(listed) - shown} more" if len(listed) > shown else "")


# Files ------------------------------------------------------------------------------------------------------------------------

_NAMES = {
    "beir": "BEIR folder",
    "cranfield": "Cranfield collection",
    "npl": "NPL collection",
    "trec": "TREC-style collection",
}
_FILES = {
    "beir": "a BEIR folder has corpus.jsonl, queries.jsonl and qrels/test.tsv",
    "cranfield": "Cranfield has cran.all.1400, cran.qry and cranqrel",
    "npl": "NPL has doc-text, query-text and rlv-ass",
    "trec": "a TREC-style folder has files named like qrels.txt, topics.txt and docs.trec",
}


def _there(folder: Path, name: str) -> Path | None:
    return next((folder / f"{name}{end}" for end in ("", ".gz") if (folder / f"{name}{end}").is_file()), None)


def _find(folder: Path, names: tuple[str, ...], kind: str) -> Path:
    found = next((path for name in names if (path := _there(folder, name))), None)
    if found is None:
        raise InputError(f"{folder} holds no {names[0]} (or {names[0]}.gz): {_FILES[kind]}")
    return found


def _text(path: Path, notes: list[str] | None = None) -> str:
    """A file's text, unpacked where it ends in .gz; with `notes`, one that is not UTF-8 is read as Latin-1, and noted."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if notes is None:
            raise InputError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
        notes.append(f"{path.name} is not UTF-8 and was read as Latin-1")
        text = content.decode("latin-1")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): fetch or compress it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): check its permissions") from error
    return text.replace("\r\n", "\n")


def _judgements(path: Path) -> Grades:
    if path.suffix != ".gz":
        return read_qrels(path).grades
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / path.stem
        plain.write_text(_text(path), encoding="utf-8", newline="")
        try:
            return read_qrels(plain).grades
        except InputError as error:
            raise InputError(str(error).replace(str(plain), str(path))) from error


def _columns(path: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", line.split()


def _smart(path: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Records of SMART's format, (.I number, {field letter: text}); a field that a record repeats is joined, and noted."""
    fields: dict[str, list[str]] | None = None
    key, letter, repeated = "", "", []
    for number, line in enumerate([*_text(path, notes).split("\n"), ".I"], start=1):
        mark = re.fullmatch(r"\.([A-Z])\s*|\.(I)\s+(\S+)\s*", line)
        if mark is None:
            if fields is None and line.strip():
                raise InputError(f"{path}:{number} comes before the first .I: {line[:60]!r}")
            if letter and fields is not None:
                fields[letter].append(line)
        elif "I" in mark.group(1, 2):
            if fields is not None:
                yield key, {name: "\n".join(lines).strip() for name, lines in fields.items()}
            fields, key, letter = {}, mark[3] or "", ""
        elif fields is not None:
            letter = mark[1]
            if letter in fields:
                repeated.append(key)
            fields.setdefault(letter, [])
    if repeated:
        notes.append(f"{path.name} repeats a field in records {_some(dict.fromkeys(repeated))}: joined")


def _slashed(path: Path, notes: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Records that end in a line with one slash: (number, the lines after it)."""
    record: list[str] = []
    for line in [*_text(path, notes).split("\n"), "/"]:
        if line.strip() != "/":
            if record or line.strip():
                record.append(line)
            continue
        if record:
            if len(record[0].split()) != 1:
                raise InputError(f"{path} has a record that does not begin with a number alone: {record[0][:60]!r}")
            yield record[0].strip(), record[1:]
        record = []


def _trec_files(folder: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Files that look like qrels, topics and documents, each in order of their paths."""
    qrels, topics, named, other = [], [], [], []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        words = inside.as_posix().lower()
        if any(part.startswith(".") for part in inside.parts) or re.match(
            r"(readme|licen|run\b|.*\.(md|py|run)$)", path.name.lower()
        ):
            continue
        if "qrel" in words:
            qrels.append(path)
        elif "topic" in words or "quer" in words:
            topics.append(path)
        elif re.search(r"doc|corpus|collection", words):
            named.append(path)
        elif re.search(r"\.(trec|sgml?|jsonl|tsv)(\.gz)?$", words):
            other.append(path)
    return qrels, topics, named or other


def _one(paths: list[Path], what: str, split: str, folder: Path) -> Path:
    if len(paths) > 1:
        paths = [path for path in paths if split in path.name.lower()] or paths
    if not paths:
        raise InputError(f"{folder} holds no {what}: {_FILES['trec']}")
    if len(paths) > 1:
        raise InputError(f"{folder} holds several {what}: {_some(path.name for path in paths)}: leave one, or name its split")
    return paths[0]


_IDS = ("_id", "id", "docno", "docid", "doc_id", "pid", "qid", "query_id", "query-id", "num", "number")
_TEXTS = ("text", "contents", "body", "content", "abstract", "query", "description")


def _records(path: Path, element: str, notes: list[str]) -> Iterator[tuple[str, str, str]]:
    """(id, title, text) of each record, the format told by the first character: SGML, JSON lines or TSV."""
    text = _text(path, notes)
    start = text.lstrip()[:1]
    if not start:
        raise InputError(f"{path} is empty: fetch or write it again")
    if start == "<":
        return _sgml_records(text, path, element)
    return _json_records(text, path) if start == "{" else _tsv_records(text, path)


def _json_records(text: str, path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            key = next(row[name] for name in _IDS if name in row)
            body = next((row[name] for name in _TEXTS if name in row), "")
            title = row.get("title") or ""
            if not isinstance(title, str) or not isinstance(body, str) or not isinstance(key, str | int):
                raise TypeError("not text")
        except (ValueError, TypeError, AttributeError, StopIteration) as error:
            raise InputError(f"{path}:{number} is no JSON object with an id and a text: {line[:60]!r}") from error
        yield str(key), title, body


def _tsv_records(text: str, path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        cells = line.split("\t")
        if not line.strip() or (number == 1 and cells[0].strip().lower() in _IDS):
            continue
        if len(cells) < 2 or not cells[0].strip():
            raise InputError(f"{path}:{number} is not id<TAB>text: {line[:60]!r}")
        yield cells[0].strip(), cells[-2] if len(cells) > 2 else "", cells[-1]


def _sgml_records(text: str, path: Path, element: str) -> Iterator[tuple[str, str, str]]:
    blocks = re.findall(rf"<{element}(?:\s([^>]*))?>(.*?)</{element}>", text, re.DOTALL | re.IGNORECASE)
    opened = len(re.findall(rf"<{element}(?:\s[^>]*)?>", text, re.IGNORECASE))
    if not blocks or opened != len(blocks):
        raise InputError(f"{path} holds {opened} <{element[:3]}> and {len(blocks)} whole records: is it cut, or another format?")
    for attributes, block in blocks:
        given = re.search(r"(?:number|id)\s*=\s*[\"']?([^\"'\s>]+)", attributes, re.IGNORECASE)
        written = re.search(r"<(?:DOCNO|DOCID|NUM)>\s*(?:Number:)?\s*([^\s<]+)", block, re.IGNORECASE)
        key = written or given
        if key is None:
            raise InputError(f"{path} has a record without DOCNO or num: {' '.join(block.split())[:60]!r}")
        if element == "DOC":
            title = _element(block, "TITLE|HEADLINE|HL|HEAD|TI")
            bodies = re.findall(r"<(TEXT|ABSTRACT|BODY)\b[^>]*>(.*?)</\1>", block, re.DOTALL | re.IGNORECASE)
            rest = re.sub(
                r"<(DOCNO|DOCID|DOCHDR|TITLE|HEADLINE|HL|HEAD|TI)\b[^>]*>.*?</\1>", " ", block, flags=re.DOTALL | re.IGNORECASE
            )
            yield key[1], title, _untagged("\n".join(body for _, body in bodies) if bodies else rest)
        else:
            yield key[1], _element(block, "title|query", "Topic"), _element(block, "desc(?:ription)?", "Description")


def _element(block: str, names: str, label: str = "") -> str:
    """The text of the first such element; classic topics leave it unclosed, and it then ends where another begins."""
    closed = re.search(rf"<({names})\b[^>]*>(.*?)</\1>", block, re.DOTALL | re.IGNORECASE)
    found = closed or re.search(rf"<({names})\b[^>]*>([^<]*)", block, re.IGNORECASE)
    text = _untagged(found[2]) if found else ""
    return re.sub(rf"^{label}:\s*", "", text) if label else text


def _untagged(text: str) -> str:
    return html.unescape(re.sub(r"</?[A-Za-z][^<>]*>", " ", text)).strip()


# SQuAD ------------------------------------------------------------------------------------------------------------------------


def read_squad(path: str | Path, sample: int | None = None, seed: int = 0) -> tuple[tuple[Article, ...], tuple[Task, ...]]:
    """Read a SQuAD 1.1 file as articles (one a paragraph) and tasks with gold spans; `sample` draws that many questions.

    Raises
    ------
    InputError
        The file is not SQuAD 1.1, or `sample` is below 1.
    """
    if sample is not None and sample < 1:
        raise InputError(f"sample is {sample}: draw at least 1 question")
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
        articles, tasks = [], []
        for document in data:
            for number, paragraph in enumerate(document["paragraphs"]):
                key, title = f"{document['title']}-{number:03d}", document["title"].replace("_", " ")
                text = f"{title}\n\n{paragraph['context']}"
                articles.append(Article(key, title, text))
                shift = len(text) - len(paragraph["context"])
                for question in paragraph["qas"]:
                    answers = list(dict.fromkeys(answer["text"] for answer in question["answers"]))
                    start = question["answers"][0]["answer_start"] + shift
                    golds = (Gold(key, start, start + len(question["answers"][0]["text"])),)
                    tasks.append(Task(str(question["id"]), question["question"], answers[0], tuple(answers[1:]), golds))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} is not a SQuAD 1.1 file ({type(error).__name__}: {error})") from error
    if sample is not None:
        # A draw that depends on ids and seed alone, so that file order does not matter.
        tasks.sort(key=lambda task: hashlib.sha256(f"{seed}:{task.task_id}".encode()).hexdigest())
        tasks = tasks[:sample]
    return tuple(articles), tuple(tasks)
