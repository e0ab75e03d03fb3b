"""Measured numbers on disk: `artifacts/PROFILE/metrics/NAME.json`, written by a run, read by a page.

Results and timings lie in separate files, since only results must be equal between two runs. Nothing is ever measured here.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragkit.errors import InputError, ServiceError
from ragkit.profile import Profile, load_profile

TIMINGS = ".timings"
RUNNING = "RAGKIT_RUN"  # the name of the run, set by the runner inside its kernel
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")


def write_metrics(
    name: str, values: Mapping[str, Any], profile: str | Path | Profile, artifacts: str | Path = "artifacts"
) -> Path:
    """Write a run's results; floats keep six significant digits, keys are sorted, numpy values are accepted.

    Parameters
    ----------
    name : str
        The run's name, such as ``05_paired_eval``.
    values : mapping
        Nested mappings, lists, strings, booleans, None and finite numbers.
    profile : str, Path or Profile
        Whose folder under `artifacts` receives the file.

    Returns
    -------
    Path
        ``artifacts/PROFILE/metrics/NAME.json``; an equal file is left untouched.

    Raises
    ------
    InputError
        A value is NaN, infinite or no plain data, or the name is no file name or ends in ``.timings``.
    """
    if name.endswith(TIMINGS):
        raise InputError(f"metrics name {name!r} ends in {TIMINGS}: write timings with write_timings")
    return _write(name, values, profile, artifacts)


def write_timings(
    name: str, values: Mapping[str, Any], profile: str | Path | Profile, artifacts: str | Path = "artifacts"
) -> Path:
    """Write what differs between two equal runs (seconds, rates, bytes of memory) to ``metrics/NAME.timings.json``.

    Takes and raises what `write_metrics` does.
    """
    return _write(name + TIMINGS, values, profile, artifacts)


def read_metric(expression: str, profile: str | Path | Profile = "cpu", artifacts: str | Path = "artifacts") -> Any:
    """The value behind ``NAME:key.path`` (list items by their number), such as ``05_paired_eval:primary.delta``.

    Raises
    ------
    InputError
        No such file or key; the message lists what there is.
    """
    name, _, keys = expression.partition(":")
    value: Any = read_metrics_file(metrics_path(name, profile, artifacts))
    rest = keys.strip()
    while rest:
        key, rest = _next_key(value, rest, expression)
        value = value[key]
    return value


def format_metric(expression: str, profile: str | Path | Profile = "cpu", artifacts: str | Path = "artifacts") -> str:
    """The text of ``NAME:key.path:format``; the format is Python's, a pair of numbers becomes ``low to high``.

    Raises
    ------
    InputError
        No such file or key, a float without a format, a format that does not fit, or a value that is no number or text.
    """
    parts = expression.split(":", 2)
    if len(parts) < 2 or not parts[1].strip():
        raise InputError(f"{expression!r} names no value: write NAME:key.path:format")
    value = read_metric(":".join(parts[:2]), profile, artifacts)
    return _formatted(value, parts[2] if len(parts) == 3 else "", expression)


def quote_metric(expression: str, profile: str | Path | Profile = "cpu", artifacts: str | Path = "artifacts") -> str:
    """A number for `display(Markdown(...))`: its text in a live session, the `measured` role in a recorded run.

    So a page prints the timing of the run its receipt describes, and the notebook's bytes do not depend on a clock.
    """
    text = format_metric(expression, profile, artifacts)
    return f"{{measured}}`{expression}`" if os.environ.get(RUNNING) else text


def metrics_path(name: str, profile: str | Path | Profile, artifacts: str | Path) -> Path:
    """``artifacts/PROFILE/metrics/NAME.json``.

    Raises
    ------
    InputError
        The name is no plain file name.
    """
    return profile_folder(profile, artifacts) / "metrics" / f"{checked_name(name)}.json"


def profile_folder(profile: str | Path | Profile, artifacts: str | Path) -> Path:
    """``artifacts/PROFILE``, where a profile's runs leave what they wrote."""
    return Path(artifacts) / load_profile(profile).name


def checked_name(name: str) -> str:
    """The name of a run, if it can be a file's name everywhere.

    Raises
    ------
    InputError
        It is empty or has other characters than letters, digits and ``_ . @ -``.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"run name {name!r} is no file name: use letters, digits and _ . @ -")
    return name


def read_metrics_file(path: Path) -> dict[str, Any]:
    """Read one metrics or receipt file.

    Raises
    ------
    InputError
        It is missing (the message lists its neighbours) or no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        there = ", ".join(sorted(other.stem for other in path.parent.glob("*.json"))) or "none"
        raise InputError(f"{path} does not exist: it is written by a run; there are: {there}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not JSON ({error}): run the notebook that writes it again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} is no JSON object: run the notebook that writes it again")
    return content


def write_text(path: Path, text: str) -> Path:
    """Write a file whole or not at all; an equal file keeps its time, so that nothing downstream is stale.

    Raises
    ------
    ServiceError
        The folder cannot be written or the disk is full.
    """
    content = text.encode("utf-8")
    try:
        if path.is_file() and path.read_bytes() == content:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ServiceError(f"cannot write {path}: {error.strerror or error}; free space or choose another folder") from error
    return path


def as_json(values: Mapping[str, Any]) -> str:
    """Sorted, indented JSON of plain data with its floats rounded to six significant digits.

    Raises
    ------
    InputError
        A value is NaN, infinite or no plain data.
    """
    return json.dumps(_plain(values, ""), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _write(name: str, values: Mapping[str, Any], profile: str | Path | Profile, artifacts: str | Path) -> Path:
    if not isinstance(values, Mapping):
        raise InputError(f"metrics {name}: give a mapping of names to values, got {type(values).__name__}")
    return write_text(metrics_path(name, profile, artifacts), as_json(values))


def _plain(value: Any, place: str) -> Any:
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        value = value.tolist()
    if isinstance(value, Mapping):
        return {_key(key, place): _plain(item, f"{place}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{place}.{number}".lstrip(".")) for number, item in enumerate(value)]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"metric {place or 'value'} is {value}: leave it out, or write None and say why")
        return float(f"{value:.6g}")
    if value is None or isinstance(value, (str, bool, int)):
        return value
    raise InputError(f"metric {place or 'value'} is a {type(value).__name__}: give numbers, texts, lists or mappings")


def _key(key: Any, place: str) -> str:
    if isinstance(key, (str, int)) and not isinstance(key, bool):
        return str(key)
    raise InputError(f"metric {place or 'mapping'} has the key {key!r}: use a text")


def _next_key(value: Any, rest: str, expression: str) -> tuple[Any, str]:
    if isinstance(value, list):
        number, _, after = rest.partition(".")
        if number.isdigit() and int(number) < len(value):
            return int(number), after
        raise InputError(f"{expression!r}: {number!r} is no item of a list of {len(value)}")
    if isinstance(value, dict):
        # A key may itself hold a point ("0.5"): the longest one that fits is meant.
        for key in sorted(value, key=len, reverse=True):
            if rest == key:
                return key, ""
            if rest.startswith(key + "."):
                return key, rest[len(key) + 1 :]
        raise InputError(f"{expression!r}: no key {rest!r}; there are: {', '.join(sorted(value)) or 'none'}")
    raise InputError(f"{expression!r}: {rest!r} asks for a part of a single value")


def _formatted(value: Any, spec: str, expression: str) -> str:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, (int, float)) for item in value):
        return " to ".join(_formatted(item, spec, expression) for item in value)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InputError(f"{expression!r} is {json.dumps(value)[:60]}: only numbers, pairs of numbers and texts can be printed")
    if isinstance(value, float) and not spec:
        raise InputError(f"{expression!r} is a float: give a format such as :.3f")
    try:
        return format(value, spec)
    except ValueError as error:
        raise InputError(f"{expression!r}: the format {spec!r} does not fit {value!r}: {error}") from error
