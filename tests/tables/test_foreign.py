"""Foreign tables are read right, or refused with a remedy that then works; none is read wrong in silence."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist import ingest, ingest_ratings
from plmix_dist.errors import PlmixError
from tests.helpers.ingest_helpers import write
from tests.tables.foreign import Layout, layouts

if TYPE_CHECKING:
    from pathlib import Path

_OPTION = re.compile(r"--(format|column|unranked|rule|header|no-header)(?: ((?:'[^']*'|[^\s,;:()])+(?:,\S+)?))?")


def _advice(message: str, layout: Layout, options: dict[str, Any]) -> dict[str, Any] | None:
    """The options with one more that the message offers and that is true of the file; None if it offers none."""
    asked = re.search("the column '([^']*)'", message)
    if asked is None or asked[1] not in {item for order, _ in layout.truth for group in order for item in group}:
        message = message.replace("if it is an item, say --format ranks", "")
    for name, value in _OPTION.findall(message):
        word = "".join(shlex.split(value)) if value else ""
        role, _, column = word.rstrip(".,;:)").partition("=")
        columns = options.get("columns", {})
        if name in ("header", "no-header") and "header" not in options and (name == "header") == layout.header:
            return options | {"header": layout.header}
        if name == "rule" and word.startswith("zero") and "choices" not in options:
            return options | {"choices": {"zero": "best" if layout.zero_is_best else "none"}}
        if column == "NAME" and len(layout.columns.get(role, ())) == 1 and role not in columns:
            return options | {"columns": columns | {role: next(iter(layout.columns[role]))}}
        if name == "unranked" and word.startswith("below") and "unranked" not in options:
            return options | {"unranked": "below"}
        if name == "format" and word.rstrip(".,;:") in layout.formats and "format" not in options:
            return options | {"format": word.rstrip(".,;:")}
        if name == "column" and column and (column in layout.columns.get(role, ()) or
                                            set(column.split(",")) <= layout.columns.get(role, set())):  # fmt: skip
            there = columns.get(role)
            new = f"{there},{column}" if there and role == "ignore" and column not in there else column
            if there != new and (role == "ignore" or there is None):
                return options | {"columns": columns | {role: new}}
    return None


def _orders(store: Any) -> Counter[Any]:
    names, found = store.item_names, Counter[Any]()
    for block in store.iter_leaves():
        for row in block.rows():
            found[tuple(tuple(sorted(names[item] for item in place)) for place in row.ordered)] += row.weight
    return found


def outcome(layout: Layout, folder: Path) -> str:
    """What happens to a file whose owner follows the messages as far as they are true of it."""
    source = write(folder / layout.name, layout.text)
    wanted = Counter[Any]()
    for order, weight in layout.truth:
        wanted[order] += weight  # type: ignore[assignment]
    options: dict[str, Any] = {}
    for step in range(8):
        try:
            store = folder / f"{layout.name}-{step}"
            if options.get("format") == "ratings":
                rest = {name: value for name, value in options.items() if name not in ("format", "unranked")}
                made = ingest_ratings(source, store, client=False, **rest)
            else:
                made = ingest(source, store, client=False, **options)
        except PlmixError as error:
            advised = _advice(str(error), layout, options)
            if advised is None:
                return f"refused: {layout.kind} {options}: {str(error).replace(str(folder), '')}"
            options = advised
            continue
        if _orders(made) == wanted:
            return "right" if step == 0 or set(options) == {"unranked"} else "right after advice"
        return f"WRONG: {layout.kind} {options}"
    return f"refused for ever: {layout.kind} {options}"


@pytest.mark.full
@pytest.mark.promise(50)
def test_foreign_tables__right_or_refused_with_a_remedy_that_works(tmp_path: Path) -> None:
    found = {layout.name: outcome(layout, tmp_path) for layout in layouts()}
    wrong = {name: result for name, result in found.items() if result.startswith("WRONG")}
    stuck = {name: result for name, result in found.items() if result.startswith("refused")}
    assert not wrong
    assert not stuck
