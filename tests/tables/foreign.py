"""Foreign tables: known rankings in plausible layouts, and what their owner would answer when asked.

`layouts()` gives 300 of them. Each has the text of a file, its true rankings, and the options that are true of it; an
owner follows a message only where it offers one of these.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

NAMES = ["Ann", "Bo", "Cy", "Di", "Ed"]
BLANKED = ["iced tea", "hot mate", "cold milk", "red wine", "dark ale"]
# Groups of tied items, best first.
Order = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Layout:
    """One file: its text and name, the true rankings with their weights, and what is true of it."""

    name: str
    kind: str
    text: str
    truth: list[tuple[Order, float]]
    formats: tuple[str, ...]
    columns: dict[str, set[str]] = field(default_factory=dict)  # true values of --column, by role
    header: bool = True
    zero_is_best: bool = False


def _orders(rng: random.Random, items: list[str], n: int, *, ties: bool, partial: bool) -> list[Order]:
    found: list[Order] = []
    for _ in range(n):
        row = rng.sample(items, rng.randint(2, len(items)) if partial else len(items))
        groups = [(item,) for item in row]
        if ties and len(groups) > 2 and rng.random() < 0.4:
            place = rng.randrange(len(groups) - 1)
            groups[place : place + 2] = [tuple(sorted(groups[place] + groups[place + 1]))]
        found.append(tuple(groups))
    return found


def _ranks(order: Order, *, average: bool = False, dense: bool = True) -> dict[str, float]:
    ranks: dict[str, float] = {}
    for place, group in enumerate(order, start=1):
        first = len(ranks) + 1
        for item in group:
            ranks[item] = (2 * first + len(group) - 1) / 2 if average else place if dense else first
    return ranks


def _cell(value: float, style: str) -> str:
    if style == "decimal":
        return f"{value:.1f}"
    text = f"{value:g}"
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(text, "th")
    return f"{text}{ending}" if style == "ordinal" and value == int(value) else text


def _text(rng: random.Random, header: list[str] | None, rows: list[list[str]]) -> tuple[str, str]:
    """The table as text, and the ending of its name."""
    sign, ending = rng.choice([(",", "csv"), (",", "csv"), (";", "csv"), ("\t", "tsv")])
    quoted = rng.random() < 0.25
    lines = ([header] if header is not None else []) + rows
    text = "".join(
        sign.join(f'"{cell}"' if cell and (quoted or sign in cell) else cell for cell in line) + "\n" for line in lines
    )
    text = text.replace("\n", "\r\n") if rng.random() < 0.25 else text
    return ("\ufeff" + text if rng.random() < 0.2 else text), ending


def _ages(n: int) -> list[str]:
    return [str(20 + 3 * row % 50) for row in range(n)]


def _beside(rng: random.Random, n: int) -> list[tuple[str, str, list[str]]]:
    """Columns beside the ranking: role ("" for none), name, cells."""
    found: list[tuple[str, str, list[str]]] = []
    if rng.random() < 0.3:
        start = rng.choice([0, 1])
        found.append(("ignore", rng.choice(["", "Unnamed: 0"]), [str(start + row) for row in range(n)]))
    if rng.random() < 0.35:
        found.append(("id", rng.choice(["id", "ballot_id", "respondent"]), [f"x{row:03d}" for row in range(n)]))
    if rng.random() < 0.25:
        dates = [f"2024-03-{1 + row % 28:02d}" for row in range(n)]
        found.append(("ignore", rng.choice(["date", "timestamp", "when"]), dates))
    if rng.random() < 0.25:
        found.append(("ignore", rng.choice(["age", "gender", "region"]), _ages(n)))
    if rng.random() < 0.2:
        found.append(("weight", rng.choice(["count", "weight", "n"]), [str(1 + row % 3) for row in range(n)]))
    return found


def _wide(rng: random.Random, number: int) -> Layout:
    n, partial = rng.randint(8, 30), rng.random() < 0.5
    items = rng.choice([NAMES, BLANKED])
    orders = _orders(rng, items, n, ties=False, partial=partial)
    width = max(map(len, orders))
    styles = [
        [f"choice{p}" for p in range(1, 6)],
        [f"rank{p}" for p in range(1, 6)],
        [f"place_{p}" for p in range(1, 6)],
        ["first", "second", "third", "fourth", "fifth"],
        [f"{p} choice" for p in ("1st", "2nd", "3rd", "4th", "5th")],
    ]
    places = rng.choice(styles)[:width]
    missing = rng.choice(["", "", "NA"])
    table = [[*(order[p][0] if p < len(order) else missing for p in range(width))] for order in orders]
    columns = list(zip(places, map(list, zip(*table, strict=True)), strict=True))
    if rng.random() < 0.3:
        rng.shuffle(columns)
    has_header = rng.random() < 0.8
    if not has_header:
        columns.sort(key=lambda column: places.index(column[0]))
    return _assembled(rng, number, "wide", columns, orders, has_header, {"places": {",".join(places)}}, ("wide", "cvr"))


def _by_item(rng: random.Random, number: int, kind: str) -> Layout:
    n = rng.randint(8, 30)
    ties, partial = rng.random() < 0.4, rng.random() < 0.4
    items = [*rng.choice([NAMES, BLANKED])]
    orders = _orders(rng, items, n, ties=ties, partial=partial)
    style = rng.choice(["plain", "plain", "decimal", "ordinal"] if kind == "ranks" else ["plain", "decimal"])
    first, missing = rng.choice([1, 1, 0]), rng.choice(["", "NA"])
    cells: list[dict[str, str]] = []
    for order in orders:
        ranks = _ranks(order, average=ties and style != "ordinal" and first == 1 and rng.random() < 0.2)
        if kind == "ranks":
            shift = first - 1 if style != "ordinal" else 0
            cells.append({item: _cell(rank + shift, style) for item, rank in ranks.items()})
        else:
            top = rng.choice([5, 10, 100])
            cells.append({item: _cell(top - rank, style) for item, rank in ranks.items()})
    rng.shuffle(items)
    columns = [(item, [row.get(item, missing) for row in cells]) for item in items]
    made = _assembled(rng, number, kind, columns, orders, True, {}, (kind,))
    return replace(made, zero_is_best=kind == "ranks" and first == 0 and style != "ordinal")


def _assembled(
    rng: random.Random,
    number: int,
    kind: str,
    columns: list[tuple[str, list[str]]],
    orders: list[Order],
    has_header: bool,
    true: dict[str, set[str]],
    formats: tuple[str, ...],
) -> Layout:
    n = len(orders)
    beside = _beside(rng, n) if has_header else []
    weights = next((list(map(float, cells)) for role, _, cells in beside if role == "weight"), [1.0] * n)
    for role, name, _ in beside:
        true.setdefault(role, set()).add(name)
        if role == "id":
            true.setdefault("ignore", set()).add(name)
    everything = [*((name, cells) for _, name, cells in beside), *columns]
    if has_header and rng.random() < 0.3:
        inner = everything[1:] if everything[0][0] in ("", "Unnamed: 0") else everything
        rng.shuffle(inner)
        everything = [*everything[: len(everything) - len(inner)], *inner]
    rows = [list(row) for row in zip(*(cells for _, cells in everything), strict=True)]
    text, ending = _text(rng, [name for name, _ in everything] if has_header else None, rows)
    return Layout(f"{number}.{ending}", kind, text, list(zip(orders, weights, strict=True)), formats, true, has_header)


def _long(rng: random.Random, number: int) -> Layout:
    n, ties = rng.randint(6, 20), rng.random() < 0.4
    kind = rng.choice(["long", "long", "long scores"])
    orders = _orders(rng, rng.choice([NAMES, BLANKED]), n, ties=ties, partial=rng.random() < 0.5)
    who, what = (
        rng.choice(["id", "ballot_id", "voter", "respondent"]),
        rng.choice(["item", "candidate", "choice", "name"]),
    )
    value = rng.choice(["rank", "position", "place"]) if kind == "long" else rng.choice(["score", "rating", "points"])
    first, style = rng.choice([0, 1]), rng.choice(["plain", "plain", "decimal"])
    lines = []
    for row, order in enumerate(orders):
        own = []
        for item, rank in _ranks(order).items():
            number_of = rank + first - 1 if kind == "long" else 10 - rank
            own.append({who: f"v{row}", what: item, value: _cell(number_of, style), "day": f"2024-05-{1 + row:02d}"})
        if rng.random() < 0.5:
            rng.shuffle(own)
        lines += own
    header = [who, what, value, *(["day"] if rng.random() < 0.3 else [])]
    rng.shuffle(header)
    text, ending = _text(rng, header, [[line[name] for name in header] for line in lines])
    true = {"id": {who}, "user": {who}, "item": {what}, "rank": {value} if kind == "long" else set(), "rating": {value},
            "ignore": {"day"}}  # fmt: skip
    return Layout(f"{number}.{ending}", kind, text, [(order, 1.0) for order in orders],
                  ("long",) if kind == "long" else ("ratings",), true)  # fmt: skip


def _orderings(rng: random.Random, number: int) -> Layout:
    n, ties = rng.randint(8, 20), rng.random() < 0.4
    orders = _orders(rng, rng.choice([NAMES, BLANKED]), n, ties=ties, partial=True)
    sign = rng.choice([">", " > "])
    cells = [sign.join("=".join(group) for group in order) for order in orders]
    name = rng.choice(["ordering", "ranking", "vote", "answer"])
    return _assembled(rng, number, "orderings", [(name, cells)], orders, True, {"ordering": {name}}, ("orderings",))


def layouts(count: int = 300, seed: int = 16) -> list[Layout]:
    """Files of every kind, the same at every call."""
    makers: list[Any] = [_wide, _wide, lambda r, n: _by_item(r, n, "ranks"), lambda r, n: _by_item(r, n, "ranks"),
                         lambda r, n: _by_item(r, n, "scores"), _long, _orderings]  # fmt: skip
    return [makers[number % len(makers)](random.Random(f"{seed}-{number}"), number) for number in range(count)]
