"""The frame: rooms keep to their floors, both environments agree, stages depend on what they load, derived files are fresh."""

import ast
import json
import re
from collections import Counter

import pytest
import yaml

from ragkit.corpus import check_tasks, read_snapshot, read_tasks
from ragkit.errors import InputError
from ragkit.evaluation.benchmark import is_frozen, question_overlap, read_freeze, same_questions, task_articles
from ragkit.lab import notebook_parameters, pair_notebooks
from ragkit.lab.receipts import digest_of
from ragkit.profile import load_profile

LEAST = {"recency": 50, "reason": 40, "multi-article": 25, "unanswerable": 60}  # at least so many tasks of these kinds
FLOORS = {
    "errors": 0, "records": 1, "profile": 1, "vram": 1, "conjunction": 1,
    "corpus": 2, "models": 2, "lab": 2,
    "retrieval": 3, "answering": 4, "evaluation": 5,
    "cli": 6, "stages": 6, "rerun": 6, "verify": 6,
}  # fmt: skip


def imported_rooms(tree: ast.Module) -> set[str]:
    """Rooms of ragkit that a module imports at run time (imports for type checking alone do not count)."""
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    rooms = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ragkit."):
            rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            rooms |= {name.name.split(".")[1] for name in node.names if name.name.startswith("ragkit.")}
    return rooms


def test_a_room_imports_only_from_lower_floors_and_itself(root):
    package = root / "src" / "ragkit"
    wrong = []
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in imported_rooms(ast.parse(path.read_text(encoding="utf-8"))) - {room}:
            if FLOORS[other] >= FLOORS[room] and FLOORS[room] < 6:
                wrong.append(f"{path.name} of {room} imports {other}")
    assert wrong == []


def test_conda_and_make_install_the_same(root):
    conda = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    pip = next(part["pip"] for part in conda if isinstance(part, dict))
    make = (root / "Makefile").read_text(encoding="utf-8")
    assert "-c constraints.txt" in pip
    assert "-c constraints.txt" in make
    extras = re.search(r"-e '?\"?(\.\[[^\]]+\])", make)
    assert extras is not None
    assert f"-e {extras.group(1)}" in pip
    assert "python=3.11" in conda


def test_every_direct_dependency_is_pinned(root):
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    wanted = [*project["dependencies"], *project["optional-dependencies"]["book"], *project["optional-dependencies"]["test"]]
    names = {re.split(r"[<>=\[ ]", name)[0].lower().replace("_", "-") for name in wanted}
    assert names - pinned == set()


def stages(root) -> dict[str, dict]:
    return yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def receipt_of(root, stage: str) -> list[str]:
    """Names of the receipts that a group of stages left for the published profile."""
    if stage == "eval":
        matrix = stages(root)[stage]["matrix"]
        return [f"eval_{split}_{arm}" for split in matrix["split"] for arm in matrix["arm"]]
    return ["index"] if stage == "index" else [path.stem for path in (root / "notebooks").glob(f"{stage[4:]}_*.py")]


def modules_of(root, names: list[str]) -> set[str]:
    """Files of the modules that the runs of these receipts loaded, as their receipts list them."""
    found = set()
    for name in names:
        receipt = json.loads((root / "artifacts" / "cpu" / "receipts" / f"{name}.json").read_text(encoding="utf-8"))
        for module in receipt["package"]:
            file = root / "src" / (module.replace(".", "/") + ".py")
            found.add((file if file.is_file() else file.with_suffix("") / "__init__.py").relative_to(root).as_posix())
    return found


def test_stages_depend_on_exactly_the_modules_they_load(root):
    for stage, definition in stages(root).items():
        if stage == "snapshot":
            continue
        declared = {dep for dep in definition["deps"] if dep.startswith("src/")}
        assert declared == modules_of(root, receipt_of(root, stage)), f"dvc.yaml, stage {stage}: mend its list of src/ files"
        assert "constraints.txt" in definition["deps"]
        assert "profiles/${item.profile}.yaml" in definition["deps"]


def test_every_notebook_has_a_stage_and_a_stored_run(root):
    numbers = {path.name[:2] for path in (root / "notebooks").glob("[0-9][0-9]_*.py")}
    assert numbers == {stage[4:] for stage in stages(root) if stage.startswith("lab-")}
    for path in (root / "notebooks").glob("[0-9][0-9]_*.py"):
        assert (root / "artifacts" / "cpu" / "runs" / f"{path.stem}.ipynb").is_file(), f"{path.stem} has not been run: make rerun"


def test_stored_runs_belong_to_these_sources(root):
    """The page's notebook, tasks, snapshot and profile are the ones in the tree: their receipts' digests say so."""
    for path in sorted((root / "artifacts" / "cpu" / "receipts").glob("*.json")):
        receipt = json.loads(path.read_text(encoding="utf-8"))
        if path.stem.startswith("verify_"):
            continue
        if receipt["notebook"]:
            assert receipt["notebook"]["sha256"] == digest_of(root / receipt["notebook"]["path"]), path.stem
        assert receipt["profile"]["digest"] == load_profile("cpu").digest, path.stem
        for file in ("data/articles_snapshot.parquet", "data/tasks/sda_qualitative_tasks.jsonl"):
            if file in receipt["data"]:
                assert receipt["data"][file] == digest_of(root / file), f"{path.stem}: {file}"


def test_pairs_agree_with_their_sources(root):
    assert pair_notebooks(root / "notebooks", check=True) == []


def test_notebooks_take_profile_and_artifacts(root):
    for path in (root / "notebooks").glob("[0-9]*_*.py"):
        assert {"profile", "artifacts"} <= set(notebook_parameters(path)), path.name


def test_the_snapshot_is_the_articles(root):
    assert read_snapshot(root / "data/articles_snapshot.parquet").digest == read_snapshot(root / "data/articles").digest


def test_the_collection_is_large_enough_to_measure_on(root):
    articles = read_snapshot(root / "data/articles").articles
    words = [len(article.text.split()) for article in articles]
    assert len(articles) >= 160
    assert min(words) >= 120
    assert (sum(n > 400 for n in words) >= 60, sum(n > 800 for n in words) >= 20) == (True, True)
    topics = Counter(
        yaml.safe_load(path.read_text(encoding="utf-8").split("---\n", 2)[1])["topic"]
        for path in (root / "data/articles").glob("*.md")
    )
    assert sum(topics[topic] for topic in ("operations", "debris", "launch", "crew", "cargo")) >= 80
    assert topics["lessons"] >= 50


def test_every_task_holds_against_the_articles_and_sides_share_none(root):
    tasks = read_tasks(root / "data/tasks/sda_qualitative_tasks.jsonl")
    articles = read_snapshot(root / "data/articles").articles
    assert check_tasks(tasks, articles) == []
    assert same_questions(tasks) == []
    kinds = Counter(task.kind for task in tasks)
    assert sum(task.answerable for task in tasks) >= 200
    assert all(kinds[kind] >= least for kind, least in LEAST.items()), kinds
    assert all(task.difficulty for task in tasks)
    assert all(task.why and task.near for task in tasks if not task.answerable)
    texts = {article.article_id: article.text for article in articles}
    overlaps = [question_overlap(task, texts) for task in tasks if task.golds]
    assert sum(not overlap.shared for overlap in overlaps) >= len(overlaps) / 3
    sides: dict[str, set[str]] = {}
    for task in tasks:
        for article in task_articles(task):
            sides.setdefault(article, set()).add(task.split)
    assert {article: split for article, split in sides.items() if len(split) > 1} == {}


def test_the_test_split_is_the_frozen_one(root):
    freeze = read_freeze(root / "data/tasks/frozen.json")
    assert is_frozen(read_tasks(root / "data/tasks/sda_qualitative_tasks.jsonl"), freeze)
    assert (freeze["answerable"] >= 150, freeze["unanswerable"] >= 45) == (True, True)


def test_confusable_pairs_name_articles(root):
    known = {article.article_id for article in read_snapshot(root / "data/articles").articles}
    pairs = yaml.safe_load((root / "data/confusable_articles.yaml").read_text(encoding="utf-8"))
    assert len(pairs) >= 15
    assert {key for pair in pairs for key in pair[:2]} <= known


def test_every_bundled_article_names_its_page(root):
    for article in read_snapshot(root / "data/articles").articles:
        assert article.url is not None
        assert article.url.startswith(("https://", "http://")), article.article_id


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty or not a mapping"),
        ("embedder: {model: m}", "reader"),
        ("embedder: {model: m}\nreader: {model: r}\nchunking: {size: 32, overlap: 32}", "must be below"),
        ("embedder: {model: m}\nreader: {model: r, backend: openai}", "needs a base_url"),
        ("embedder: {model: m}\nreader: {model: r}\nretrieval: {k: 0}", "retrieval.k"),
        ("embedder: {model: m}\nreader: {model: r}\nevaluation: {arms: [A99]}", "unknown arm 'A99'"),
        ("embedder: {model: m, colour: red}\nreader: {model: r}", "colour"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_place(tmp_path, text, says):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(says)):
        load_profile(path)


def test_an_unknown_profile_lists_those_there_are():
    with pytest.raises(InputError, match=r"choose from .*baseline-16gb.*ci.*cpu"):
        load_profile("gpu-cluster")


def test_equal_profiles_have_equal_digests(tmp_path):
    spelled = tmp_path / "cpu.yaml"
    spelled.write_text(
        "reader: {model: qwen2.5-coder-1.5b-instruct}\nembedder:\n  model: all-MiniLM-L6-v2\nchunking: {size: 256}\n", "utf-8"
    )
    assert load_profile(spelled).digest == load_profile("cpu").digest
