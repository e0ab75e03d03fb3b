"""The lab: running a notebook, what a run leaves behind (metrics, receipts), figures, and the numbers on a page.

This room never computes a result of its own and never puts a clock or a machine's name into what is compared between runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragkit.lab.build import build_book, lay_out_labs
    from ragkit.lab.figures import PALETTE, forest, use_book_style
    from ragkit.lab.metrics import format_metric, quote_metric, read_metric, write_metrics, write_timings
    from ragkit.lab.normalise import normalise_notebook
    from ragkit.lab.processes import end_with_parent, peak_memory_mib
    from ragkit.lab.receipts import Receipt, machine, show_receipt, write_receipt
    from ragkit.lab.runner import notebook_parameters, pair_notebooks, run_notebook

_WHERE = {
    "PALETTE": "figures",
    "Receipt": "receipts",
    "build_book": "build",
    "end_with_parent": "processes",
    "forest": "figures",
    "format_metric": "metrics",
    "lay_out_labs": "build",
    "machine": "receipts",
    "normalise_notebook": "normalise",
    "notebook_parameters": "runner",
    "pair_notebooks": "runner",
    "peak_memory_mib": "processes",
    "quote_metric": "metrics",
    "read_metric": "metrics",
    "run_notebook": "runner",
    "show_receipt": "receipts",
    "use_book_style": "figures",
    "write_metrics": "metrics",
    "write_receipt": "receipts",
    "write_timings": "metrics",
}

__all__ = [
    "PALETTE",
    "Receipt",
    "build_book",
    "end_with_parent",
    "forest",
    "format_metric",
    "lay_out_labs",
    "machine",
    "normalise_notebook",
    "notebook_parameters",
    "pair_notebooks",
    "peak_memory_mib",
    "quote_metric",
    "read_metric",
    "run_notebook",
    "show_receipt",
    "use_book_style",
    "write_metrics",
    "write_receipt",
    "write_timings",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"ragkit.lab.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
