"""Feeds against a local server that behaves like the Spaceflight News API, faults included; saved responses; RSS and Atom."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragkit.corpus import NewsQuery, day_or_moment, feeds, fetch_news, plain_text, read_feeds, read_snapshot, write_snapshot
from ragkit.errors import InputError, ServiceError

FIXTURES = Path(__file__).parent / "fixtures" / "corpus"
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def news(number: int, **fields: Any) -> dict[str, Any]:
    """Article `number` as version 4 gives it; a higher number is newer by an hour."""
    moment = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)).isoformat().replace("+00:00", "Z")
    return {
        "id": number,
        "title": f"Article {number}",
        "url": f"https://example.org/{number}",
        "image_url": "",
        "news_site": "Example News",
        "summary": f"Satellite {number} moved.",
        "published_at": moment,
        "updated_at": moment,
        "featured": False,
        "launches": [],
        "events": [],
        **fields,
    }


def as_v3(article: dict[str, Any]) -> dict[str, Any]:
    """The same article with the names and the milliseconds of versions 2 and 3."""
    names = {"image_url": "imageUrl", "news_site": "newsSite", "published_at": "publishedAt", "updated_at": "updatedAt"}
    renamed = {names.get(name, name): value for name, value in article.items()}
    return {**renamed, **{name: renamed[name].replace("Z", ".000Z") for name in ("publishedAt", "updatedAt")}}


Fault = Callable[["FakeApi", int, dict[str, str]], Any]


class FakeApi:
    """`articles`, newest first, under /v4/articles/ and /v3/articles; `fault` may answer instead, or change them before.

    `fault(api, number of the request, parameters)` returns None (the API answers), bytes, JSON, or (status, headers, bytes).
    """

    def __init__(self, articles: list[dict[str, Any]], fault: Fault | None = None, most: int = 500) -> None:
        self.articles, self.fault, self.most = articles, fault, most
        self.requests: list[dict[str, str]] = []
        self.lock = threading.Lock()

    def answer(self, path: str, asked: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        with self.lock:
            self.requests.append(asked)
            number = len(self.requests)
        given = self.fault(self, number, asked) if self.fault else None
        if isinstance(given, tuple):
            return given
        if isinstance(given, bytes):
            return 200, {"Content-Type": "text/html"}, given
        return 200, {}, json.dumps(self.page(path, asked) if given is None else given).encode()

    def page(self, path: str, asked: dict[str, str]) -> Any:
        v4 = path == "/v4/articles/"
        assert v4 or path == "/v3/articles", path
        limit, offset, since, until = (
            ("limit", "offset", "published_at_gte", "published_at_lte")
            if v4
            else ("_limit", "_start", "publishedAt_gte", "publishedAt_lte")
        )
        low, high = asked.get(since, ""), asked.get(until, "9")
        found = [article for article in self.articles if low <= article["published_at"] <= high]
        first = int(asked.get(offset, 0))
        results = found[first : first + min(self.most, int(asked[limit]))]
        return {"count": len(found), "next": None, "previous": None, "results": results} if v4 else list(map(as_v3, results))


@contextmanager
def serving(api: FakeApi) -> Iterator[str]:
    """The base url under which `api` answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            status, headers, body = api.answer(parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()})
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fetched(api: FakeApi, folder: Path, waits: list[float] | None = None, refresh: bool = False, **query: Any) -> feeds.Fetch:
    with serving(api) as url:
        asked = NewsQuery(base_url=url, **{"page_size": 2, **query})
        return fetch_news(asked, folder, refresh=refresh, sleep=(waits if waits is not None else []).append)


def newest_first(*numbers: int) -> list[dict[str, Any]]:
    return [news(number) for number in sorted(numbers, reverse=True)]


def ids(reading: feeds.Reading) -> set[str]:
    return {article.article_id for article in reading.snapshot.articles}


@contextmanager
def fixed_port() -> Iterator[Callable[[FakeApi], Any]]:
    """Runs against one address, as a resumed run's query must be the same."""
    holder: list[FakeApi] = []

    class Relay(FakeApi):
        def answer(self, path, asked):
            return holder[-1].answer(path, asked)

    with serving(Relay([])) as url:

        def run(api: FakeApi, folder: Path, **options: Any) -> feeds.Fetch:
            holder.append(api)
            refresh = options.pop("refresh", False)
            return fetch_news(
                NewsQuery(base_url=url, **{"page_size": 2, **options}), folder, refresh=refresh, sleep=lambda _: None
            )

        yield run


# Paging ---------------------------------------------------------------------------------------------------------------


def test_all_pages_are_read_kept_and_become_the_same_snapshot_as_one_saved_response(tmp_path):
    api = FakeApi(newest_first(1, 2, 3, 4, 5))
    fetch = fetched(api, tmp_path / "raw")
    assert [(r["limit"], r["offset"]) for r in api.requests] == [("2", "0"), ("2", "2"), ("2", "4")]
    assert (fetch.asked, fetch.from_disk, fetch.found, fetch.overlaps, fetch.missing) == (3, 0, 5, 0, 0)
    assert [path.name for path in fetch.pages] == [f"{fetch.query.digest}-{offset:06d}.json" for offset in (0, 2, 4)]
    assert sorted(tmp_path.joinpath("raw").iterdir()) == sorted(fetch.pages)
    assert json.loads(fetch.pages[2].read_bytes())["results"] == [news(1)]
    (tmp_path / "saved.json").write_text(json.dumps({"results": api.articles}))
    snapshot = read_feeds(fetch.pages, NOW).snapshot
    assert snapshot.rejected == ()
    assert snapshot.digest == read_snapshot(tmp_path / "saved.json").digest
    assert read_snapshot(write_snapshot(snapshot, tmp_path / "x.parquet")).digest == snapshot.digest


def test_dates_limit_and_page_size_reach_the_server(tmp_path):
    api = FakeApi(newest_first(*range(1, 100)))
    since, until = day_or_moment("2026-01-02"), day_or_moment("2026-01-03", end=True)
    fetch = fetched(api, tmp_path, since=since, until=until, limit=5)
    assert [r["limit"] for r in api.requests] == ["2", "2", "1"]
    assert api.requests[0]["published_at_gte"] == "2026-01-02T00:00:00Z"
    assert api.requests[0]["published_at_lte"] == "2026-01-03T23:59:59.999999Z"
    assert ids(read_feeds(fetch.pages, NOW, since, until)) == {"71", "70", "69", "68", "67"}
    assert fetch.missing == 0


def test_500_are_asked_for_at_once_and_a_server_that_gives_less_is_read_to_the_end(tmp_path):
    api = FakeApi(newest_first(*range(1, 8)), most=3)
    fetch = fetched(api, tmp_path, page_size=500)
    assert [(r["limit"], r["offset"]) for r in api.requests] == [("500", "0"), ("500", "3"), ("500", "6")]
    assert fetch.found == 7


def test_version_3_pages_until_an_empty_one_and_gives_the_digest_of_version_4(tmp_path):
    articles = newest_first(1, 2, 3)
    v3, v4 = FakeApi(articles), FakeApi(articles)
    third, fourth = fetched(v3, tmp_path / "3", version="v3"), fetched(v4, tmp_path / "4")
    assert [r["_start"] for r in v3.requests] == ["0", "2", "3"]
    assert third.counts is third.missing is None
    assert read_feeds(third.pages, NOW).snapshot.digest == read_feeds(fourth.pages, NOW).snapshot.digest


def test_nothing_found_is_said(tmp_path):
    fetch = fetched(FakeApi([]), tmp_path)
    assert fetch.missing == 0
    with pytest.raises(InputError, match="no rows in it"):
        read_feeds(fetch.pages)


# Faults ---------------------------------------------------------------------------------------------------------------


def once(number: int, answer: Any) -> Fault:
    return lambda api, n, asked: answer if n == number else None


def test_429_is_waited_for_as_the_server_says_and_500_twice_as_long_each_time(tmp_path):
    answers = {2: (429, {"Retry-After": "7"}, b"slow down"), 4: (500, {}, b""), 5: (503, {}, b""), 6: (502, {}, b"")}
    waits: list[float] = []
    fetch = fetched(FakeApi(newest_first(1, 2, 3, 4, 5), lambda api, n, asked: answers.get(n)), tmp_path, waits)
    assert waits == [7.0, 1.0, 2.0, 4.0]
    assert (fetch.asked, fetch.retries, fetch.found) == (3, 4, 5)


def test_retry_after_may_be_a_date_and_too_long_a_wait_is_not_waited_for(tmp_path):
    dated = {"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    response = httpx.Response(429, headers=dated)
    assert feeds._retry_after(response) == 30.0
    assert feeds._retry_after(httpx.Response(429, headers={"Retry-After": "soon"})) is None
    waits: list[float] = []
    api = FakeApi(newest_first(1), once(1, (429, {"Retry-After": "3600"}, b"")))
    with pytest.raises(ServiceError, match="asks to wait 3600 s"):
        fetched(api, tmp_path, waits)
    assert (waits, len(api.requests)) == ([], 1)


def test_500_for_ever_ends_and_a_later_run_asks_only_for_what_is_missing(tmp_path):
    articles = newest_first(1, 2, 3, 4, 5)
    broken = FakeApi(articles, lambda api, n, asked: (500, {}, b"") if asked["offset"] == "2" else None)
    mended = FakeApi(articles)
    with fixed_port() as run:
        with pytest.raises(
            ServiceError, match=r"answered 500, 6 times in a row: run the same command later, the 1 pages"
        ) as caught:
            run(broken, tmp_path)
        assert len(broken.requests) == 7
        assert "\n" not in str(caught.value)
        fetch = run(mended, tmp_path)
    assert [r["offset"] for r in mended.requests] == ["2", "4"]
    assert (fetch.asked, fetch.from_disk, fetch.found) == (2, 1, 5)


def test_a_body_that_breaks_off_is_asked_for_again(tmp_path):
    torn = (200, {"Content-Length": "9999", "Connection": "close"}, b'{"count": 3, "results": [')
    api = FakeApi(newest_first(1, 2, 3), once(2, torn))
    fetch = fetched(api, tmp_path)
    assert (fetch.retries, fetch.found) == (1, 3)


def test_a_server_that_hangs_or_is_gone_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "_TIMEOUT", httpx.Timeout(0.02))
    released = threading.Event()
    api = FakeApi(newest_first(1), lambda api, n, asked: released.wait(0.2) and None)
    try:
        with pytest.raises(ServiceError, match=r"127.0.0.1.*ReadTimeout"):
            fetched(api, tmp_path)
    finally:
        released.set()
    with serving(api) as url:
        pass
    with pytest.raises(ServiceError, match=r"127.0.0.1.*ConnectError"):
        fetch_news(NewsQuery(base_url=url), tmp_path, sleep=lambda _: None)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"<!doctype html><p>Just a moment", "not JSON ('<!doctype html><p>Just a moment')"),
        (b"", "not JSON (it is empty)"),
        (b'{"count": 2, "results": [', "not JSON"),
        ({"detail": "Not found."}, "no page of articles"),
        ((404, {}, b"nothing here"), "answered 404 ('nothing here')"),
        ((302, {"Location": "/v4/articles/"}, b""), "TooManyRedirects"),
    ],
)
def test_what_is_no_page_of_articles_is_one_line_and_is_not_kept(tmp_path, answer, says):
    api = FakeApi(newest_first(1), lambda api, n, asked: answer)
    with pytest.raises(ServiceError) as caught:
        fetched(api, tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_a_feed_that_ignores_the_offset_is_stopped(tmp_path, version):
    def same(api, n, asked):
        return api.page("/v4/articles/" if version == "v4" else "/v3/articles", {**asked, "offset": "0", "_start": "0"})

    api = FakeApi(newest_first(*range(1, 100)), same)
    with pytest.raises(ServiceError, match=r"repeats itself: the page at offset 2"):
        fetched(api, tmp_path, version=version)
    assert len(api.requests) == 2


def test_a_feed_that_starts_again_for_ever_is_stopped(tmp_path):
    def round_and_round(api, n, asked):
        page = api.page("/v4/articles/", {**asked, "offset": str(int(asked["offset"]) % 6)})
        return {**page, "count": 10**9}

    api = FakeApi(newest_first(*range(1, 7)), round_and_round)
    with pytest.raises(ServiceError, match="offset 6"):
        fetched(api, tmp_path)
    assert len(api.requests) == 4


def test_a_count_without_articles_ends_and_is_reported(tmp_path):
    api = FakeApi(newest_first(1, 2, 3), lambda api, n, asked: {**api.page("/v4/articles/", asked), "count": 10})
    fetch = fetched(api, tmp_path)
    assert (fetch.found, fetch.missing) == (3, 7)


# A feed that moves ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_articles_that_appear_while_pages_are_read_are_found_and_overlaps_are_counted(tmp_path, version):
    def grow(api, n, asked):
        if n == 2:
            api.articles = newest_first(*range(1, 10))  # 7, 8, 9 are new

    api = FakeApi(newest_first(*range(1, 7)), grow)
    fetch = fetched(api, tmp_path, version=version)
    assert fetch.overlaps == 2  # 6 and 5, read at offset 0, come again at offset 2 and 4
    assert fetch.found == 9
    assert fetch.counts == ((6, 9) if version == "v4" else None)
    assert fetch.missing == (0 if version == "v4" else None)
    reading = read_feeds(fetch.pages, NOW)
    assert ids(reading) == set(map(str, range(1, 10)))
    assert set(reading.reasons) == {"repeats another row"}


def test_a_page_pushed_down_whole_is_no_repetition(tmp_path):
    def grow(api, n, asked):
        if n == 2:
            api.articles = newest_first(*range(1, 7))

    fetch = fetched(FakeApi(newest_first(1, 2, 3, 4), grow), tmp_path)
    assert (fetch.overlaps, fetch.found, fetch.missing) == (2, 6, 0)


def test_an_article_that_slips_past_because_another_was_deleted_is_found(tmp_path):
    def shrink(api, n, asked):
        if n == 3:
            api.articles = [article for article in api.articles if article["id"] != 8]

    fetch = fetched(FakeApi(newest_first(*range(1, 9)), shrink), tmp_path)  # 4 moves up, past the pages already read
    assert "4" in ids(read_feeds(fetch.pages, NOW))
    assert (fetch.found, fetch.missing) == (8, -1)


def test_the_newest_n_stay_n_where_new_ones_appear(tmp_path):
    def grow(api, n, asked):
        if n == 2:
            api.articles = newest_first(*range(1, 12))

    fetch = fetched(FakeApi(newest_first(*range(1, 11)), grow), tmp_path, limit=4)
    assert ids(read_feeds(fetch.pages, NOW)) == {"11", "10", "9", "8"}
    assert fetch.missing == 0


# Kept pages -----------------------------------------------------------------------------------------------------------


def test_a_killed_fetch_goes_on_where_it_stopped(tmp_path):
    reached, released = threading.Event(), threading.Event()

    def hold(api, n, asked):
        if n == 3:
            reached.set()
            released.wait(60)

    api = FakeApi(newest_first(1, 2, 3, 4, 5), hold)
    with serving(api) as url:
        words = ["snapshot", "spaceflight-news", str(tmp_path / "news.parquet"), "--base-url", url, "--page-size", "2"]
        child = subprocess.Popen([sys.executable, "-m", "ragkit.cli", *words], stderr=subprocess.DEVNULL)
        try:
            assert reached.wait(60)
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            released.set()
        fetch = fetch_news(NewsQuery(base_url=url, page_size=2), tmp_path / "news.raw")
        assert (fetch.asked, fetch.from_disk, fetch.found) == (1, 2, 5)
        assert len(api.requests) == 4
        assert not (tmp_path / "news.parquet").exists()
        again = fetch_news(NewsQuery(base_url=url, page_size=2), tmp_path / "news.raw")
    assert (again.asked, again.from_disk) == (0, 3)
    assert len(api.requests) == 4


def test_kept_pages_belong_to_one_query_torn_ones_are_asked_for_again_and_refresh_forgets_them(tmp_path):
    articles = newest_first(1, 2, 3)
    with fixed_port() as run:
        first = run(FakeApi(articles), tmp_path)
        other = run(FakeApi(articles), tmp_path, limit=3)
        assert other.from_disk == 0
        first.pages[1].write_bytes(first.pages[1].read_bytes()[:-9])
        mended = run(FakeApi(articles), tmp_path)
        assert (mended.asked, mended.from_disk) == (1, 1)
        grown = run(FakeApi(newest_first(1, 2, 3, 4)), tmp_path, refresh=True)
    assert (grown.from_disk, grown.found) == (0, 4)
    assert all(path.exists() for path in other.pages)


def test_a_moved_feed_that_was_fetched_whole_is_read_from_disk_alone(tmp_path):
    def grow(api, n, asked):
        if n == 2:
            api.articles = newest_first(*range(1, 6))

    with fixed_port() as run:
        moved = run(FakeApi(newest_first(1, 2, 3, 4), grow), tmp_path)
        silent = FakeApi([])
        again = run(silent, tmp_path)
    assert silent.requests == []
    assert (again.pages, again.found, again.missing) == (moved.pages, 5, 0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"version": "v5"}, "choose from v2, v3, v4"),
        ({"page_size": 501}, "1 to 500"),
        ({"page_size": 0}, "1 to 500"),
        ({"limit": 0}, "at least 1"),
        ({"since": NOW, "until": NOW - timedelta(days=1)}, "is after until"),
        ({"base_url": "api.example.org"}, "not http"),
        ({"base_url": "ftp://example.org"}, "not http"),
        ({"base_url": "http://"}, "not http"),
        ({"base_url": "http://[::1"}, "no url"),
    ],
)
def test_a_wrong_query_is_refused(fields, says):
    with pytest.raises(InputError, match=says):
        NewsQuery(**fields)


def test_a_base_url_may_name_the_version_or_the_list():
    urls = {NewsQuery(base_url=f"http://x.org/api{end}").url for end in ("", "/", "/v4", "/v4/", "/v4/articles/")}
    assert urls == {"http://x.org/api/v4/articles/"}
    assert NewsQuery().url == "https://api.spaceflightnewsapi.net/v4/articles/"


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path, folder):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ServiceError, match="cannot be used"):
        fetched(FakeApi(newest_first(1)), tmp_path / folder)


def test_days_and_moments():
    assert day_or_moment("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert day_or_moment("2026-01-31", end=True) == datetime(2026, 1, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert day_or_moment("2026-01-31T18:00:00+02:00", end=True) == datetime(2026, 1, 31, 16, tzinfo=UTC)
    with pytest.raises(InputError, match="not an ISO 8601 date"):
        day_or_moment("yesterday")


# Saved responses ------------------------------------------------------------------------------------------------------


def saved(path: Path, *articles: dict[str, Any]) -> Path:
    path.write_text(json.dumps(list(articles)), encoding="utf-8")
    return path


def test_responses_of_all_versions_merge_and_repeats_are_rejected_with_their_places(tmp_path):
    files = [FIXTURES / f"snapi_v{n}.json" for n in (2, 3, 4)]
    reading = read_feeds(files, NOW)
    assert ids(reading) == {"5fdc0001", *(a.article_id for f in files for a in read_snapshot(f).articles)}
    assert reading.snapshot.rejected == ()
    twice = read_feeds([*files, files[2]], NOW)
    assert twice.snapshot.digest == reading.snapshot.digest == read_feeds(files[::-1], NOW).snapshot.digest
    assert twice.reasons == {"repeats another row": 2}
    assert twice.snapshot.rejected[0] == (0, f"repeats another row: id '21568', row 0 of {files[2]} (in {files[2]})")


def test_of_two_versions_of_an_article_the_last_updated_is_taken_whatever_the_order(tmp_path):
    old = news(1, updated_at="2026-01-02T00:00:00Z")
    new = news(1, title="Corrected", updated_at="2026-01-02T00:00:01Z")
    a, b = saved(tmp_path / "a.json", new), saved(tmp_path / "b.json", as_v3(old))
    for order in ([a, b], [b, a]):
        reading = read_feeds(order, NOW)
        assert [article.title for article in reading.snapshot.articles] == ["Corrected"]
        assert list(reading.reasons) == ["has the id of another row and other content"]


def test_an_article_under_its_old_and_its_new_id_is_taken_once_under_the_new(tmp_path):
    old = as_v3(news(1, id="5fdc962b525fc6001d287e69", updated_at="2026-02-01T00:00:00Z"))
    a, b = saved(tmp_path / "a.json", old), saved(tmp_path / "b.json", news(1))
    readings = [read_feeds(order, NOW) for order in ([a, b], [b, a])]
    assert [ids(reading) for reading in readings] == [{"1"}, {"1"}]
    assert list(readings[0].reasons) == ["has the url of another row and other content"]


articles = st.builds(
    lambda number, title, updated: news(number, title=title, updated_at=f"2026-03-01T00:00:0{updated}Z"),
    st.integers(1, 6),
    st.sampled_from(["One", "Two"]),
    st.integers(0, 3),
)


@given(st.lists(articles, min_size=1, max_size=12), st.randoms(use_true_random=False), st.integers(1, 4))
def test_the_digest_depends_neither_on_order_nor_on_pages_nor_on_version(tmp_path_factory, rows, random, size):
    folder = tmp_path_factory.mktemp("any")
    whole = read_feeds([saved(folder / "whole.json", *rows)], NOW)
    shuffled = [as_v3(row) if random.random() < 0.5 else row for row in random.sample(rows, len(rows))]
    pages = [saved(folder / f"{i}.json", *shuffled[i : i + size]) for i in range(0, len(rows), size)]
    parts = read_feeds(pages, NOW)
    assert parts.snapshot.digest == whole.snapshot.digest
    assert len(parts.snapshot.articles) + len(parts.snapshot.rejected) == parts.rows == len(rows)


def test_dates_in_the_future_and_outside_the_window_are_rejected(tmp_path):
    rows = [news(1), news(2, published_at="2026-06-01T00:00:01Z"), news(3, published_at="2025-12-31T23:59:59Z")]
    file = saved(tmp_path / "x.json", *rows)
    reading = read_feeds([file], NOW, since=datetime(2026, 1, 1, tzinfo=UTC))
    assert reading.snapshot.rejected == (
        (1, "published_at is in the future: '2026-06-01T00:00:01Z', read at 2026-06-01T00:00:00Z"),
        (2, "published_at is outside the dates asked for: '2025-12-31T23:59:59Z'"),
    )
    assert ids(read_feeds([file])) == {"1", "2", "3"}


@pytest.mark.parametrize("moment", ["0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_date_at_the_end_of_the_calendar_costs_its_row_alone(tmp_path, moment):
    file = saved(tmp_path / "x.json", news(1), news(2, published_at=moment))
    reading = read_feeds([file], NOW, since=datetime(2020, 1, 1, tzinfo=UTC))
    assert ids(reading) == {"1"}
    assert "published_at" in reading.snapshot.rejected[0][1]
    with pytest.raises(InputError, match="outside the years"):
        day_or_moment(moment)


@pytest.mark.parametrize("moment", ["0000-00-00T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_an_item_of_no_century_costs_itself_alone(tmp_path, moment):
    (tmp_path / "x.rss").write_text(RSS.replace("some day", moment), encoding="utf-8")
    reading = read_feeds([tmp_path / "x.rss"], NOW)
    assert list(reading.reasons) == ["published_at is in the future", "published_at is no date of a feed"]


def test_rows_that_are_no_feed_items_are_read_as_ever(tmp_path):
    rows = [{"id": "a", "title": "A &amp; B", "text": "<p>x</p>", "published_at": "2099-01-01"}, {"id": "a", "title": "second"}]
    file = saved(tmp_path / "x.json", *rows)
    reading = read_feeds([file], NOW)
    assert reading.snapshot.articles == read_snapshot(file).articles
    assert (reading.with_html, len(reading.snapshot.rejected)) == (0, 1)


def test_html_in_titles_and_summaries_becomes_text_and_is_counted(tmp_path):
    rows = [news(1, title="Crew&#8217;s walk", summary="<p>Two went <b>out</b>.</p><p>One stayed&nbsp;in.</p>"), news(2)]
    reading = read_feeds([saved(tmp_path / "x.json", *rows)], NOW)
    assert reading.snapshot.articles[0].text == "Crew’s walk\n\nTwo went out.\n\nOne stayed in."
    assert reading.with_html == 1


def test_every_row_rejected_and_no_row_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"every row was rejected \(1\).*in the future"):
        read_feeds([saved(tmp_path / "x.json", news(1, published_at="2099-01-01T00:00:00Z"))], NOW)
    with pytest.raises(InputError, match=r"x\.json.*no rows"):
        read_feeds([saved(tmp_path / "x.json")])
    with pytest.raises(InputError, match="does not exist"):
        read_feeds([tmp_path / "nowhere.json"])


# HTML -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("plain, 3 < 4 and 5 > 4 & so on", "plain, 3 < 4 and 5 > 4 & so on"),
        ("AT&T; R&amp;D &#8211; caf&eacute; &#x1F680;", "AT&T; R&D – café 🚀"),
        ("line one\nline two &amp;", "line one\nline two &"),
        ("<p>One</p>\n<p>Two<br/>lines</p>", "One\n\nTwo\nlines"),
        ("a<em>b</em>c <a href='x?a=1&b=2'>link</a>", "abc link"),
        ("<div>x<script>alert(1)</script><style>p{}</style>y</div>", "xy"),
        ("<b>Vega</b> <VV24> flew", "Vega <VV24> flew"),
        ("<ul><li>one</li><li>two</li></ul>", "one\n\ntwo"),
        ("x<!-- hidden -->y", "xy"),
        ("<p>unclosed", "unclosed"),
        ("<p>a</p><![odd", "a\n\n<![odd"),
        ("<p>a</p><![odd[x]]> b", "a <![odd[x]]> b"),
        ("<![CDATA[x & y]]>", "x & y"),
        ("&amp;lt;b&amp;gt;", "&lt;b&gt;"),
        ("", ""),
    ],
)
def test_plain_text(given, text):
    assert plain_text(given) == text


@given(st.text(st.characters(exclude_characters="<&"), max_size=60))
def test_a_text_without_markup_is_left_as_it_is(text):
    assert plain_text(text) == text


@given(st.text(st.sampled_from("<>/!-[]&;#pb x\n\"='"), max_size=60))
def test_no_markup_however_broken_is_an_error(text):
    assert isinstance(plain_text(text), str)


# RSS and Atom ---------------------------------------------------------------------------------------------------------

RSS = """<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel><title>An agency</title>
<item><guid>g-1</guid><title>Crew &amp; cargo</title><link>https://example.org/1</link>
<description>&lt;p&gt;A short one.&lt;/p&gt;</description>
<content:encoded><![CDATA[<p>The long one&#8217;s text.</p>]]></content:encoded>
<pubDate>Fri, 02 Jan 2026 10:00:00 +0200</pubDate></item>
<item><title>No guid</title><link>https://example.org/2</link><description>Plain.</description></item>
<item><guid>g-3</guid><title>Later</title><pubDate>Sat, 02 Jan 2049 10:00:00 GMT</pubDate></item>
<item><guid>g-4</guid><title>Undated</title><pubDate>some day</pubDate></item>
</channel></rss>"""
ATOM = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>An observatory</title>
<entry><id>a-1</id><title>Burst</title><link href="https://example.org/3"/><summary>It faded.</summary>
<updated>2026-01-03T00:00:00Z</updated></entry></feed>"""


def test_rss_and_atom_files_merge_with_responses(tmp_path):
    (tmp_path / "agency.rss").write_text(RSS, encoding="utf-8")
    (tmp_path / "observatory.atom").write_text(ATOM, encoding="utf-8")
    file = saved(tmp_path / "x.json", news(1))
    reading = read_feeds([tmp_path / "agency.rss", tmp_path / "observatory.atom", file], NOW)
    found = {article.article_id: article for article in reading.snapshot.articles}
    assert set(found) == {"g-1", "https://example.org/2", "a-1", "1"}
    assert found["g-1"].text == "Crew & cargo\n\nThe long one’s text."
    assert (found["g-1"].published_at, found["g-1"].source) == ("2026-01-02T08:00:00Z", "An agency")
    assert found["https://example.org/2"].published_at is None
    assert (found["a-1"].published_at, found["a-1"].url) == ("2026-01-03T00:00:00Z", "https://example.org/3")
    assert [row for row, _ in reading.snapshot.rejected] == [2, 3]
    assert list(reading.reasons) == ["published_at is in the future", "published_at is no date of a feed"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (RSS[:700], "not a whole RSS or Atom feed"),
        ("<html><body>Just a moment</body></html>", "no RSS or Atom feed"),
        ("", "no RSS or Atom feed"),
        ("https://example.org/feed.rss", "not a whole RSS or Atom feed"),
    ],
)
def test_a_file_that_is_no_whole_feed_is_refused(tmp_path, content, says):
    (tmp_path / "x.xml").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=says) as caught:
        read_feeds([tmp_path / "x.xml"])
    assert "\n" not in str(caught.value)
