"""Running a notebook: the same bytes twice, nothing half done, no kernel left behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import nbformat
import psutil
import pytest

import ragkit
from ragkit.errors import InputError, ServiceError
from ragkit.lab import notebook_parameters, pair_notebooks, run_notebook

LAB = """
# %% [markdown]
# # A small lab

# %% tags=["parameters"]
profile: str = "cpu"
artifacts: str = "artifacts"
k: int = 5  # how many | of them = this many
share: float = 0.5
names: list[str] = ["a", "b"]
limit: int | None = None

# %%
import os, sys
from pathlib import Path
from ragkit.lab import quote_metric, show_receipt, write_metrics, write_timings
print(Path.cwd() / "data", object())
print("42%|####      | 5/12 [00:01<00:02,  3.1it/s]\\r", file=sys.stderr)
print("a warning that matters", file=sys.stderr)
text = open("data/facts.txt").read()

# %% mystnb={"image": {"alt": "A rising line"}}
import matplotlib.pyplot as plt
from ragkit.lab import use_book_style
use_book_style()
plt.plot([0, 1], [0, 1]);

# %%
import time
write_metrics("01_small", {"k": k, "letters": len(text)}, profile, artifacts)
write_timings("01_small", {"clock": time.time_ns() % 10**6}, profile, artifacts)
from IPython.display import Markdown, display
display(Markdown(quote_metric("01_small.timings:clock:d", profile, artifacts)))

# %%
show_receipt(profile, used=[{"model": "toy", "weights": "0" * 64}])
"""


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "facts.txt").write_text("fact")
    return tmp_path


def write(repository: Path, name: str, text: str) -> Path:
    path = repository / "notebooks" / f"{name}.py"
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """One notebook run twice; what lay in the artifacts after each."""
    root = tmp_path_factory.mktemp("repository")
    (root / "notebooks").mkdir()
    (root / "data").mkdir()
    (root / "data" / "facts.txt").write_text("fact")
    source = write(root, "01_small", LAB)
    run_notebook(source, "cpu", progress=False)
    first = tree(root / "artifacts")
    run_notebook(source, "cpu", progress=False)
    return root, first, tree(root / "artifacts")


def test_second_run_gives_the_same_bytes_but_for_clocks(two_runs):
    _, first, second = two_runs
    assert first.keys() == second.keys() == {
        "cpu/metrics/01_small.json",
        "cpu/metrics/01_small.timings.json",
        "cpu/receipts/01_small.json",
        "cpu/runs/01_small.ipynb",
    }  # fmt: skip
    assert [name for name in first if first[name] != second[name]] == [
        "cpu/metrics/01_small.timings.json",
        "cpu/receipts/01_small.json",
    ]


def test_executed_notebook_is_clean(two_runs):
    root, first, _ = two_runs
    text = first["cpu/runs/01_small.ipynb"].decode()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert str(root) not in text
    assert str(Path.home()) + "/" not in text
    assert "papermill" not in text
    assert "begin_recording" not in text
    streams = {(o.name, o.text) for cell in notebook.cells for o in cell.get("outputs", []) if o.output_type == "stream"}
    assert streams == {("stdout", "data <object object at 0x…>\n"), ("stderr", "a warning that matters\n")}
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == [1, 2, 3, 4, 5]
    assert notebook.cells[3].metadata == {"mystnb": {"image": {"alt": "A rising line"}}}
    assert notebook.metadata.kernelspec.name == "python3"


def test_default_values_are_not_injected(two_runs):
    assert "injected-parameters" not in two_runs[1]["cpu/runs/01_small.ipynb"].decode()


def test_receipt_says_what_was_read_loaded_and_used(two_runs):
    receipt = json.loads(two_runs[1]["cpu/receipts/01_small.json"])
    assert list(receipt["data"]) == ["data/facts.txt"]
    assert receipt["notebook"]["path"] == "notebooks/01_small.py"
    assert "ragkit.lab.figures" in receipt["package"]
    assert "ragkit.lab.runner" not in receipt["package"]
    assert receipt["models"] == {"toy": {"weights": "0" * 64}}
    assert receipt["libraries"].keys() >= {"matplotlib", "numpy"}
    assert receipt["peak_memory_mib"] > 50
    assert receipt["seconds"] > 0


def test_parameters_reach_the_notebook(repository):
    source = write(repository, "01_small", LAB)
    run_notebook(source, "ci", {"k": 7, "share": 1, "limit": 3}, progress=False)
    values = json.loads((repository / "artifacts/ci/metrics/01_small.json").read_text())
    assert values["k"] == 7
    assert "k = 7" in (repository / "artifacts/ci/runs/01_small.ipynb").read_text()


def test_declared_parameters(repository):
    declared = notebook_parameters(write(repository, "01_small", LAB))
    assert declared["k"] == ("int", 5)
    assert declared["limit"] == ("int | None", None)
    assert list(declared) == ["profile", "artifacts", "k", "share", "names", "limit"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kk": 7}, "no parameter 'kk': choose from profile, artifacts, k"),
        ({"k": "7"}, "k is '7', a str: give int"),
        ({"k": True}, "give int"),
        ({"k": 1.5}, "give int"),
        ({"k": None}, "give int"),
        ({"share": "half"}, "give float"),
        ({"limit": "all"}, "give int | None"),
        ({"names": "a"}, r"give list\[str\]"),
        ({"profile": "ci"}, "the run's own profile"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_runs(repository, given, says):
    source = write(repository, "01_small", LAB)
    with pytest.raises(InputError, match=says.replace("|", r"\|")):
        run_notebook(source, "cpu", given, progress=False)
    assert sorted(path.name for path in repository.iterdir()) == ["data", "notebooks"]


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("k: int = 2 + 3\nj = len('x')", "write name: type = literal"),
        ("import os", "write name: type = literal"),
        ("k: int", "write name: type = literal"),
    ],
)
def test_parameters_that_papermill_would_pass_over_are_refused(repository, cell, says):
    source = write(repository, "01_x", f'# %% tags=["parameters"]\n{cell}\n')
    with pytest.raises(InputError, match=says):
        notebook_parameters(source)


def test_unknown_profile_and_notebook(repository):
    source = write(repository, "01_small", LAB)
    with pytest.raises(InputError, match="unknown profile 'gpu'"):
        run_notebook(source, "gpu")
    with pytest.raises(InputError, match=r"there are: 01_small\.py"):
        run_notebook(repository / "notebooks" / "02_other.py")
    with pytest.raises(InputError, match="percent-format source"):
        run_notebook(repository / "notebooks" / "01_small.ipynb")
    with pytest.raises(InputError, match="no '# %%' cell"):
        run_notebook(write(repository, "03_plain", "x = 1\n"))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("x = 1\n\n# %%\ny = 2\nraise KeyError('lost')", r"code cell 2 failed at line 2 .*raise KeyError.*KeyError: 'lost'"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "the kernel died"),
        ("import sys\nsys.exit(0)", "ended itself before its last cell"),
    ],
)
def test_a_failed_run_keeps_the_good_one(repository, body, says):
    good = write(repository, "01_x", "# %%\nprint('good')\n")
    kept = run_notebook(good, "cpu", progress=False)
    before = tree(repository / "artifacts")
    with pytest.raises(ServiceError, match=says):
        run_notebook(write(repository, "01_x", f"# %%\n{body}\n"), "cpu", progress=False)
    assert tree(repository / "artifacts") == before
    broken = repository / ".ragkit-work" / "cpu-01_x.failed.ipynb"
    assert "begin_recording" not in broken.read_text()
    write(repository, "01_x", "# %%\nprint('good')\n")
    assert run_notebook(good, "cpu", progress=False) == kept
    assert not list((repository / ".ragkit-work").iterdir())


def test_kernel_is_this_interpreter_whatever_is_installed(repository, monkeypatch):
    spec = repository / "share" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(repository / "share"))
    source = write(repository, "01_x", "# %%\nimport sys\nopen('who.txt', 'w').write(sys.executable)\n")
    run_notebook(source, "cpu", progress=False)
    assert (repository / "who.txt").read_text() == sys.executable


def wait_until(true, seconds: float = 20.0) -> bool:
    for _ in range(int(seconds / 0.1)):
        if true():
            return True
        time.sleep(0.1)
    return False


def test_kernel_ends_with_a_killed_runner(repository):
    source = write(repository, "01_x", "# %%\nimport os\nopen('pid', 'w').write(str(os.getpid()))\nwhile True: pass\n")
    code = f"from ragkit.lab import run_notebook; run_notebook({str(source)!r}, progress=False)"
    environment = {**os.environ, "PYTHONPATH": str(Path(ragkit.__file__).parents[1])}
    runner = subprocess.Popen([sys.executable, "-c", code], env=environment)
    pid = repository / "pid"
    assert wait_until(lambda: pid.is_file() and pid.read_text())
    kernel = psutil.Process(int(pid.read_text()))
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert wait_until(lambda: not kernel.is_running() or kernel.status() == psutil.STATUS_ZOMBIE)
    assert not (repository / "artifacts").exists()
    # The next run tidies up what the killed one left.
    run_notebook(write(repository, "01_x", "# %%\n1\n"), "cpu", progress=False)
    assert not list((repository / ".ragkit-work").iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
def test_a_process_ends_with_its_parent(tmp_path):
    child = "from ragkit.lab import end_with_parent; end_with_parent(); print('ready', flush=True); import time; time.sleep(60)"
    parent = (
        f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}]); print(p.pid, flush=True); p.wait()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(ragkit.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-c", parent], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = {process.stdout.readline().strip(), process.stdout.readline().strip()}
    orphan = psutil.Process(int((seen - {"ready"}).pop()))
    process.kill()
    process.wait()
    assert wait_until(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)


def test_pairs_are_stable_and_checked(repository):
    source = write(repository, "01_small", LAB)
    assert pair_notebooks(source.parent, check=True) == [source.with_suffix(".ipynb")]
    assert not source.with_suffix(".ipynb").exists()
    assert pair_notebooks(source.parent) == [source.with_suffix(".ipynb")]
    first = source.with_suffix(".ipynb").read_bytes()
    assert pair_notebooks(source.parent, check=True) == pair_notebooks(source.parent) == []
    notebook = nbformat.reads(first.decode(), as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    ids = [cell.id for cell in notebook.cells]
    source.write_text(source.read_text().replace("# # A small lab", "# # A smaller lab"))
    assert pair_notebooks(source.parent) == [source.with_suffix(".ipynb")]
    changed = [cell.id for cell in nbformat.read(source.with_suffix(".ipynb"), as_version=4).cells]
    assert [a == b for a, b in zip(ids, changed, strict=True)] == [False] + [True] * (len(ids) - 1)
