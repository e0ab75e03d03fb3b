"""An executed notebook made comparable: equal results give equal bytes, whoever ran it, when and where.

Source texts and results are never changed; clocks, paths, addresses, progress bars and random ids are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

_WIDGET = "application/vnd.jupyter.widget-view+json"
_TEMPORARY_CELL = re.compile(r"(?:/[^\s:\"'<>]*)?/ipykernel_\d+/\d+\.py")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_PROGRESS = re.compile(r"\d+%\||\d+(?:\.\d+)?[kMG]?(?:it|B|s)? \[\d+:\d\d|\x1b\[A")
_KEPT_CELL_METADATA = ("tags", "mystnb", "editable", "slideshow")
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


def normalise_notebook(notebook: NotebookNode, root: Path) -> NotebookNode:
    """A copy without clocks, durations, absolute paths, memory addresses, progress bars and random cell ids.

    Parameters
    ----------
    notebook : NotebookNode
        An executed notebook, nbformat 4.
    root : Path
        The folder the notebook ran in; its path is cut off, the home folder becomes ``~``.
    """
    result = nbformat.v4.new_notebook(metadata={"kernelspec": KERNELSPEC, "language_info": {"name": "python"}})
    count = 0
    for cell in notebook.cells:
        clean = _cell(cell)
        if cell.cell_type == "code":
            ran = cell.get("execution_count") is not None
            count += ran
            clean.execution_count = count if ran else None
            clean.outputs = _outputs(cell.outputs, clean.execution_count, _shortener(root))
        result.cells.append(clean)
    return with_stable_ids(result)


def with_stable_ids(notebook: NotebookNode) -> NotebookNode:
    """The notebook with ids drawn from each cell's own text, so that a change to one cell changes one id."""
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        key = f"{cell.cell_type}\n{cell.source}"
        seen[key] = seen.get(key, 0) + 1
        cell["id"] = hashlib.sha256(f"{seen[key]}\n{key}".encode()).hexdigest()[:12]
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def as_text(notebook: NotebookNode) -> str:
    """The notebook's JSON with sorted keys and one newline at its end."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def _cell(cell: NotebookNode) -> NotebookNode:
    make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell, "raw": nbformat.v4.new_raw_cell}
    kept = {key: cell.metadata[key] for key in _KEPT_CELL_METADATA if cell.metadata.get(key)}
    return make[cell.cell_type](cell.source, metadata=kept)


def _outputs(outputs: Iterable[NotebookNode], count: int | None, shorten: Any) -> list[NotebookNode]:
    kept: list[NotebookNode] = []
    for output in outputs:
        kind = output.output_type
        if kind == "stream":
            text = _without_progress(output.text) if output.name == "stderr" else _last_of_each_line(output.text)
            if not text:
                continue
            if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
                kept[-1].text += shorten(text)
            else:
                kept.append(nbformat.v4.new_output("stream", name=output.name, text=shorten(text)))
        elif kind == "error":
            trace = [shorten(line) for line in output.traceback]
            kept.append(nbformat.v4.new_output("error", ename=output.ename, evalue=shorten(output.evalue), traceback=trace))
        elif _WIDGET not in output.data:  # a live progress bar has no meaning on a page
            data = {mime: shorten(value) if mime.startswith("text/") else value for mime, value in output.data.items()}
            extra = {"execution_count": count} if kind == "execute_result" else {}
            kept.append(nbformat.v4.new_output(kind, data=data, metadata=output.get("metadata", {}), **extra))
    return kept


def _without_progress(text: str) -> str:
    lines = [line for line in text.splitlines(keepends=True) if "\r" not in line.rstrip("\r\n") and not _PROGRESS.search(line)]
    kept = "".join(lines)
    return kept if kept.strip() else ""


def _last_of_each_line(text: str) -> str:
    return re.sub(r"[^\n]*\r(?!\n)(?=[^\n])", "", text)


def _shortener(root: Path) -> Any:
    inside = re.compile(re.escape(str(root)) + r"/(?=[\w.])")
    itself = re.compile(re.escape(str(root)) + r"(?![\w.-])")
    home = re.compile(re.escape(str(Path.home())) + r"/(?=[\w.])")

    def shorten(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        text = home.sub("~/", itself.sub(".", inside.sub("", text)))
        return _ADDRESS.sub("at 0x…", _TEMPORARY_CELL.sub("<cell>", text))

    return shorten
