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
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        of_all = [number for node in module.body if _is_mark_of_all(node) for number in _promises(node)]
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                own = [number for decorator in node.decorator_list for number in _promises(decorator)]
                for number in dict.fromkeys([*of_all, *own]):
                    found.setdefault(number, []).append(f"{path.name}::{node.name}")
    return found


def _is_mark_of_all(node: ast.stmt) -> bool:
    """Whether a statement marks all tests of its file."""
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def _promises(node: ast.AST) -> list[int]:
    return [int(number) for number in re.findall(r"mark\.promise\((\d+)\)", ast.unparse(node))]


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
