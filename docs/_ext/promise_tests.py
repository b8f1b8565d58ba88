"""A directive that lists, for each promise of docs/promises.md, the tests marked with its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]


def tests_by_promise() -> dict[int, list[str]]:
    """The names of the tests that show each promise, by its number."""
    found: dict[int, list[str]] = {}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in _promises(node):
                    found.setdefault(number, []).append(f"{path.name}::{node.name}")
    return found


def _promises(function: ast.FunctionDef) -> list[int]:
    words = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
    return [int(number) for number in re.findall(r"mark\.promise\((\d+)\)", words)]


def promises() -> dict[int, str]:
    """The text of each promise, by its number."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    found = re.findall(r"^- (\d+): (.*?)(?=\n- |\n\n|\Z)", page, re.DOTALL | re.MULTILINE)
    return {int(number): " ".join(text.split()) for number, text in found}


class PromiseTests(SphinxDirective):
    """A definition list: a promise, and below it the tests that show it."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        tests = tests_by_promise()
        entries = nodes.definition_list()
        for number, text in promises().items():
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")
            body = nodes.bullet_list()
            for name in tests.get(number, []):
                body += nodes.list_item("", nodes.paragraph("", "", nodes.literal(text=name)))
            term = nodes.term(text=f"{number}: {plain}")
            entries += nodes.definition_list_item("", term, nodes.definition("", body))
        return [entries]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("promise-tests", PromiseTests)
    return {"parallel_read_safe": True}
