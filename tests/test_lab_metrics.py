"""Numbers on disk: what is written comes back, is plain, and never lies."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragkit.errors import InputError, ServiceError
from ragkit.lab import format_metric, quote_metric, read_metric, write_metrics, write_timings

VALUES = {
    "primary": {"delta": 0.123456789, "interval": [-0.05, 0.301], "verdict": "helps", "gains": 12},
    "recall": {"0.5": 0.75, "hit@5": 1.0},
    "worked": True,
    "nothing": None,
}


@pytest.fixture
def artifacts(tmp_path):
    write_metrics("05_paired_eval", VALUES, "cpu", tmp_path)
    return tmp_path


def test_file_is_sorted_rounded_json(artifacts):
    text = (artifacts / "cpu" / "metrics" / "05_paired_eval.json").read_text()
    assert json.loads(text)["primary"]["delta"] == 0.123457
    assert text.index('"nothing"') < text.index('"primary"') < text.index('"worked"')


def test_timings_lie_apart(artifacts):
    path = write_timings("05_paired_eval", {"seconds": 3.25}, "cpu", artifacts)
    assert path.name == "05_paired_eval.timings.json"
    assert read_metric("05_paired_eval.timings:seconds", "cpu", artifacts) == 3.25
    with pytest.raises(InputError, match="write_timings"):
        write_metrics("05_paired_eval.timings", {}, "cpu", artifacts)


def test_equal_values_leave_the_file_untouched(artifacts):
    path = artifacts / "cpu" / "metrics" / "05_paired_eval.json"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    write_metrics("05_paired_eval", dict(reversed(VALUES.items())), "cpu", artifacts)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_numpy_values_are_plain(tmp_path):
    values = {"f": np.float32(0.5), "i": np.int64(7), "b": np.bool_(True), "a": np.arange(3), "t": (1, 2.5)}
    path = write_metrics("x", values, "cpu", tmp_path)
    assert json.loads(path.read_text()) == {"f": 0.5, "i": 7, "b": True, "a": [0, 1, 2], "t": [1, 2.5]}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), np.float64("nan"), [1.0, float("-inf")], {"x": float("nan")}])
def test_not_a_number_is_refused_and_nothing_is_written(tmp_path, bad):
    with pytest.raises(InputError, match="outer"):
        write_metrics("x", {"outer": bad}, "cpu", tmp_path)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("bad", [{1.5: 1}, {None: 1}, {"x": object()}, {"x": {1, 2}}, {"x": b"bytes"}])
def test_what_is_no_plain_data_is_refused(tmp_path, bad):
    with pytest.raises(InputError):
        write_metrics("x", bad, "cpu", tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x\0"])
def test_a_name_cannot_leave_its_folder(tmp_path, name):
    with pytest.raises(InputError, match="file name"):
        write_metrics(name, {}, "cpu", tmp_path)


def test_unwritable_folder_is_named(tmp_path):
    (tmp_path / "cpu").write_text("a file where a folder should be")
    with pytest.raises(ServiceError, match=r"cannot write .*metrics"):
        write_metrics("x", {}, "cpu", tmp_path)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_six_significant_digits_survive(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("m")
    write_metrics("x", {"v": value}, "cpu", folder)
    assert math.isclose(read_metric("x:v", "cpu", folder), value, rel_tol=5.1e-6)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("05_paired_eval:primary.delta:+.3f", "+0.123"),
        ("05_paired_eval:primary.delta:.1%", "12.3%"),
        ("05_paired_eval:primary.interval:+.2f", "-0.05 to +0.30"),
        ("05_paired_eval:primary.interval.1:.1f", "0.3"),
        ("05_paired_eval:primary.gains", "12"),
        ("05_paired_eval:primary.gains:>4", "  12"),
        ("05_paired_eval:primary.verdict", "helps"),
        ("05_paired_eval:recall.0.5:.2f", "0.75"),
        ("05_paired_eval:recall.hit@5:.0f", "1"),
    ],
)
def test_a_number_as_a_page_prints_it(artifacts, expression, text):
    assert format_metric(expression, "cpu", artifacts) == text


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("05_paired_eval:primary.delta", "give a format"),
        ("05_paired_eval:primary.delta:d", "does not fit"),
        ("05_paired_eval:primary.verdict:.3f", "does not fit"),
        ("05_paired_eval:primary.missing:.3f", "delta, gains"),
        ("05_paired_eval:primary.interval.2:.3f", "no item"),
        ("05_paired_eval:primary.delta.more:.3f", "single value"),
        ("05_paired_eval:worked", "true"),
        ("05_paired_eval:nothing:.3f", "null"),
        ("05_paired_eval:primary:.3f", "only numbers"),
        ("05_paired_eval", "names no value"),
        ("06_other:x:.3f", "there are: 05_paired_eval"),
    ],
)
def test_what_cannot_be_printed_says_why(artifacts, expression, says):
    with pytest.raises(InputError, match=says):
        format_metric(expression, "cpu", artifacts)


def test_a_file_that_is_no_json_object_is_named(artifacts):
    for content in ("{", "[1]", "\xff"):
        (artifacts / "cpu" / "metrics" / "x.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(InputError, match=r"x\.json is no"):
            read_metric("x:a", "cpu", artifacts)


def test_a_recorded_run_quotes_the_role_and_still_checks_it(artifacts, monkeypatch):
    assert quote_metric("05_paired_eval:primary.gains", "cpu", artifacts) == "12"
    monkeypatch.setenv("RAGKIT_RUN", "05_paired_eval")
    assert quote_metric("05_paired_eval:primary.gains", "cpu", artifacts) == "{measured}`05_paired_eval:primary.gains`"
    with pytest.raises(InputError):
        quote_metric("05_paired_eval:primary.lost", "cpu", artifacts)
