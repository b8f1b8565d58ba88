"""One page for every public class, with a table of its methods; conf.py writes them below docs/reference/api/."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import plmix_dist

# Classes that functions and methods give, and that people see without importing them.
_RESULTS = (
    "plmix_dist.uncertainty.bootstrap.Bootstrap",
    "plmix_dist.uncertainty.results.StandardErrors",
    "plmix_dist.uncertainty.results.Coefficients",
    "plmix_dist.uncertainty.quasi_variances.QuasiVariances",
)


def classes() -> dict[str, type]:
    """Every class that has a page, by the name under which the pages link to it."""
    public = {f"plmix_dist.{name}": getattr(plmix_dist, name) for name in plmix_dist.__all__}
    results = {name: _imported(name) for name in _RESULTS}
    return {name: found for name, found in (public | results).items() if inspect.isclass(found)}


def functions() -> list[str]:
    """Every public function, which the page of the whole describes."""
    return [name for name in plmix_dist.__all__ if not inspect.isclass(getattr(plmix_dist, name))]


def members(cls: type) -> dict[str, str]:
    """Public methods and properties of a class, of our own making, with the first sentence of each."""
    found = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("plmix_dist"):
            for name, value in vars(base).items():
                is_method = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
                if not name.startswith("_") and is_method:
                    found[name] = _first_sentence(inspect.getdoc(getattr(cls, name, value)) or "")
    return {name: words for name, words in found.items() if words}


def page_of(name: str, cls: type) -> str:
    """The page of a class in MyST: what it is, the table of its methods, then all of it."""
    own = members(cls)
    short = name.rpartition(".")[2]
    lines = [f"# {short}", "", _first_sentence(inspect.getdoc(cls) or ""), ""]
    if own:
        lines += ["| method | what it does |", "|---|---|"]
        lines += [f"| {{py:obj}}`{each} <{name}.{each}>` | {words} |" for each, words in sorted(own.items())]
        lines.append("")
    lines += ["```{eval-rst}", f".. autoclass:: {name}"]
    if own:
        # What scikit-learn adds refers to its own pages.
        others = [each for each in dir(cls) if not each.startswith("_") and each not in own]
        lines += [f"   :members: {', '.join(own)}", "   :inherited-members:"]
        lines += [f"   :exclude-members: {', '.join(others)}"] if others else []
    return "\n".join([*lines, "```", ""])


def write_pages(folder: Path) -> None:
    """Write one file per class."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for name, cls in classes().items():
        (folder / f"{name.rpartition('.')[2]}.md").write_text(page_of(name, cls), encoding="utf-8")


def _imported(name: str) -> Any:
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


def _first_sentence(text: str) -> str:
    words = " ".join(text.partition("\n\n")[0].split())
    sentence, stop, _ = words.partition(". ")
    return (sentence + stop.strip()).replace("|", "\\|")
