"""The way to a page: receipts, the measured role under a strict build, labs laid out, figures."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl
import pytest
import yaml

import ragkit
from ragkit.errors import InputError, ServiceError
from ragkit.lab import build_book, forest, lay_out_labs, machine, use_book_style, write_metrics, write_receipt, write_timings
from ragkit.lab.receipts import digest_of, read_receipt

ROOT = Path(ragkit.__file__).parents[2]
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CONF = """
extensions = ["myst_parser", "ragkit.lab.measured"]
root_doc = "index"
nitpicky = True
exclude_patterns = ["artifacts"]
"""


def receipt(name: str, artifacts: Path, **more) -> Path:
    return write_receipt(name, "cpu", started=WHEN, seconds=61.25, artifacts=artifacts, **more)


def test_receipt_comes_back(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")
    path = receipt(
        "eval_A4", tmp_path / "artifacts", root=tmp_path, data=["data/a.txt", "data"], used=[{"model": "m", "weights": "9"}]
    )
    read = read_receipt(path)
    assert read.started == "2026-01-02T03:04:05Z"
    assert read.seconds == pytest.approx(61.25, abs=0.06)
    assert read.data["data/a.txt"] == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert read.models == {"m": {"weights": "9"}}
    assert read.package["ragkit.lab.receipts"] == digest_of(ROOT / "src/ragkit/lab/receipts.py")
    assert read.machine == machine()
    assert str(tmp_path) not in path.read_text()


def test_folder_digest_follows_names_and_contents(tmp_path):
    (tmp_path / "a").write_text("1")
    first = digest_of(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = digest_of(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({first, second, digest_of(tmp_path)}) == 3


def test_receipt_of_nothing_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*missing\.txt"):
        receipt("x", tmp_path, data=[tmp_path / "missing.txt"])
    with pytest.raises(InputError, match="identity"):
        receipt("x", tmp_path, used=[object()])
    (tmp_path / "cpu" / "receipts").mkdir(parents=True)
    old = tmp_path / "cpu" / "receipts" / "x.json"
    old.write_text('{"name": "x"}')
    with pytest.raises(InputError, match="no receipt of this version"):
        read_receipt(old)


@pytest.fixture
def book(tmp_path):
    """A book of two pages with one run behind it."""
    (tmp_path / "conf.py").write_text(CONF)
    (tmp_path / "receipts.md").write_text("# Receipts\n\n```{profiles}\n```\n\n## Runs\n\n```{receipts}\n```\n")
    artifacts = tmp_path / "artifacts"
    write_metrics("05_x", {"delta": 0.12345, "pair": [0.1, 0.2]}, "cpu", artifacts)
    write_timings("05_x", {"ms": 4.5}, "cpu", artifacts)
    receipt("05_x", artifacts)
    (tmp_path / "profiles").mkdir()
    for name in ("cpu", "ci"):
        (tmp_path / "profiles" / f"{name}.yaml").write_bytes((ROOT / "profiles" / f"{name}.yaml").read_bytes())
    return tmp_path


def build(book: Path, page: str) -> tuple[int, str, str]:
    """Build strictly; returns the exit status, what was said, and the first page."""
    (book / "index.md").write_text(f"# Book\n\n{page}\n\n```{{toctree}}\nreceipts\n```\n")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", str(book), str(book / "_out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    html = book / "_out" / "index.html"
    return done.returncode, done.stderr, html.read_text() if html.is_file() else ""


def test_a_measured_number_is_printed_linked_and_rebuilt(book):
    page = (
        "D {measured}`05_x:delta:+.2f`, {measured}`05_x:pair:.1f`, {measured}`05_x.timings:ms:.1f` ms.\n\n```{receipt} 05_x\n```"
    )
    status, said, html = build(book, page)
    assert status == 0, said
    assert re.search(
        r'<span class="measured"><a [^>]*href="receipts\.html#receipt-05-x"[^>]*><span[^>]*>\+0\.12</span></a></span>', html
    )
    assert ">0.1 to 0.2<" in html
    assert ">4.5<" in html
    assert "61.2 s" in html
    receipts = (book / "_out" / "receipts.html").read_text()
    assert 'id="receipt-05-x"' in receipts
    assert "1 run, the last on 2026-01-02" in receipts
    assert "not measured yet on this machine" in receipts

    write_metrics("05_x", {"delta": -0.5, "pair": [0.1, 0.2]}, "cpu", book / "artifacts")
    receipt("06_y", book / "artifacts")
    status, said, html = build(book, page)
    assert status == 0, said
    assert ">-0.50<" in html
    assert 'id="receipt-06-y"' in (book / "_out" / "receipts.html").read_text()


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("{measured}`05_x:gone:.1f`", "no key 'gone'"),
        ("{measured}`06_x:delta:.1f`", "does not exist"),
        ("{measured}`05_x:delta:d`", "does not fit"),
        ("{measured}`05_x:delta`", "give a format"),
        ("```{receipt} 06_x\n```", "does not exist"),
    ],
)
def test_a_number_that_is_not_there_fails_the_build(book, page, says):
    status, said, html = build(book, page)
    assert status != 0
    assert says in said
    assert "0.12" not in html


def test_a_table_of_rows_is_printed_filtered_formatted_and_linked(book):
    rows = [{"set": "a", "got": 0.12345, "n": 3, "passed": True}, {"set": "b", "got": 1.0, "n": 4, "passed": False}]
    write_metrics("05_x", {"rows": rows}, "cpu", book / "artifacts")
    columns = "Got it = got:.3f\nN = n\nMet = passed\n"
    status, said, html = build(book, f"```{{measured-table}} 05_x:rows\n:where: set = a\n\n{columns}```")
    assert status == 0, said
    cells = re.findall(r"<t[hd][^>]*><p><span>(.*?)</span></p></t[hd]>", html)
    assert cells == ["Got it", "N", "Met", "0.123", "3", "yes"]
    assert 'href="receipts.html#receipt-05-x"' in html


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (":where: set = c\n\nN = n\n", "no row where set is 'c'"),
        ("N = m\n", "no key 'm'"),
        ("Got = got\n", "give a format"),
        ("", "names no columns"),
    ],
)
def test_a_table_that_cannot_be_filled_fails_the_build(book, content, says):
    write_metrics("05_x", {"rows": [{"set": "a", "got": 0.5, "n": 3}]}, "cpu", book / "artifacts")
    status, said, _ = build(book, f"```{{measured-table}} 05_x:rows\n{content}```")
    assert status != 0
    assert says in said


def test_a_number_without_a_receipt_fails_the_build(book):
    write_metrics("07_z", {"n": 3}, "cpu", book / "artifacts")
    status, said, _ = build(book, "{measured}`07_z:n`")
    assert status != 0
    assert "07_z has no receipt" in said


def test_api_lists_public_names_and_warns_of_missing_ones(book):
    conf = CONF.replace('"myst_parser"', '"myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"')
    (book / "conf.py").write_text(conf + 'nitpick_ignore_regex = [("py:.*", r"^(?!ragkit\\.).*")]\nnapoleon_use_param = False\n')
    status, said, html = build(book, "```{api} ragkit.errors\n```")
    assert status == 0, said
    assert 'id="ragkit.errors.InputError"' in html
    (book / "halfway.py").write_text('__all__ = ["lost"]\n')
    (book / "conf.py").write_text(f"import sys\nsys.path.insert(0, {str(book)!r})\n" + conf)
    status, said, _ = build(book, "```{api} halfway\n```")
    assert status != 0
    assert "lost" in said


def test_labs_are_laid_out_once_and_orphans_leave(tmp_path):
    (tmp_path / "notebooks").mkdir()
    for name in ("01_a", "02_b"):
        (tmp_path / "notebooks" / f"{name}.py").write_text("# %%\n")
    runs = tmp_path / "artifacts" / "cpu" / "runs"
    runs.mkdir(parents=True)
    (runs / "01_a.ipynb").write_text("{}")
    (runs / "09_gone.ipynb").write_text("{}")
    labs = tmp_path / "book" / "labs"
    labs.mkdir(parents=True)
    (labs / "09_gone.ipynb").write_text("{}")
    assert lay_out_labs("cpu", root=tmp_path) == (["01_a"], ["02_b"])
    assert [path.name for path in labs.iterdir()] == ["01_a.ipynb"]
    before = (labs / "01_a.ipynb").stat().st_mtime_ns
    lay_out_labs("cpu", root=tmp_path)
    assert (labs / "01_a.ipynb").stat().st_mtime_ns == before
    with pytest.raises(ServiceError, match="not run yet: 02_b: make rerun"):
        build_book("cpu", root=tmp_path)


def test_every_page_of_the_contents_exists_and_nothing_is_executed_or_fetched():
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text())
    pages = [contents["root"], *(chapter["file"] for part in contents["parts"] for chapter in part["chapters"])]
    for page in pages:
        source = ROOT / page.replace("book/labs/", "notebooks/").replace(".ipynb", ".py")
        assert source.is_file() or source.with_suffix(".md").is_file(), page
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert config["execute"]["execute_notebooks"] == "off"
    sphinx = config["sphinx"]["config"]
    assert (ROOT / "book" / "_static" / sphinx["mathjax_path"]).is_file()
    assert "http" not in json.dumps(config)


def test_figures_are_opaque_and_repeat(tmp_path):
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    with mpl.rc_context():
        use_book_style()
        for name in ("a", "b"):
            figure = Figure()
            forest(figure.subplots(), [("A4 against A1", 0.1, 0.02, 0.2), ("A4 against A0", 0.0, -0.1, 0.1)])
            figure.savefig(tmp_path / f"{name}.png")
            figure.savefig(tmp_path / f"{name}.svg", metadata={"Date": None})
    pixels = imread(tmp_path / "a.png")
    assert pixels[0, 0].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert pixels.shape[2] == 3 or pixels[..., 3].min() == 1.0
    for kind in ("png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_forest_refuses_what_is_no_interval():
    from matplotlib.figure import Figure

    with pytest.raises(InputError, match="without rows"):
        forest(Figure().subplots(), [])
    with pytest.raises(InputError, match="exceeds high"):
        forest(Figure().subplots(), [("x", 0.0, 0.3, 0.1)])
