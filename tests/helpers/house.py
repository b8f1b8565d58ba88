"""The size of the house, counted: `python -m tests.helpers.house` prints the table of docs/architecture.md."""

import ast
import inspect
import io
import re
import sys
import threading
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "plmix_dist"


class Size(NamedTuple):
    """Lines of one file: all, of code, of docstrings, of imports; and its classes."""

    lines: int
    code: int
    docstrings: int
    imports: int
    classes: int


def size_of(path: Path) -> Size:
    """Count one file; code is what is neither docstring nor comment nor blank."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstrings, imports, code = set[int](), set[int](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_lines_of(node))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstrings.update(_lines_of(node.body[0]) if ast.get_docstring(node, clean=False) is not None else ())
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            code.update(range(token.start[0], token.end[0] + 1))
    classes = sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
    return Size(len(text.splitlines()), len(code - docstrings), len(docstrings), len(imports), classes)


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def sources(package: Path = PACKAGE) -> list[Path]:
    """Every Python file of the package."""
    return sorted(package.rglob("*.py"))


def total(package: Path = PACKAGE) -> Size:
    """The whole package's size."""
    return Size(*map(sum, zip(*map(size_of, sources(package)), strict=True)))


def entries(package: Path = PACKAGE) -> list[str]:
    """What stands at the top level of the package."""
    return sorted(path.name for path in package.iterdir() if path.name != "__pycache__")


# Modules whose names users import, and ways to extend the package, which only additions use.
_PUBLIC = ("metrics.py", "plots.py", "errors.py")
_EXTENSIONS = ("FORMATS", "add_m_step", "row_by_row")


def names_of_one_module(package: Path = PACKAGE) -> list[str]:
    """Names without an underscore that no other module, template or page of reference uses and no `__all__` exports."""
    used = {path: set(_identifiers(path)) for path in sources(package)}
    everywhere: Counter[str] = Counter(_EXTENSIONS)
    for found in used.values():
        everywhere.update(found)
    for page in (*package.rglob("*.jinja"), *(package.parent / "docs/reference").glob("*.md")):
        everywhere.update(set(re.findall(r"\w+", page.read_text(encoding="utf-8"))))
    return [
        f"{path.relative_to(package.parent)}: {name}"
        for path in used
        if path.name not in _PUBLIC
        for name in _public_names(path)
        if everywhere[name] == 1
    ]


def _identifiers(path: Path) -> Iterator[str]:
    """Every name that a file mentions, also as text: exports, references and lazy imports are text."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME:
            yield token.string
        elif token.type == tokenize.STRING and path.name == "__init__.py":
            yield token.string.strip("\"'")


def _public_names(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(decorator_list=[]) | ast.ClassDef():
                names = [node.name]
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def modules_entered(work: Callable[[], Any]) -> int:
    """How many modules of the package a piece of work enters, by threads of this process."""
    files = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # not the bodies of modules and classes
            files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sum(Path(name).is_relative_to(PACKAGE) for name in files)


def entered_by_fits() -> tuple[int, int]:
    """Modules entered by a fit of an array, and by `plmix fit` of a store."""
    import tempfile

    import numpy as np
    from click.testing import CliRunner

    import plmix_dist as plm
    from plmix_dist.cli import plmix

    rows = np.argsort(np.random.default_rng(0).gumbel(size=(500, 6)), axis=1)
    by_array = modules_entered(lambda: plm.PlackettLuceMixture(2, random_state=0).fit(rows))
    with tempfile.TemporaryDirectory() as folder:
        plm.simulate(f"{folder}/store", n_rankings=2000, n_items=6, n_components=2, random_state=0)
        command = ["fit", f"{folder}/store", "--components", "2", "--out", f"{folder}/model"]
        by_verb = modules_entered(lambda: CliRunner().invoke(plmix, command))
    return by_array, by_verb


def _table() -> str:
    size, sizes = total(), sorted(size_of(path).lines for path in sources())
    by_array, by_verb = entered_by_fits()
    rows = {
        "entries at the top level": len(entries()),
        "files": len(sizes),
        "median lines of a file": sizes[len(sizes) // 2],
        "lines": size.lines,
        "lines of code": size.code,
        "lines of docstrings": size.docstrings,
        "import lines, % of code": round(100 * size.imports / size.code, 1),
        "classes": size.classes,
        "names of one module without underscore": len(names_of_one_module()),
        "modules entered by fit(array)": by_array,
        "modules entered by plmix fit": by_verb,
    }
    return "\n".join(f"{name:<42}{value}" for name, value in rows.items())


if __name__ == "__main__":
    sys.stdout.write(f"{_table()}\n")
