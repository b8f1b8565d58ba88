"""What newcomers meet in their first hour: cells with whole rankings, and messages that say what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ingest_helpers import ingest_error, labels_of, named_rows, row, write

from plmix_dist import ingest

if TYPE_CHECKING:
    from pathlib import Path

    from plmix_dist.rankings import Ranking

# --- whole rankings in a cell ----------------------------------------------------------------------------

CELLS: dict[str, tuple[str, list[Ranking]]] = {
    "names with blanks": (
        "vote\nAnn Lee > Bo Ek > Cy\nCy > Bo Ek > Ann Lee\n",
        [row("Ann Lee", "Bo Ek", "Cy"), row("Cy", "Bo Ek", "Ann Lee")],
    ),
    "ties joined by =": (
        "vote\nAnn Lee > Bo = Cy > D\nD > Ann Lee=Bo > Cy\n",
        [row("Ann Lee", ("Bo", "Cy"), "D"), row("D", ("Ann Lee", "Bo"), "Cy")],
    ),
    "ties in braces": (
        "vote;n\na > {b c} > d e;x\na > {b, c} > d e;x\n",
        [row("a", ("b", "c"), "d e"), row("a", ("b", "c"), "d e")],
    ),
    "a name with a comma, in quotes": (
        'vote\n"""Lee, Ann"" > Bo Ek"\nBo Ek > Cy\n',
        [row("Lee, Ann", "Bo Ek"), row("Bo Ek", "Cy")],
    ),
    "a column named ranking": ("ranking\na > b\nb > a\n", [row("a", "b"), row("b", "a")]),
    "one item in a row": (
        "vote\n" + "Ann Lee > Bo Ek\n" * 10 + "Ann Lee\n",
        [row("Ann Lee", "Bo Ek")] * 10 + [row("Ann Lee", unranked="below")],
    ),
    "commas": (
        'count,ordering\n2,"Ann Lee, Bo Ek"\n1,"Bo Ek,Ann Lee"\n',
        [row("Ann Lee", "Bo Ek", weight=2.0), row("Bo Ek", "Ann Lee")],
    ),
    "an accent and an apostrophe": (
        "vote\nZoë > O'Brien > José Núñez\nO'Brien > Zoë > José Núñez\n",
        [row("Zoë", "O'Brien", "José Núñez"), row("O'Brien", "Zoë", "José Núñez")],
    ),
}


@pytest.mark.parametrize("case", CELLS)
def test_cells__blanks_belong_to_names(tmp_path: Path, case: str) -> None:
    text, expected = CELLS[case]
    unranked = "below" if case == "one item in a row" else "absent"
    columns = {"id": "n"} if case == "ties in braces" else None
    store = ingest(write(tmp_path / "a.csv", text), tmp_path / "store", unranked=unranked, columns=columns)
    assert [ranking._replace(unranked="absent") for ranking in named_rows(store)] == [
        ranking._replace(unranked="absent") for ranking in expected
    ]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("a > b, c", "'b, c' has a comma"),
        ("a > = b", "one side of it is empty"),
        ("a > b =", "one side of it is empty"),
        ('a > ""b', "a quoted name does not end"),
    ],
)
def test_cells__refused_with_the_line(tmp_path: Path, cell: str, words: str) -> None:
    source = write(tmp_path / "a.csv", f'vote;x\na > b > c;\n"{cell}";\n')
    message = ingest_error(source, tmp_path / "store", format="orderings", columns={"ordering": "vote"})
    assert "line 3" in message
    assert words in message


def test_cells__lists_are_refused_and_the_option_helps(tmp_path: Path) -> None:
    text = "id,ranking\n" + '7,"Ann Lee, Bo, Cy"\n8,"Bo, Cy, Ann Lee"\n' * 2
    source = write(tmp_path / "a.csv", text)
    message = ingest_error(source, tmp_path / "store")
    assert "'Ann Lee, Bo, Cy'" in message
    assert message.endswith("--column ordering=ranking")
    store = ingest(source, tmp_path / "store", columns={"ordering": "ranking"})
    assert named_rows(store) == [row("Ann Lee", "Bo", "Cy"), row("Bo", "Cy", "Ann Lee")] * 2
    assert labels_of(store, "ids") == [7, 8, 7, 8]
