"""A Sphinx extension: pages print numbers and tables that a run measured, linked to its receipt, and the package's reference.

A missing value, a bad format or a missing receipt is a warning, so a strict build fails. Nothing is computed or guessed.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from ragkit.errors import InputError, RagkitError
from ragkit.lab.metrics import format_metric, metrics_path, profile_folder, read_metric
from ragkit.lab.receipts import Receipt, read_receipt
from ragkit.profile import Profile, load_profile

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_log = logging.getLogger(__name__)
NOT_RUN = "not measured yet on this machine"


class MeasuredRole(SphinxRole):
    """The role ``measured``, as in ``{measured}`05_paired_eval:primary.delta:+.3f```: `format_metric`'s text, linked."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Print the number, or warn and print a mark that no reader can take for one."""
        profile, artifacts = _published(self.env)
        name = self.text.partition(":")[0]
        try:
            self.env.note_dependency(str(metrics_path(name, profile, artifacts).resolve()))
            text = format_metric(self.text, profile, artifacts)
            receipt = _receipt_of(name, profile, artifacts)
        except InputError as error:
            _log.warning("measured: %s", error, location=self.get_location(), type="ragkit", subtype="measured")
            return [nodes.strong(self.rawtext, f"[no value: {self.text}]", classes=["missing-measurement"])], []
        link = addnodes.pending_xref(
            self.rawtext,
            refdomain="std",
            reftype="ref",
            reftarget=_label(receipt),
            refexplicit=True,
            refwarn=True,
            refdoc=self.env.docname,
        )
        link += nodes.inline(self.rawtext, text)
        self.set_source_info(link)
        return [nodes.inline(self.rawtext, "", link, classes=["measured"])], []


class MeasuredTableDirective(SphinxDirective):
    """The directive ``measured-table``: a list of mappings that a run stored, such as ``reproduced:rows``, one row each.

    Its content is one line a column, ``Heading = key`` or ``Heading = key:format``; option ``where`` is ``key = text``, which a
    row must meet. A row that lacks a key, a float without a format and an empty table are warnings.
    """

    required_arguments = 1
    option_spec: ClassVar = {"where": directives.unchanged}
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Print the table and a line that links to the receipt, or warn."""
        profile, artifacts = _published(self.env)
        expression = self.arguments[0]
        name = expression.partition(":")[0]
        try:
            self.env.note_dependency(str(metrics_path(name, profile, artifacts).resolve()))
            table = self._table(expression, read_metric(expression, profile, artifacts), profile, artifacts)
            receipt = _receipt_of(name, profile, artifacts)
        except InputError as error:
            _log.warning("measured-table: %s", error, location=self.get_location(), type="ragkit", subtype="measured")
            return [nodes.paragraph("", "", nodes.strong("", f"[no table: {expression}]", classes=["missing-measurement"]))]
        link = addnodes.pending_xref(
            "", refdomain="std", reftype="ref", reftarget=_label(receipt), refexplicit=True, refwarn=True, refdoc=self.env.docname
        )
        link += nodes.inline("", "The receipt of this run")
        self.set_source_info(link)
        return [table, nodes.paragraph("", "", link)]

    def _table(self, expression: str, rows: Any, profile: Profile, artifacts: Path) -> nodes.table:
        columns, where = _pairs(self.content), _pairs([self.options.get("where", "")])
        if not columns:
            raise InputError(f"{expression!r} names no columns: write lines such as Got = got:.4f")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError(f"{expression!r} is no list of mappings")
        kept = [place for place, row in enumerate(rows) if all(str(row.get(key)) == text for key, text in where)]
        if not kept:
            raise InputError(f"{expression!r} has no row where {' and '.join(f'{key} is {text!r}' for key, text in where)}")
        return _table(
            [heading for heading, _ in columns],
            [[_cell(f"{expression}.{place}.{key}", profile, artifacts) for _, key in columns] for place in kept],
        )


def _pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    parted = (line.partition("=") for line in lines if line.strip())
    return [(left.strip(), right.strip()) for left, _, right in parted]


def _cell(expression: str, profile: Profile, artifacts: Path) -> str:
    name, keys, *_ = expression.split(":", 2)
    value = read_metric(f"{name}:{keys}", profile, artifacts)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return format_metric(expression, profile, artifacts)


class ReceiptDirective(SphinxDirective):
    """The directive ``receipt``: the short receipt of one run of the published profile, linked to the whole one."""

    required_arguments = 1
    has_content = True  # what a reader sees where this directive is unknown

    def run(self) -> list[nodes.Node]:
        """Read the receipt, or warn."""
        profile, artifacts = _published(self.env)
        name = self.arguments[0]
        path = profile_folder(profile, artifacts) / "receipts" / f"{name}.json"
        self.env.note_dependency(str(path.resolve()))
        try:
            receipt = read_receipt(path)
        except RagkitError as error:
            _log.warning("receipt: %s", error, location=self.get_location(), type="ragkit", subtype="receipt")
            return []
        link = addnodes.pending_xref(
            "", refdomain="std", reftype="ref", reftarget=_label(name), refexplicit=True, refwarn=True, refdoc=self.env.docname
        )
        link += nodes.inline("", "with every digest")
        self.set_source_info(link)
        return [_field_list([*_short(receipt), ("Receipt", [link])])]


class ReceiptsDirective(SphinxDirective):
    """The directive ``receipts``: one section for each run of the published profile, which ``measured`` links to."""

    def run(self) -> list[nodes.Node]:
        """Read every receipt there is; new ones appear at the next build."""
        self.env.note_reread()
        profile, artifacts = _published(self.env)
        sections: list[nodes.Node] = []
        for path in sorted((profile_folder(profile, artifacts) / "receipts").glob("*.json")):
            try:
                receipt = read_receipt(path)
            except RagkitError as error:
                _log.warning("receipts: %s", error, location=self.get_location(), type="ragkit", subtype="receipt")
                continue
            sections.append(self._section(receipt))
        if sections:
            return sections
        return [nodes.paragraph("", f"The profile {profile.name}: {NOT_RUN}.")]

    def _section(self, receipt: Receipt) -> nodes.section:
        label = _label(receipt.name)
        anchor = nodes.make_id(label)
        self.env.domains["std"].note_hyperlink_target(label, self.env.docname, anchor, receipt.name)
        section = nodes.section("", nodes.title("", receipt.name), ids=[anchor], names=[label])
        section += _field_list(_short(receipt))
        section += _digests(receipt)
        return section


class ProfilesDirective(SphinxDirective):
    """The directive ``profiles``: every profile, its models, and whether it has been run here."""

    def run(self) -> list[nodes.Node]:
        """Read `profiles/*.yaml` and count the receipts of each."""
        self.env.note_reread()
        _, artifacts = _published(self.env)
        rows = []
        for path in sorted(Path(self.env.srcdir, "profiles").glob("*.yaml")):
            self.env.note_dependency(str(path))
            profile = load_profile(path)
            receipts = [read_receipt(file) for file in sorted((profile_folder(profile, artifacts) / "receipts").glob("*.json"))]
            # A receipt of other choices under the same name is not a run of this profile.
            current = [receipt for receipt in receipts if receipt.profile["digest"] == profile.digest]
            last = max((receipt.started for receipt in current), default="")
            state = f"{len(current)} run{'s' * (len(current) > 1)}, the last on {last[:10]}" if current else NOT_RUN
            rows.append((profile.name, profile.embedder.model, profile.reader.model, state))
        return [_table(("Profile", "Embedder", "Reader", "Measured"), rows)]


class ApiDirective(SphinxDirective):
    """The directive ``api``: documents each public name of one module or package, in alphabetical order."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Hand one autodoc directive for each name to the parser."""
        module = import_module(self.arguments[0])
        lines = ["```{eval-rst}"]
        for name in public_names(module):
            try:
                lines += [*_autodoc(f"{module.__name__}.{name}", getattr(module, name)), ""]
            except (AttributeError, ImportError) as error:
                _log.warning("api: %s", error, location=self.get_location(), type="ragkit", subtype="api")
        source = self.get_source_info()[0]
        holder = nodes.container()
        self.state.nested_parse(StringList([*lines, "```"], source), self.content_offset, holder)
        return holder.children


def public_names(module: Any) -> list[str]:
    """What a module offers: its ``__all__``, else the classes and functions written in it without a leading underscore."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the role, the directives and their settings (the published profile, the artifacts' folder)."""
    app.add_config_value("ragkit_published_profile", "cpu", "env", str)
    app.add_config_value("ragkit_artifacts", "artifacts", "env", str)
    app.add_role("measured", MeasuredRole())
    app.add_directive("measured-table", MeasuredTableDirective)
    app.add_directive("receipt", ReceiptDirective)
    app.add_directive("receipts", ReceiptsDirective)
    app.add_directive("profiles", ProfilesDirective)
    app.add_directive("api", ApiDirective)
    app.connect("missing-reference", _plain_if_private)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _plain_if_private(app: Sphinx, env: BuildEnvironment, node: nodes.Element, text: nodes.Node) -> nodes.Node | None:
    # A signature may name a type that a room keeps to itself: shown, not linked. A name that does not exist still warns.
    module, _, name = str(node.get("reftarget", "")).rpartition(".")
    if node.get("refdomain") != "py" or not module.startswith("ragkit."):
        return None
    try:
        return text if hasattr(import_module(module), name) else None
    except ImportError:
        return None


def _published(env: BuildEnvironment) -> tuple[Profile, Path]:
    chosen = env.config.ragkit_published_profile
    local = Path(env.srcdir, "profiles", f"{chosen}.yaml")
    return load_profile(local if local.is_file() else chosen), Path(env.srcdir, env.config.ragkit_artifacts)


def _receipt_of(name: str, profile: Profile, artifacts: Path) -> str:
    # 05_paired_eval.timings belongs to the run 05_paired_eval: the longest receipt's name that it begins with.
    folder = profile_folder(profile, artifacts) / "receipts"
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        candidate = ".".join(parts[:count])
        if (folder / f"{candidate}.json").is_file():
            return candidate
    raise InputError(f"{name} has no receipt in {folder}: a number without a run behind it is not printed")


def _label(name: str) -> str:
    return f"receipt-{name}".lower()


def _short(receipt: Receipt) -> list[tuple[str, list[nodes.Node]]]:
    machine = receipt.machine
    gpu = machine["gpu"]
    card = f"{gpu['name']}, {gpu['memory_mib']} MiB, driver {gpu['driver']}" if gpu else "none; nothing here was measured on one"
    models = [f"{name} ({_short_identity(identity)})" for name, identity in receipt.models.items()]
    rows = [
        ("Ran", receipt.notebook["path"] if receipt.notebook else receipt.name),
        ("Profile", receipt.profile["name"]),
        ("Models", "; ".join(models) or "none"),
        ("CPU", f"{machine['cpu']}, {machine['logical_cores']} logical cores, {machine['memory_gib']} GiB"),
        ("GPU", card),
        ("When", receipt.started.replace("T", " ").replace("Z", " UTC")),
        ("Took", _duration(receipt.seconds)),
        ("Peak memory", f"{receipt.peak_memory_mib} MiB"),
        (
            "Software",
            ", ".join([f"Python {machine['python']}", *(f"{name} {number}" for name, number in receipt.libraries.items())]),
        ),
    ]
    return [(name, [nodes.Text(text)]) for name, text in rows]


def _short_identity(identity: Any) -> str:
    weights = identity.get("weights") if isinstance(identity, dict) else None
    return f"weights {str(weights)[:12]}…" if weights else "served; weights not hashed here"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _digests(receipt: Receipt) -> nodes.Node:
    rows: list[tuple[str, str]] = []
    if receipt.notebook:
        rows.append((receipt.notebook["path"], receipt.notebook["sha256"]))
    rows.append((f"profile {receipt.profile['name']}", receipt.profile["digest"]))
    if receipt.constraints:
        rows.append(("constraints.txt", receipt.constraints))
    rows += receipt.data.items()
    rows += [(name, str(identity.get("weights"))) for name, identity in receipt.models.items() if identity.get("weights")]
    rows += receipt.package.items()
    box = nodes.admonition(classes=["dropdown", "receipt-digests"])
    box += nodes.title("", f"SHA-256 of the {len(rows)} things it depends on")
    box += _table(("What", "SHA-256"), rows, literal=True)
    return box


def _field_list(rows: Iterable[tuple[str, list[nodes.Node]]]) -> nodes.field_list:
    fields = nodes.field_list(classes=["receipt"])
    for name, content in rows:
        fields += nodes.field("", nodes.field_name("", name), nodes.field_body("", nodes.paragraph("", "", *content)))
    return fields


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], literal: bool = False) -> nodes.table:
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", _row(head, False))
    group += nodes.tbody("", *(_row(row, literal) for row in rows))
    return nodes.table("", group, classes=["receipt-table"])


def _row(cells: Sequence[str], literal: bool) -> nodes.row:
    kind = nodes.literal if literal else nodes.inline
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", kind(text, text))) for text in cells))


def _autodoc(path: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        return [f".. autoclass:: {path}", "   :members:"]
    if inspect.isfunction(value):
        return [f".. autofunction:: {path}"]
    # The docstring of a constant would be that of its type.
    return [f".. py:data:: {path}", f"   :value: {reprlib.repr(value)}"]
