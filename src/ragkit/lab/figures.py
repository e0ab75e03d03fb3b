"""Figures of the book: opaque and light on either theme, told apart without colour vision, the same bytes for the same data.

Only style and one plot of the field live here; nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008), darkest first; their yellow is left out, since it vanishes on white.
PALETTE = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "orange": "#E69F00",
    "black": "#000000",
}


def use_book_style() -> None:
    """Set matplotlib's defaults for the session: white ground, Okabe and Ito's colours with line styles, fixed ids and size."""
    import matplotlib as mpl
    from cycler import cycler

    styles = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-"]
    mpl.rcParams.update(
        {
            "axes.axisbelow": True,
            "axes.edgecolor": "#444444",
            "axes.facecolor": "white",
            "axes.grid": True,
            "axes.labelsize": 11,
            "axes.prop_cycle": cycler(color=list(PALETTE.values())) + cycler(linestyle=styles),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": 12,
            "figure.constrained_layout.use": True,
            "figure.dpi": 120,
            "figure.facecolor": "white",
            "figure.figsize": (7.0, 4.0),
            "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same letters
            "font.size": 11,
            "grid.color": "#DDDDDD",
            "legend.framealpha": 1.0,
            "lines.linewidth": 1.8,
            "savefig.dpi": 120,
            "savefig.facecolor": "white",
            "savefig.transparent": False,
            "svg.hashsalt": "ragkit",
        }
    )


def forest(ax: Axes, rows: Sequence[tuple[str, float, float, float]], label: str = "difference", unit: float = 1.0) -> None:
    """Draw differences with their intervals, one row each, first row on top, and the line of no difference.

    Parameters
    ----------
    ax : Axes
        Drawn upon.
    rows : sequence of (name, difference, low, high)
        In the data's own unit; ``low <= difference <= high`` is not required (a score interval need not hold its estimate).
    label : str
        The axis's name, with its unit.
    unit : float
        Values are multiplied by it (100 for percentage points).

    Raises
    ------
    ValueError
        No rows, or a row whose low exceeds its high.
    """
    from ragkit.errors import InputError

    if not rows:
        raise InputError("forest plot without rows: give (name, difference, low, high)")
    for place, (name, difference, low, high) in enumerate(rows):
        if low > high:
            raise InputError(f"forest plot row {name!r}: low {low} exceeds high {high}")
        clear = low > 0 or high < 0  # filled: the interval excludes zero; hollow: it does not
        style: dict[str, Any] = {"color": PALETTE["blue"] if clear else PALETTE["vermillion"], "linestyle": "-"}
        ax.plot([low * unit, high * unit], [place, place], **style)
        ax.plot([difference * unit], [place], "o", color=style["color"], markerfacecolor=style["color"] if clear else "white")
    ax.axvline(0.0, color=PALETTE["black"], linewidth=1.0, linestyle="-")
    ax.set_yticks(range(len(rows)), [row[0] for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(label)
