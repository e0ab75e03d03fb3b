"""Open every page of the built book from disk in a headless browser with no network, and say what is wrong with it.

    python tests/check_html.py [_build/html] [--screenshots DIR]

A page is wrong if it asks for anything outside its folder, prints a console error, shows an unresolved mark or an unrendered
formula, has an image without alt text or a link to nothing. Exit status 1 if any page is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import BrowserContext, Page, Route, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--allow-file-access-from-files",
)
LOOK = r"""async () => {
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  const article = document.querySelector("article") || document.body;
  const found = [];
  for (const node of document.querySelectorAll(".problematic, .system-message, .missing-measurement, aside.system-message"))
    found.push("unresolved: " + node.textContent.trim().slice(0, 120));
  for (const image of article.querySelectorAll("img")) {
    const name = image.getAttribute("src");
    if (!(image.getAttribute("alt") || "").trim() || image.getAttribute("alt") === name) found.push("no alt text: " + name);
    image.loading = "eager";
    await image.decode().catch(() => found.push("image does not load: " + name));
  }
  for (const math of article.querySelectorAll("span.math, div.math"))
    if (!math.querySelector("mjx-container")) found.push("formula not rendered: " + math.textContent.trim().slice(0, 80));
  for (const wrong of document.querySelectorAll("mjx-merror, [data-mml-node='merror']"))
    found.push("formula with an error: " + wrong.textContent.trim().slice(0, 80));
  const prose = article.cloneNode(true);
  for (const code of prose.querySelectorAll("pre, code, script, style")) code.remove();
  const raw = prose.textContent.match(/\{[a-z:]+\}`[^`]*`|\?\?\?|\bnan\b/);
  if (raw) found.push("left unrendered: " + raw[0]);
  const titles = document.querySelectorAll("article h1").length;
  if (document.querySelector("article") && titles !== 1) found.push(titles + " first-level titles");
  const links = [...document.querySelectorAll("a[href]")].map(link => link.href);
  return {found, links};
}"""


class _Ids(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids |= {value for key, value in attrs if key in ("id", "name") and value}


@cache
def ids_of(path: Path) -> frozenset[str]:
    parser = _Ids()
    parser.feed(path.read_text(encoding="utf-8"))
    return frozenset(parser.ids)


def forwards_to(path: Path) -> Path | None:
    """Where a page that only sends the reader on leads to; None for a page of its own."""
    match = re.search(r'http-equiv="refresh"[^>]*url=([^"]+)"', path.read_text(encoding="utf-8")[:400], re.IGNORECASE)
    return path.parent / match.group(1) if match else None


def broken_links(links: list[str], folder: Path) -> list[str]:
    """Links to files that are not in the folder, or to anchors that are not in the file."""
    wrong = []
    for link in sorted(set(links)):
        parts = urlsplit(link)
        if parts.scheme != "file":
            continue
        target = Path(unquote(parts.path))
        if not target.is_file() or not target.is_relative_to(folder):
            wrong.append(f"link to nothing: {target}")
        elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in ids_of(target):
            wrong.append(f"link to a missing place: {target.relative_to(folder)}#{parts.fragment}")
    return wrong


def check_page(page: Page, path: Path, folder: Path, query: str = "") -> list[str]:
    """What is wrong with one page."""
    found: list[str] = []
    page.on("console", lambda message: found.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: found.append(f"script: {error}"))
    page.on("requestfailed", lambda request: found.append(f"request failed: {request.url}"))

    def local_only(route: Route) -> None:
        parts = urlsplit(route.request.url)
        inside = parts.scheme == "file" and Path(unquote(parts.path)).is_relative_to(folder)
        if inside or parts.scheme in ("data", "blob"):
            route.continue_()
        else:
            found.append(f"asks outside: {route.request.url}")
            route.abort()

    page.route("**/*", local_only)
    page.goto(path.as_uri() + query, wait_until="load")
    seen = page.evaluate(LOOK)
    if query:
        page.wait_for_function("document.querySelectorAll('#search-results li').length > 0", timeout=10_000)
    return found + seen["found"] + broken_links(seen["links"], folder)


def take_pictures(page: Page, path: Path, folder: Path, out: Path) -> None:
    """The page in the light and in the dark theme."""
    name = path.relative_to(folder).with_suffix("").as_posix().replace("/", "-")
    for theme in ("light", "dark"):
        page.evaluate(
            "theme => { document.documentElement.dataset.theme = theme; document.documentElement.dataset.mode = theme; }", theme
        )
        page.screenshot(path=out / f"{name}-{theme}.png", full_page=True)


def find_browser() -> str:
    """RAGKIT_CHROMIUM, else the first of the usual names on PATH."""
    given = os.environ.get("RAGKIT_CHROMIUM")
    if given:
        return given
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("check_html: no browser: install chromium, or set RAGKIT_CHROMIUM to one")
    return found


def check_book(folder: Path, context: BrowserContext, pictures: Path | None) -> int:
    """Check every page; prints what is wrong and returns how many pages are."""
    pages = sorted(path for path in folder.rglob("*.html") if not {"_static", "_sources"} & set(path.relative_to(folder).parts))
    if not pages:
        raise SystemExit(f"check_html: no page in {folder}: make render builds them")
    wrong = 0
    for path, query in [(path, "") for path in pages] + [(folder / "search.html", "?q=retrieval")]:
        target = forwards_to(path)
        if target is not None:
            if not target.is_file():
                print(f"{path.relative_to(folder)}: sends the reader to nothing: {target.relative_to(folder)}")
                wrong += 1
            continue
        page = context.new_page()
        found = check_page(page, path, folder, query)
        if pictures and not query:
            take_pictures(page, path, folder, pictures)
        page.close()
        wrong += bool(found)
        for line in dict.fromkeys(found):
            print(f"{path.relative_to(folder)}{query}: {line}")
    print(f"check_html: {len(pages)} pages, {wrong} of them wrong")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("_build/html"))
    parser.add_argument("--screenshots", type=Path, metavar="DIR", help="keep a light and a dark picture of every page")
    chosen = parser.parse_args()
    if chosen.screenshots:
        chosen.screenshots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), headless=True, args=list(QUIET))
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        wrong = check_book(chosen.folder.resolve(), context, chosen.screenshots)
        browser.close()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
