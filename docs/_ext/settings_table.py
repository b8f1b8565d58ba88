"""A directive that lists every setting, as it is written in Python, on the command line and in a job file."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from tables import HEADER, rows


class SettingsTable(SphinxDirective):
    """A table of all settings."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        group = nodes.tgroup(cols=len(HEADER))
        group += [nodes.colspec(colwidth=1) for _ in HEADER]
        head, body = nodes.thead(), nodes.tbody()
        head += _row(HEADER)
        body += [_row(row) for row in rows()]
        group += [head, body]
        table = nodes.table()
        table += group
        return [table]


def _row(texts: tuple[str, ...]) -> nodes.row:
    row = nodes.row()
    for place, text in enumerate(texts):
        inner = nodes.literal(text=text) if 1 <= place <= 3 and text else nodes.Text(text)
        row += nodes.entry("", nodes.paragraph("", "", inner))
    return row


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True}
