"""Feeds: the Spaceflight News API fetched page by page, saved responses and RSS or Atom files merged into one snapshot.

Only `fetch_news` touches the network; `read_feeds` is told what time it is. Never follows a link that a response names, never
asks twice for a page that is kept, never drops an article or a difference in number in silence.
"""

from __future__ import annotations

import calendar
import hashlib
import html
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from tqdm import tqdm

from ragkit import __version__
from ragkit.corpus.snapshot import Row, Snapshot, _all_rejected, _article, _key, _Rejection, _short, read_rows
from ragkit.errors import InputError, ServiceError
from ragkit.records import Article

PAGE_SIZE = 500  # the most that the API gives at once
XML_SUFFIXES = (".rss", ".xml", ".atom")

_ATTEMPTS = 6
_LONGEST_WAIT = 300.0  # seconds; a server that asks for more is left alone until the next run
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_YEARS = (1900, 9990)  # of a date that can be meant: beyond them a shift by a zone can leave the calendar
_ZONE_SLACK = timedelta(hours=14)  # a date without a zone may belong to the one that is furthest ahead


# The Spaceflight News API ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Api:
    """How one version of the API is addressed."""

    base_url: str
    path: str
    limit: str
    offset: str
    since: str
    until: str
    newest_first: tuple[str, str]


_STRAPI = ("_limit", "_start", "publishedAt_gte", "publishedAt_lte", ("_sort", "publishedAt:DESC"))
_APIS = {
    "v2": _Api("https://www.spaceflightnewsapi.net/api", "/v2/articles", *_STRAPI),
    "v3": _Api("https://api.spaceflightnewsapi.net", "/v3/articles", *_STRAPI),
    "v4": _Api(
        "https://api.spaceflightnewsapi.net",
        "/v4/articles/",
        "limit",
        "offset",
        "published_at_gte",
        "published_at_lte",
        ("ordering", "-published_at"),
    ),
}
VERSIONS = tuple(_APIS)


@dataclass(frozen=True)
class NewsQuery:
    """Which articles of the Spaceflight News API: the newest `limit` (None: all) from `since` to `until`, both included.

    Parameters
    ----------
    since, until
        Moments with a zone, or None.
    limit
        The most articles to fetch.
    base_url
        Root of the API without its version; None: the public one.
    version
        `v2`, `v3` or `v4`.
    page_size
        Articles asked for at once, 1 to 500.

    Raises
    ------
    InputError
        An unknown version, a base url that is none, a number out of range, `since` after `until`.
    """

    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None
    base_url: str | None = None
    version: str = "v4"
    page_size: int = PAGE_SIZE

    def __post_init__(self) -> None:
        if self.version not in _APIS:
            raise InputError(f"unknown version {self.version!r} of the Spaceflight News API: choose from {', '.join(VERSIONS)}")
        if not 1 <= self.page_size <= PAGE_SIZE:
            raise InputError(f"a page of {self.page_size} articles: the API gives 1 to {PAGE_SIZE} at once")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"a limit of {self.limit} articles: give at least 1, or none")
        if self.since and self.until and self.since > self.until:
            raise InputError(f"since {_iso(self.since)} is after until {_iso(self.until)}: swap them")
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise InputError(f"base url {self.base_url!r} is no url ({error}): an example is {_APIS['v4'].base_url}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise InputError(f"base url {self.base_url!r} is not http(s)://HOST: an example is {_APIS['v4'].base_url}")

    @property
    def url(self) -> str:
        """Address of the list of articles; a base url that already ends in the version or the list is understood."""
        api = _APIS[self.version]
        base = (self.base_url or api.base_url).rstrip("/").removesuffix("/articles").removesuffix(f"/{self.version}")
        return base + api.path

    def parameters(self, offset: int, size: int) -> dict[str, str]:
        """What is asked for `size` articles from `offset` on, the newest being number 0."""
        api = _APIS[self.version]
        asked = {api.limit: str(size), api.offset: str(offset), api.newest_first[0]: api.newest_first[1]}
        if self.since:
            asked[api.since] = _iso(self.since)
        if self.until:
            asked[api.until] = _iso(self.until)
        return asked

    @cached_property
    def digest(self) -> str:
        """12 hex digits that name the query: kept pages bear it."""
        asked = [self.url, self.parameters(0, self.page_size), self.limit]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Fetch:
    """What `fetch_news` did.

    `pages` are the kept responses in the order in which they are read; `asked` of them came from the network, `from_disk` were
    kept by an earlier run; `retries` counts requests that were repeated after a fault. `found` articles are distinct; `overlaps`
    counts those that came again because the feed moved while it was paged. `counts` is what the API said it holds, at the first
    page and at the last (None where a version does not say).
    """

    query: NewsQuery
    pages: tuple[Path, ...]
    asked: int
    from_disk: int
    retries: int
    found: int
    overlaps: int
    counts: tuple[int, int] | None

    @property
    def missing(self) -> int | None:
        """How many articles fewer were found than the API says there are (negative: more); None where it does not say."""
        if self.counts is None:
            return None
        return min(self.counts[1], self.query.limit or self.counts[1]) - self.found


class _Again(Exception):
    """A fault that may pass: what happened, and the seconds that the server wants us to wait, if it said so."""

    def __init__(self, what: str, seconds: float | None = None) -> None:
        super().__init__(what)
        self.seconds = seconds


@dataclass(frozen=True)
class _Page:
    path: Path
    content: bytes
    keys: tuple[str, ...]
    count: int | None
    kept: bool


@dataclass
class _Walk:
    """One walk over the pages of a query: `seen` ids, `pages` in order, and what is counted on the way."""

    query: NewsQuery
    folder: Path
    client: httpx.Client
    sleep: Callable[[float], None]
    bar: Any
    seen: dict[str, None] = field(default_factory=dict)
    pages: list[_Page] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    asked: int = 0
    from_disk: int = 0
    retries: int = 0
    overlaps: int = 0

    def forward(self) -> None:
        """From the newest article to the oldest, as far as the limit, the API's count or the first empty page."""
        offset = 0
        goal = self.query.limit or math.inf
        while offset < goal:
            page = self._page("", offset)
            if self._repeats(page):
                raise ServiceError(
                    f"{self.query.url} repeats itself: the page at offset {offset} holds only articles of earlier pages, so it "
                    "ignores the offset or starts again; check --base-url and --version"
                )
            self._take(page)
            if not page.keys:
                break
            offset += len(page.keys)  # not the size asked for: a server may give less at once
            if page.count is not None:
                goal = min(self.query.limit or math.inf, page.count)
                self.bar.total = len(self.pages) + max(0, math.ceil((goal - offset) / len(page.keys)))
                self.bar.refresh()

    def catch_up(self) -> None:
        """Where the feed has moved: its top again, until a page holds an article that is known.

        Where it has shrunk, articles have moved up past pages that were already read: then all of it again.
        """
        shrank = any(later < earlier for earlier, later in pairwise(self.counts))
        if not (self.overlaps or len(set(self.counts)) > 1):
            return
        known = dict(self.seen)
        offset, goal = 0, self.query.limit or math.inf
        while offset < goal:
            page = self._page("again-", offset)
            self._take(page, overlap=False)
            if not page.keys or (not shrank and any(key in known for key in page.keys)):
                return
            offset += len(page.keys)
            goal = min(goal, page.count if page.count is not None else goal)

    def _page(self, kind: str, offset: int) -> _Page:
        path = self.folder / f"{self.query.digest}-{kind}{offset:06d}.json"
        with suppress(OSError, ServiceError):
            return _parsed(path.read_bytes(), path, self.query.url, kept=True)
        size = min(self.query.page_size, (self.query.limit or offset + self.query.page_size) - offset)
        return _parsed(self._get(self.query.parameters(offset, size)), path, self.query.url, kept=False)

    def _get(self, parameters: dict[str, str]) -> bytes:
        retrying = Retrying(
            retry=retry_if_exception_type(_Again),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=_wait,
            sleep=self.sleep,
            reraise=True,
        )
        try:
            return retrying(_ask, self.client, self.query.url, parameters)
        except _Again as fault:
            kept = f"the {len(self.pages)} pages before it are kept in {self.folder}"
            raise ServiceError(
                f"{self.query.url} {fault}, {_ATTEMPTS} times in a row: run the same command later, {kept}"
            ) from fault
        finally:
            self.retries += retrying.statistics.get("attempt_number", 1) - 1

    def _repeats(self, page: _Page) -> bool:
        """Whether a page brings nothing but what was seen, and not because new articles have pushed the old ones down."""
        if not page.keys or any(key not in self.seen for key in page.keys):
            return False
        if page.count is not None and self.counts:
            return page.count - self.counts[0] < len(page.keys)
        return page.keys in {earlier.keys for earlier in self.pages}

    def _take(self, page: _Page, overlap: bool = True) -> None:
        """Keep a page on disk and count what is in it."""
        if page.kept:
            self.from_disk += 1
        else:
            _write(page.path, page.content)
            self.asked += 1
        if overlap:
            self.overlaps += len(page.keys) - len(set(page.keys) - set(self.seen))
        self.seen.update(dict.fromkeys(page.keys))
        self.pages.append(page)
        if page.count is not None:
            self.counts.append(page.count)
        self.bar.update()


def fetch_news(
    query: NewsQuery,
    folder: str | Path,
    refresh: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    progress: bool = False,
) -> Fetch:
    """Fetch the articles of the Spaceflight News API and keep every response, byte for byte, in a folder.

    Parameters
    ----------
    query
        What to ask for.
    folder
        Where responses are kept, one file a page, `QUERY-OFFSET.json`. Pages that an earlier run kept are not asked for again.
    refresh
        Forget the kept pages of this query first.
    sleep
        Called with the seconds to wait before a request is repeated.
    progress
        Show a bar of pages where standard error is a terminal.

    Raises
    ------
    ServiceError
        The server cannot be reached, or answers 429 or 5xx, six times in a row (waiting 1, 2, 4, … s, or what `Retry-After`
        says); it asks for more than 300 s of patience, refuses, sends what is no page of articles, or repeats a page; the disk
        refuses.

    Notes
    -----
    The newest article is number 0, so an article that appears while pages are read pushes the others down: the next page brings
    some of them again. Then, or where the API's count has changed, the top is read once more (all of it where the count fell).
    `Fetch.missing` says whether the numbers agree in the end.
    """
    folder = Path(folder)
    agent = {"User-Agent": f"ragkit/{__version__}", "Accept": "application/json"}
    try:
        if refresh:
            for old in folder.glob(f"{query.digest}-*.json"):
                old.unlink()
        with (
            httpx.Client(timeout=_TIMEOUT, headers=agent, follow_redirects=True) as client,
            tqdm(desc="fetch", unit="page", disable=None if progress else True) as bar,
        ):
            walk = _Walk(query, folder, client, sleep, bar)
            walk.forward()
            walk.catch_up()
    except OSError as error:
        raise ServiceError(f"{folder} cannot be used ({error.strerror or error}): choose another place with --raw") from error
    return Fetch(
        query=query,
        pages=tuple(page.path for page in walk.pages),
        asked=walk.asked,
        from_disk=walk.from_disk,
        retries=walk.retries,
        found=len(walk.seen),
        overlaps=walk.overlaps,
        counts=(walk.counts[0], walk.counts[-1]) if walk.counts else None,
    )


def _ask(client: httpx.Client, url: str, parameters: dict[str, str]) -> bytes:
    try:
        response = client.get(url, params=parameters)
    except httpx.TransportError as error:
        raise _Again(f"cannot be reached or broke off ({type(error).__name__}: {error})") from error
    except httpx.HTTPError as error:
        raise ServiceError(f"{url} cannot be read ({type(error).__name__}: {error}): check --base-url") from error
    if response.status_code in (408, 429) or response.status_code >= 500:
        seconds = _retry_after(response)
        if seconds is not None and seconds > _LONGEST_WAIT:
            raise ServiceError(
                f"{url} answered {response.status_code} and asks to wait {seconds:.0f} s: run again then, pages are kept"
            )
        raise _Again(f"answered {response.status_code}", seconds)
    if not response.is_success:
        said = _start(response.content)
        raise ServiceError(f"{url} answered {response.status_code} ({said}): check --base-url, --version and the dates")
    return response.content


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds from a `Retry-After` header (RFC 9110, section 10.2.3); a date counts from the response's own."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(response.headers["Date"])).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None


def _wait(state: RetryCallState) -> float:
    fault = state.outcome.exception() if state.outcome else None
    asked = fault.seconds if isinstance(fault, _Again) else None
    return asked if asked is not None else float(2 ** (state.attempt_number - 1))


def _parsed(content: bytes, path: Path, url: str, kept: bool) -> _Page:
    try:
        page = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ServiceError(
            f"{url} sent a response that is not JSON ({_start(content)}): check --base-url, or run again later"
        ) from error
    items = page.get("results") if isinstance(page, dict) else page
    if not isinstance(items, list):
        raise ServiceError(f"{url} sent JSON that is no page of articles ({_start(content)}): check --base-url and --version")
    keys = tuple(_item_key(item) for item in items)
    count = page.get("count") if isinstance(page, dict) else None
    return _Page(path, content, keys, count if isinstance(count, int) else None, kept)


def _item_key(item: Any) -> str:
    given = item.get("id", item.get("_id")) if isinstance(item, dict) else None
    return str(given) if given is not None else json.dumps(item, sort_keys=True)


def _start(content: bytes) -> str:
    return repr(" ".join(content[:120].decode(errors="replace").split())) if content.strip() else "it is empty"


def _write(path: Path, content: bytes) -> None:
    """Put a file there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        with suppress(OSError):
            beside.unlink()


# Many sources, one snapshot -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """What `read_feeds` made of its sources: the snapshot, how many rows were read, in how many of them HTML became text.

    A rejection's row counts within its source, which the reason names where there are several.
    """

    snapshot: Snapshot
    rows: int
    with_html: int

    @property
    def reasons(self) -> dict[str, int]:
        """How many rows were rejected for each kind of reason, the commonest first."""
        return dict(Counter(reason.split(":", 1)[0] for _, reason in self.snapshot.rejected).most_common())


@dataclass(frozen=True)
class _Candidate:
    source: int
    row: int
    article: Article
    kind: str
    """`news` (Spaceflight News API), `feed` (RSS, Atom) or empty."""
    rank: tuple[Any, ...]


def read_feeds(
    paths: Iterable[str | Path],
    now: datetime | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Reading:
    """Merge saved responses, feed files and whatever else `read_snapshot` reads into one snapshot.

    Parameters
    ----------
    paths
        Anything that `read_snapshot` reads, and RSS or Atom files (`.rss`, `.xml`, `.atom`).
    now
        A moment with a zone. Feed items that are dated later are rejected; None: none are.
    since, until
        Feed items that are dated outside are rejected, so that a server that ignores its filters is noticed.

    Returns
    -------
    Reading
        Its snapshot does not depend on the order of feeds or of the items in them, nor on the version of the API: of several feed
        items with one id the one updated last is taken (then the last by its content), elsewhere the first row. Responses of the
        Spaceflight News API are also compared by url, since an article's id changed from version 2 to 3; there a whole number,
        the id of versions 3 and 4, is taken. All others are rejected.

    Raises
    ------
    InputError
        A source cannot be read, no source holds a row, or every row was rejected.

    Notes
    -----
    Titles and summaries of feed items are turned to plain text where they hold HTML or entities (`plain_text`); rows of other
    sources are left as they are.
    """
    names = [str(path) for path in paths]
    sources = [_feed_rows(Path(name)) for name in names]
    if not any(sources):
        raise InputError(f"{_listed(names)}: no rows in it; ask for other dates or give other files")
    candidates: list[_Candidate] = []
    rejected: list[tuple[int, int, str]] = []
    with_html = 0
    for number, rows in enumerate(sources):
        for place, (kind, row) in enumerate(rows):
            try:
                row, changed = _plain_row(kind, row)
                with_html += changed
                article = _article(row)
                if kind:
                    _check_date(article, now, since, until)
                candidates.append(_Candidate(number, place, article, kind, _rank(kind, row, article)))
            except _Rejection as reason:
                rejected.append((number, place, str(reason)))
    taken, repeats = _distinct(candidates, names)
    where = {number: f" (in {name})" if len(names) > 1 else "" for number, name in enumerate(names)}
    reasons = tuple((place, reason + where[number]) for number, place, reason in sorted(rejected + repeats))
    if not taken:
        raise InputError(_all_rejected(Path(_listed(names)), [row for rows in sources for _, row in rows], reasons))
    articles = tuple(sorted((candidate.article for candidate in taken), key=lambda article: article.article_id))
    return Reading(Snapshot(articles, reasons), sum(map(len, sources)), with_html)


def _distinct(candidates: Sequence[_Candidate], names: Sequence[str]) -> tuple[list[_Candidate], list[tuple[int, int, str]]]:
    """One candidate for each id, then one for each url of the news API; and why the others are none."""
    rejected: list[tuple[int, int, str]] = []

    def best(group: Sequence[_Candidate], shared: str) -> _Candidate:
        chosen = max(group, key=lambda one: one.rank) if all(one.kind for one in group) else group[0]
        place = f"row {chosen.row}" + (f" of {names[chosen.source]}" if len(names) > 1 else "")
        for one in group:
            if one is not chosen:
                same = one.article == chosen.article
                how = "repeats another row" if same else f"has the {shared} of another row and other content"
                value = one.article.article_id if shared == "id" else one.article.url
                rejected.append((one.source, one.row, f"{how}: {shared} {_short(value)}, {place}"))
        return chosen

    by_id = [best(group, "id") for group in _grouped(candidates, lambda one: one.article.article_id)]
    by_url = _grouped(by_id, lambda one: one.article.url if one.kind == "news" and one.article.url else id(one))
    return [best(group, "url") for group in by_url], rejected


def _grouped(candidates: Iterable[_Candidate], key: Callable[[_Candidate], Any]) -> list[list[_Candidate]]:
    groups: dict[Any, list[_Candidate]] = {}
    for one in candidates:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _rank(kind: str, row: Row, article: Article) -> tuple[Any, ...]:
    """By what one of several feed items is preferred: an id of versions 3 and 4, the last update, then the content."""
    if not kind:
        return ()
    updated = next((str(value) for name, value in row.items() if _key(name) == "updatedat"), "")
    moment = _moment(updated)
    content = (article.title, article.text, article.url or "", article.published_at or "", article.source or "")
    return (article.article_id.isdecimal(), moment.timestamp() if moment else -math.inf, content, article.article_id)


def _check_date(article: Article, now: datetime | None, since: datetime | None, until: datetime | None) -> None:
    moment = _moment(article.published_at or "")
    if moment is None:
        return
    if not _in_range(moment.year):
        raise _Rejection(f"published_at is not of these centuries: {article.published_at!r}")
    slack = timedelta(0) if str(article.published_at).endswith("Z") else _ZONE_SLACK
    if now and moment - slack > now:
        raise _Rejection(f"published_at is in the future: {article.published_at!r}, read at {_iso(now)}")
    if (since and moment + slack < since) or (until and moment - slack > until):
        raise _Rejection(f"published_at is outside the dates asked for: {article.published_at!r}")


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _in_range(year: int) -> bool:
    """Whether a moment of this year can be shifted by zones and slack; no article is older or newer."""
    return _YEARS[0] <= year <= _YEARS[1]


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def day_or_moment(text: str, end: bool = False) -> datetime:
    """A moment with a zone from ISO 8601; one without a zone is UTC, and a bare day is its first moment (`end`: its last)."""
    moment = _moment(text)
    if moment is None:
        raise InputError(f"{text!r} is not an ISO 8601 date: examples are 2026-01-31 and 2026-01-31T18:00:00Z")
    if not _in_range(moment.year):
        raise InputError(f"{text!r} is a date outside the years {_YEARS[0]} to {_YEARS[1]}: correct it")
    return moment + timedelta(days=1, microseconds=-1) if end and _is_day(text) else moment


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


# From files to rows ---------------------------------------------------------------------------------------------------


def _feed_rows(path: Path) -> list[tuple[str, Row | _Rejection]]:
    """Each row of a source with its kind."""
    if path.suffix.lower() in XML_SUFFIXES and path.is_file():
        return [("feed", row) for row in _xml_rows(path)]
    return [("news" if _is_news(row) else "", row) for row in read_rows(path)]


def _is_news(row: Row | _Rejection) -> bool:
    """A summary under a news site and no text of its own: an article as the Spaceflight News API gives it."""
    if isinstance(row, _Rejection):
        return False
    names = {_key(name) for name in row}
    return {"newssite", "summary"} <= names and not names & {"body", "text", "content"}


def _xml_rows(path: Path) -> Iterator[Row | _Rejection]:
    import feedparser

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): check its permissions") from error
    feed = feedparser.parse(BytesIO(content))  # bytes: a text could be taken for an address
    if feed.bozo and not isinstance(feed.bozo_exception, feedparser.CharacterEncodingOverride):
        said = " ".join(str(feed.bozo_exception).split())[:120]
        raise InputError(f"{path} is not a whole RSS or Atom feed ({said}): fetch it again")
    if not feed.get("version"):
        raise InputError(f"{path} is no RSS or Atom feed: give the feed's own file")
    for entry in feed.entries:
        yield _entry_row(entry, feed.feed.get("title"))


def _entry_row(entry: Any, site: str | None) -> Row | _Rejection:
    dates = [name for name in ("published", "updated", "created") if dict.get(entry, name)]
    published = _utc(dict.get(entry, f"{dates[0]}_parsed")) if dates else None
    if dates and not published:
        return _Rejection(f"published_at is no date of a feed: {_short(dict.get(entry, dates[0]))}")
    full = [part.get("value") for part in entry.get("content", []) if part.get("value")]
    updated = _utc(dict.get(entry, "updated_parsed"))
    return {
        "id": entry.get("id") or entry.get("link"),
        "title": entry.get("title"),
        "body": full[0] if full else entry.get("summary"),
        "url": entry.get("link"),
        "published_at": published,
        "source": site,
        "updated_at": updated.isoformat() if updated else None,
    }


def _utc(parsed: time.struct_time | None) -> datetime | None:
    """A parsed date as a moment; None where it could not be parsed, or lies outside the years that are taken."""
    if parsed is None or not _in_range(parsed.tm_year):
        return None
    return datetime.fromtimestamp(calendar.timegm(parsed), UTC)


# HTML -----------------------------------------------------------------------------------------------------------------

_BLOCK = (
    "address|article|aside|blockquote|dd|div|dl|dt|figcaption|figure|footer|form|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|table"
    "|tbody|td|tfoot|th|thead|tr|ul"
)
_INLINE = (
    "a|abbr|acronym|audio|b|bdi|bdo|big|body|br|button|center|cite|code|data|del|dfn|em|embed|font|head|html|i|iframe|img|input|ins"
    "|kbd|label|link|mark|meta|noscript|object|param|picture|q|s|samp|small|source|span|strike|strong|sub|sup|svg|time|tt|u|var"
    "|video|wbr"
)
_HIDDEN = "script|style|template|title"
_TAG = re.compile(rf"</?(?:{_BLOCK}|{_INLINE}|{_HIDDEN})(?=[\s/>])[^<>]*>|<!--|<!\[CDATA\[", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,31});", re.IGNORECASE)


class _Text(HTMLParser):
    """Collects the text of HTML; what only looks like a tag (`<VV24>`) stays as it is."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if re.fullmatch(_HIDDEN, tag):
            self._hidden += 1
        elif re.fullmatch(_BLOCK, tag):
            self.parts.append("\n\n")
        elif tag == "br":
            self.parts.append("\n")
        elif not re.fullmatch(_INLINE, tag):
            self.handle_data(self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not re.fullmatch(_HIDDEN, tag):
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if re.fullmatch(_HIDDEN, tag):
            self._hidden = max(0, self._hidden - 1)
        elif re.fullmatch(_BLOCK, tag):
            self.parts.append("\n\n")
        elif not re.fullmatch(_INLINE, tag):
            self.handle_data(f"</{tag}>")

    def unknown_decl(self, data: str) -> None:
        if data.startswith("CDATA["):
            self.handle_data(data[6:])

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def plain_text(text: str) -> str:
    """The text of HTML: tags, comments and scripts gone, entities decoded, paragraphs apart by a blank line.

    A text without tags of HTML only has its entities decoded (`&amp;`, `&#8217;`, with their semicolon); one without either comes
    back as it is.
    """
    if not _TAG.search(text):
        return _ENTITY.sub(lambda found: html.unescape(found[0]), text)
    parser = _Text()
    try:
        parser.feed(text)
        parser.close()
    except AssertionError:  # the standard parser's answer to a malformed declaration
        return " ".join(html.unescape(_TAG.sub(" ", text)).split())
    lines = "".join(parser.parts).split("\n")
    paragraphs = re.split(r"\n{2,}", "\n".join(" ".join(line.split()) for line in lines))
    return "\n\n".join(paragraph.strip() for paragraph in paragraphs if paragraph.strip())


def _plain_row(kind: str, row: Row | _Rejection) -> tuple[Row, bool]:
    """A feed item with its title and summary as plain text, and whether that changed it."""
    if isinstance(row, _Rejection):
        raise row
    if not kind:
        return row, False
    plain = {
        name: plain_text(value) if isinstance(value, str) and _key(name) in ("title", "summary", "body") else value
        for name, value in row.items()
    }
    return plain, any(plain[name] != value for name, value in row.items())
