"""Aggregations: all of them stand side by side in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import plmix_dist

PACKAGE = Path(plmix_dist.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"


def aggregations_of_code() -> Iterator[tuple[str, str]]:
    """Name and room of every call of Aggregation in the package."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Aggregation":
                (name, *_) = node.args
                assert isinstance(name, ast.Constant), f"{path}: the name of an Aggregation is a literal"
                yield str(name.value), path.relative_to(PACKAGE).parts[0]


def test_aggregation__every_one_is_in_the_table() -> None:
    _, section = PAGE.read_text().split("## Every statistic\n")
    rows = re.findall(r"^\| ([\w-]+) \| (\w+) \| .+ \|.*\|$", section.split("\n## ")[0], flags=re.MULTILINE)
    listed = sorted(row for row in rows if row != ("name", "room"))
    assert listed == sorted(aggregations_of_code())
    assert len(listed) > 20
