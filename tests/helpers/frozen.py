"""Frozen results: digests of fits, stores, a report and every `--help`, compared by tests/whole/test_frozen.py.

`python -m tests.helpers.frozen` writes tests/data/frozen.json anew. Do so only with a reason, and say it in the commit.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plmix_dist as plm

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = Path(__file__).parents[1] / "data" / "frozen.json"
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dask-ml", "zarr", "llvmlite")
# What a page says of this run or machine alone: digests of numbers, times, dates, seconds, sizes, the machine, folders.
_OF_THIS_RUN = re.compile(
    r"\b[0-9a-f]{16}\b|\d{4}-\d\d-\d\d[ T][\d:.+Z]*|[\d.,]+\s*(?:&nbsp;)?(?:s|ms|min|MB|GB|kB)\b"
    r"|(?<=plmix[-_]dist )[\d.]+"
)


def machine() -> str:
    """What the last bits of a result may depend on: the processor and the libraries that calculate."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return ", ".join([platform.machine(), model, *(f"{name} {version(name)}" for name in _LIBRARIES)])


def _drawn(n_rankings: int, n_items: int, seed: int, spread: float = 1.5) -> Any:
    """Full rankings of two groups, by Gumbel noise."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, spread, (2, n_items))
    component = (np.arange(n_rankings) % 3 == 0).astype(int)
    return np.argsort(-truth[component] - rng.gumbel(size=(n_rankings, n_items)), axis=1)


def _tied() -> plm.RankingBlock:
    rows = [
        plm.Ranking(
            (*tuple((int(item),) for item in row[:2]), tuple(int(item) for item in row[2:4])), (), "absent", 1.0
        )
        for row in _drawn(150, 6, 3)
    ]
    return plm.RankingBlock.from_rows(rows, n_items=6)


def _battles() -> plm.RankingBlock:
    """Pairs by 60 persons, a sixth of them tied."""
    pairs = [[int(item) for item in row[:2]] for row in _drawn(600, 5, 10)]
    rows = [
        plm.Ranking((tuple(pair),) if number % 6 == 0 else tuple((item,) for item in pair), (), "absent", 1.0)
        for number, pair in enumerate(pairs)
    ]
    return plm.RankingBlock.from_rows(rows, n_items=5, groups=[number // 10 for number in range(600)])


def _grouped() -> plm.RankingBlock:
    rows = [plm.Ranking(tuple((int(item),) for item in row[:3]), (), "absent", 1.0) for row in _drawn(300, 6, 4)]
    return plm.RankingBlock.from_rows(rows, n_items=6, groups=[number // 3 for number in range(300)])


def _arrays(model: Any) -> list[Any]:
    coefficients = getattr(model, "share_coefficients_", None)
    return [model.log_worths_, model.shares_, *([] if coefficients is None else [coefficients])]


def _fit(data: Any, how: dict[str, Any] | None = None, **settings: Any) -> list[Any]:
    model = plm.PlackettLuceMixture(2, random_state=7, **settings).fit(data, client=False, **(how or {}))
    return [*_arrays(model), np.array([record["log_likelihood"] for record in model.history_])]


def _covariates() -> Any:
    return np.random.default_rng(5).normal(size=(300, 2))


def _selected() -> list[Any]:
    chosen = plm.MixtureSelection(range(1, 4), random_state=3).fit(_drawn(400, 6, 6))
    return [np.array([chosen.n_components_]), *_arrays(chosen.best_estimator_)]


def _sampled() -> list[Any]:
    model = plm.BayesianPlackettLuceMixture(2, n_chains=2, n_warmup=20, n_draws=20, random_state=1)
    return _arrays(model.fit(_drawn(200, 5, 8)))


def _errors() -> list[Any]:
    rows = _drawn(400, 5, 9)
    model = plm.PlackettLuceMixture(2, random_state=7).fit(rows)
    errors = [model.standard_errors(rows, kind=kind) for kind in ("information", "sandwich")]
    return [each.log_worths for each in errors] + [each.shares for each in errors]


FITS: dict[str, Callable[[], list[Any]]] = {
    "default": lambda: _fit(_drawn(600, 8, 1)),
    "top 3": lambda: _fit(_drawn(600, 8, 1)[:, :3], {"unranked": "below"}),
    **{
        f"m_step {name}": lambda name=name: _fit(_drawn(600, 8, 1), m_step=name, max_iter=30)
        for name in ("lsr", "mm", "cml", "gmm", "stochastic-lsr")
    },
    "exact": lambda: _fit(_drawn(300, 6, 2), em="exact"),
    "weights": lambda: _fit(_drawn(600, 8, 1), {"sample_weight": np.linspace(0.5, 3, 600)}, alpha=0.3),
    "paper": lambda: _fit(_drawn(300, 6, 2, 2.5), method="paper"),
    "random": lambda: _fit(_drawn(300, 6, 2), init="random", n_init=3),
    "kernel": lambda: _fit(_drawn(200, 6, 2), init="kernel"),
    "moments": lambda: _fit(_drawn(600, 6, 2), init="moments"),
    **{
        f"ties {name}": lambda name=name: _fit(_tied(), ties=name, max_iter=40)
        for name in ("expand", "marginal", "resample")
    },
    "ties half": lambda: _fit(_tied(), ties="half-last"),
    "battles": lambda: _fit(_battles(), noise=True, max_iter=40),
    "groups": lambda: _fit(_grouped()),
    "covariates": lambda: _fit(_drawn(300, 6, 4), {"membership_covariates": _covariates()}),
    "errors": _errors,
    "select": _selected,
    "bayes": _sampled,
}


def fit_entry(name: str) -> dict[str, Any]:
    """The digest of a fit's arrays, and sums of them, which hold on every machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [np.ascontiguousarray(each, np.float64) for each in FITS[name]()]
    digest = hashlib.sha256(b"".join(each.tobytes() for each in arrays)).hexdigest()
    return {"digest": digest, "sums": [float(np.abs(each).sum()) for each in arrays]}


def _folder_digest(folder: Path) -> str:
    # The manifest has the time of the run.
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    parts = [str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() for path in files]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def store_entries(folder: Path) -> dict[str, str]:
    """Digests of the files of a simulated store, and of the rows of one that was read from text."""
    plm.simulate(folder / "simulated", n_rankings=5_000, n_items=7, n_components=2, random_state=2)
    text = folder / "ballots.csv"
    rows = _drawn(500, 6, 11)
    cells = [[f"item {item}" for item in row[: 2 + number % 5]] for number, row in enumerate(rows)]
    lines = [",".join(row + [""] * (6 - len(row))) for row in cells]
    text.write_text("first,second,third,fourth,fifth,sixth\n" + "\n".join(lines) + "\n")
    plm.ingest(text, folder / "read", unranked="below", format="wide")
    return {
        "simulated": _folder_digest(folder / "simulated"),
        "read": hashlib.sha256(
            b"".join(np.ascontiguousarray(each).tobytes() for each in _rows_of(folder / "read"))
        ).hexdigest(),
    }


def _rows_of(store: Path) -> list[Any]:
    blocks = list(plm.open_store(store).iter_leaves())
    return [each for block in blocks for each in (block.items, block.offsets, block.row_weights)]


def report_text(folder: Path) -> str:
    """The text of a report, without what is of this run alone."""
    rows = _drawn(400, 5, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plm.PlackettLuceMixture(2, random_state=7).fit(rows, client=False).report(folder / "report.html", X=rows)
    body = re.sub(r"<(style|script).*?</\1>", "", (folder / "report.html").read_text(), flags=re.DOTALL)
    words = re.sub(r"<[^>]*>", "\n", body)
    lines = [_OF_THIS_RUN.sub("#", line.strip()) for line in words.splitlines()]
    return "\n".join(line for line in lines if line)


def help_texts() -> dict[str, str]:
    """What `--help` of every verb prints, at a fixed width."""
    import click

    from plmix_dist.cli import plmix

    verbs = plmix.commands if isinstance(plmix, click.Group) else {}
    settings: dict[str, Any] = {**plmix.context_settings, "terminal_width": 100, "max_content_width": 100}
    context = click.Context(plmix, info_name="plmix", **settings)
    texts = {"plmix": plmix.get_help(context)}
    for name, verb in sorted(verbs.items()):
        verb._help_option = None  # click keeps the one of the first context in this process
        inner = click.Context(verb, parent=context, info_name=name, **settings)
        texts[name] = verb.get_help(inner)
    return texts


def fits_with(known: dict[str, Any]) -> dict[str, Any]:
    """All fits, with the digests of other machines, unless those of this machine have changed."""
    found = {name: fit_entry(name) for name in FITS}
    for name, entry in found.items():
        others = known.get(name, {}).get("digests", {})
        same = others.get(machine(), entry["digest"]) == entry["digest"]
        entry["digests"] = {**(others if same else {}), machine(): entry.pop("digest")}
    return found


def record() -> dict[str, Any]:
    """Everything that is frozen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "fits": fits_with(json.loads(FILE.read_text())["fits"]),
            "stores": store_entries(folder),
            "report": report_text(folder).splitlines(),
            "help": {name: text.splitlines() for name, text in help_texts().items()},
        }


if __name__ == "__main__":
    FILE.write_text(json.dumps(record(), indent=1, ensure_ascii=False) + "\n")
    subprocess.run(["git", "diff", "--stat", str(FILE)], check=False)
    sys.exit(0)
