"""Fuzz targets: one seeded mutation each. Run as a script, they report every outcome that is not allowed.

    python -m tests.helpers.fuzz_targets TARGET FIRST_SEED COUNT

Allowed are success that is provably right, and errors of the package. A process of its own makes crashes and hangs
visible: the last line that it printed names the seed.
"""

from __future__ import annotations

import faulthandler
import functools
import gzip
import io
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.linalg import LinAlgWarning

from plmix_dist import KernelStart, PlackettLuceMixture, Spectral, SpectralPlackettLuce, ingest, open_store
from plmix_dist.cli import main
from plmix_dist.datasets.export import export
from plmix_dist.errors import (
    CollapsedComponentWarning,
    NotConvergedWarning,
    NotIdentifiableWarning,
    OptimumFoundOnceWarning,
    PlmixError,
    StartWarning,
)
from plmix_dist.rankings import Ranking, RankingBlock
from tests.helpers.fit_oracle import log_likelihood
from tests.helpers.fuzz_mutations import mutate_folder, mutated_block, mutated_bytes, mutated_text
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable

# No mutation takes as long, even on a busy machine.
LONGEST_SECONDS = 120
# SciPy's own warning is for weights of 1e100 beside weights of 1.
ALLOWED = (
    CollapsedComponentWarning,
    NotConvergedWarning,
    StartWarning,
    LinAlgWarning,
    NotIdentifiableWarning,
    OptimumFoundOnceWarning,
)
NAMES = ["tea", "mate", "a b", "한", "=x"]


class WrongError(AssertionError):
    """An outcome that is not allowed."""


def expect(holds: bool, what: str) -> None:
    """A check of a target."""
    if not holds:
        raise WrongError(what)


# --- what is mutated -------------------------------------------------------------------------------------


def plain_rows() -> list[Ranking]:
    """Rows of five items: full, the best of all, subsets, slates; with weights."""
    orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 1, 4, 3], [1, 2, 0, 3, 4]]
    rows = [Ranking(tuple((item,) for item in order), (), "absent", 1.0) for order in orders * 3]
    rows += [Ranking(((2,), (4,)), (), "below", 2.0), Ranking(((0,), (3,)), (1,), "absent", 0.5)]
    rows += [Ranking(((3,), (1,), (0,)), (), "absent", 4.0), Ranking(((4,),), (), "below", 1.0)]
    return rows


@functools.cache
def base() -> Path:
    """A folder with all originals."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    block = RankingBlock.from_rows(plain_rows(), n_items=5, ids=[f"v{n}" for n in range(16)])
    full = RankingBlock.from_array(np.array([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 1, 4, 3]] * 4))
    best = RankingBlock.from_array(np.array([[0, 1, -1], [4, 3, 2], [2, -1, -1]] * 4), n_items=5, unranked="below")
    tied = RankingBlock.from_rows([Ranking(((0, 1), (2,)), (), "below", 3.0)] * 4, n_items=5)
    stores = {"block": block, "full": full, "best": best, "tied": tied}
    for name, rows in stores.items():
        halves = [[rows[: rows.n_rankings // 2]], [rows[rows.n_rankings // 2 :]]]
        write_store(folder / name, halves, leaf_rows=4, item_names=NAMES)
    for store, target in (("block", "a.orderings.csv"), ("full", "b.wide.csv"), ("best", "c.wide.tsv"),
                          ("block", "d.long.csv"), ("full", "e.soc"), ("tied", "f.toi"), ("block", "g.parquet"),
                          ("best", "h.orderings.csv.gz"), ("best", "i.soi.gz")):  # fmt: skip
        kind = next((word for word in ("orderings", "wide", "long") if word in target), "auto")
        export(folder / store, folder / target, format=kind)
        (folder / f"{target}.items").unlink(missing_ok=True)
    (folder / "j.toc").write_text("3\n1,tea\n2,mate\n3,milk\n7,7,3\n3,1,{2,3}\n2,{1,2},3\n2,3,2,1\n")
    table = {"ranking": [1, 1, 2, 2, 2], "item": ["x", "y", "y", "z", "x"], "rank": [1.0, 2.0, 1.0, 1.0, 3.0]}
    pq.write_table(pa.table(table), folder / "k.parquet")
    model = PlackettLuceMixture(2, random_state=0).fit(folder / "full")
    model.save(folder / "model")
    return folder


# --- readers ---------------------------------------------------------------------------------------------


def readers(rng: random.Random, folder: Path) -> str:
    """Files of every format, damaged: rows in = rows stored + rows reported."""
    original = rng.choice(sorted(path for path in base().iterdir() if path.is_file()))
    data = original.read_bytes()
    if original.suffix == ".gz" and rng.random() < 0.5:
        changed = gzip.compress(mutated_text(rng, gzip.decompress(data)))
    else:
        changed = mutated_bytes(rng, data) if original.suffix in (".gz", ".parquet") else mutated_text(rng, data)
    source = folder / original.name
    source.write_bytes(changed)
    kind = next((word for word in ("orderings", "wide", "long") if word in source.name), "auto")
    options: dict[str, Any] = {
        "format": kind if rng.random() < 0.8 else "auto",
        "unranked": rng.choice((None, "below", "absent")),
        "on_error": rng.choice(("raise", "drop", "quarantine")),
    }
    store = ingest(source, folder / "store", **options)
    rejected = list(store.rejected_rows())
    n_in = rows_in(source, changed)
    if not all(read["header"] for read in store.manifest.history[-1]["read_as"]):
        n_in = None if n_in is None else n_in + 1  # the header was damaged, and is now a row
    expect(n_in is None or n_in == store.n_rankings + len(rejected),
           f"{n_in} rows in, {store.n_rankings} stored, {len(rejected)} reported")  # fmt: skip
    wrong = [bad for bad in rejected if bad["reason"] != "zero-count"]
    expect(options["on_error"] != "raise" or not wrong, "rows were rejected in silence")
    check_rows_of(open_store(folder / "store").block())
    return "read"


def rows_in(source: Path, data: bytes) -> int | None:
    """The number of rankings in a file, counted without the package; None where that is not plain."""
    if source.suffix == ".parquet":
        table = pq.read_table(io.BytesIO(data))
        return table.num_rows if "ranking" not in table.column_names or "items" in table.column_names else None
    text = (gzip.decompress(data) if source.suffix == ".gz" else data).decode("utf-8-sig")
    lines = text.split("\n")
    if "long" in source.name:
        return None
    if "csv" in source.name or "tsv" in source.name:
        return sum(bool(line.strip()) for line in lines) - 1  # the header, perhaps behind blank lines
    if text.startswith("#"):
        body = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    else:
        body = int(lines[0]) + 2
    return sum(bool(line.strip()) for line in lines[body:])


# --- stores and models -----------------------------------------------------------------------------------


def stores(rng: random.Random, folder: Path) -> str:
    """Stores with a damaged file: what can be read is what was written, and `verify` finds what cannot."""
    name = rng.choice(("block", "full", "tied"))
    shutil.copytree(base() / name, folder / "store")
    done = mutate_folder(rng, folder / "store")
    as_it_was = open_store(base() / name).block()
    code = quiet(["verify", str(folder / "store"), "--quiet"])
    expect(code in (0, 1, 2, 3), f"verify ended with {code}")
    try:
        found = open_store(folder / "store").block()
    except PlmixError:
        expect(code != 0, f"verify found nothing after {done}, but the store cannot be read")
        raise
    expect(found.equals(as_it_was), f"other rows after {done}")
    if name == "full":
        PlackettLuceMixture(2, random_state=0, max_iter=5).fit(folder / "store")
    return "same"


def models(rng: random.Random, folder: Path) -> str:
    """Models with a damaged file: what loads is what was saved."""
    shutil.copytree(base() / "model", folder / "model")
    done = mutate_folder(rng, folder / "model")
    if rng.random() < 0.3:
        code = quiet(["score", str(folder / "model"), str(base() / "full"), "--quiet"])
        expect(code in (0, 1, 2, 3), f"score ended with {code}")
    found, was = PlackettLuceMixture.load(folder / "model"), PlackettLuceMixture.load(base() / "model")
    for name in ("log_worths_", "shares_", "item_names_", "log_likelihood_", "history_", "events_", "n_iter_"):
        expect(np.array_equal(getattr(found, name), getattr(was, name)), f"another {name} after {done}")
    return "same"


def quiet(arguments: list[str]) -> Any:
    """The exit code of a verb, without what it prints."""
    import contextlib

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            code: Any = main(arguments)
        except SystemExit as end:
            code = end.code
    expect("should not happen" not in said.getvalue(), said.getvalue())
    return code or 0


# --- blocks and arrays -----------------------------------------------------------------------------------


def check_rows_of(block: RankingBlock) -> list[Ranking]:
    """The rows in plain Python, checked there."""
    rows = list(block.rows())
    for row in rows:
        listed = [item for place in row.ordered for item in place] + list(row.offered)
        expect(len(set(listed)) == len(listed) >= 1, f"{row} lists an item twice, or none")
        expect(all(0 <= item < block.n_items for item in listed), f"{row} lists an item that is not there")
        expect(0 <= row.weight <= 1e120, f"{row} has this weight")
    return rows


def untied(row: Ranking, n_items: int) -> Ranking:
    """A row whose last place is shared by all that is left: these items are not ordered."""
    listed = sum(map(len, row.ordered)) + len(row.offered)
    if len(row.ordered[-1]) > 1 and not row.offered and (row.unranked == "absent" or listed == n_items):
        return row._replace(ordered=row.ordered[:-1], offered=row.ordered[-1])
    return row


def expect_likelihood(model: PlackettLuceMixture, rows: list[Ranking], n_items: int) -> None:
    """The log-likelihood of a model is that of plain Python."""
    weighted = [untied(row, n_items) for row in rows if row.weight > 0]
    plain = log_likelihood(weighted, n_items, model.log_worths_, model.shares_)
    expect(
        bool(np.isclose(model.log_likelihood_, plain, rtol=1e-9, atol=1e-300)),
        f"the log-likelihood is {model.log_likelihood_}, but {plain} by definition",
    )


def blocks(rng: random.Random, folder: Path) -> str:
    """Blocks with fields of wrong types, lengths and ranges, from the beginning or changed during a fit."""
    del folder
    block = RankingBlock.from_rows(plain_rows(), n_items=5)
    if rng.random() < 0.15:
        return _changed_during_the_fit(rng, block)
    block = mutated_block(rng, block)
    way = rng.randrange(4)
    if way == 0:
        model = PlackettLuceMixture.load(base() / "model")
        model.item_names_ = tuple(str(number) for number in range(5))
        expect(len(model.predict(block)) == block.n_rankings, "rows were lost")
        return "predicted"
    if way == 1:
        SpectralPlackettLuce(2, random_state=0).fit(block)
    else:
        model = PlackettLuceMixture(2, random_state=0, max_iter=20).fit(block)
        # The rows are looked at after the fit: only those of blocks that the package takes must make sense.
        rows = check_rows_of(block)
        if block.groups is None:  # plain Python knows no persons with several rankings
            expect_likelihood(model, rows, int(block.n_items))
    return "fitted"


def _changed_during_the_fit(rng: random.Random, block: RankingBlock) -> str:
    name, value = rng.choice((("items", 200), ("n_listed", 250), ("n_ordered", 250), ("n_listed", 1), ("weights", -1.0),
                              ("weights", np.nan)))  # fmt: skip

    def change(record: dict[str, Any]) -> None:
        del record
        getattr(block, name)[rng.randrange(block.n_rankings)] = value

    model = PlackettLuceMixture(2, random_state=0, max_iter=20, tol=1e-300, init="random", progress=change)
    model.fit(block)
    raise WrongError(f"the fit went on although {name} was changed to {value}")


def arrays(rng: random.Random, folder: Path) -> str:
    """Arrays of every kind, in memory and as Dask arrays, to be fitted and to be stored."""
    good = np.array([[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]] * 5)
    with np.errstate(all="ignore"):
        given: Any = _mutated_array(rng, good)
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options["unranked"] = rng.choice(("below", "absent", "bellow", 3))
    if rng.random() < 0.3:
        options["n_items"] = rng.choice((3, 4, 300, 10**12, 0, -1, 2.5, "3", True))
    if rng.random() < 0.3:
        name = "sample_weight" if rng.random() < 0.7 else "weights"
        options[name] = rng.choice(_weights())
    if isinstance(given, np.ndarray | list) and rng.random() < 0.25:
        given = _as_dask(rng, np.asarray(given)) if isinstance(given, np.ndarray) and given.ndim else given
    if "weights" in options or ("sample_weight" not in options and rng.random() < 0.3):
        store = ingest(given, folder / "store", on_error=rng.choice(("raise", "drop")), **options)
        expect(store.n_rankings + len(list(store.rejected_rows())) == len(given), "rows were lost")
        check_rows_of(store.block())
        return "stored"
    model = PlackettLuceMixture(2, random_state=0, max_iter=20).fit(given, **options)
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu" and "sample_weight" not in options:
        n_items, said = int(options.get("n_items") or int(given.max()) + 1), options.get("unranked", "absent")
        rows = [Ranking(tuple((int(item),) for item in row if item >= 0), (), said, 1.0) for row in given]
        rows = [row._replace(unranked="absent") if len(row.ordered) == n_items else row for row in rows]
        expect_likelihood(model, rows, n_items)
    return "fitted"


def _weights() -> tuple[Any, ...]:
    right: tuple[Any, ...] = (np.ones(20), np.ones(20, bool))
    wrong_types: tuple[Any, ...] = ("x", [None] * 20, 7, [1j] * 20, [1.0] * 19, [[1.0]] * 20)
    return (*right, *wrong_types, np.full(20, np.nan), np.zeros(20), [1.7e308] * 20, [-1.0] * 20)


def _mutated_array(rng: random.Random, good: np.ndarray[Any, Any]) -> Any:
    changed = good.copy()
    for _ in range(rng.randint(0, 2)):
        changed[rng.randrange(20), rng.randrange(3)] = rng.choice((-1, -2, 3, 5, 100, 10**12, -(10**12), 0))
    return rng.choice((
        lambda: changed,
        lambda: changed,
        lambda: changed.astype(rng.choice((np.float64, np.uint8, np.uint64, np.int8, bool, object, "U3", ">i8", "f2",
                                           "M8[s]", np.complex64))),
        lambda: np.where(changed == 1, np.nan, changed),
        lambda: changed[:, :0],
        lambda: changed[:0],
        lambda: changed[0],
        lambda: changed[None],
        lambda: changed.tolist(),
        lambda: [row[: rng.randint(0, 3)] for row in changed.tolist()],
        lambda: [[*row, "x"] for row in changed.tolist()],
        lambda: np.ma.masked_equal(changed, 1),
        lambda: changed.T,
        lambda: np.asfortranarray(changed)[::-1],
        lambda: rng.choice((None, 5, 2.5, {"a": [0, 1]}, {0, 1}, b"bytes", object(), [], [[]], (), "no such store",
                            10**400, [[10**400, 0]], iter([[0, 1]]), np.zeros((2, 2), "V4"), lambda: 0)),
    ))()  # fmt: skip


def _as_dask(rng: random.Random, array: np.ndarray[Any, Any]) -> Any:
    lazy = da.from_array(array, chunks=max(1, len(array) // 3) if len(array) else 1)
    way = rng.randrange(4)
    if way == 0:
        return lazy
    if way == 1:  # fewer rows than it says
        return lazy.map_blocks(lambda rows: rows[:-1], dtype=lazy.dtype, chunks=lazy.chunks)
    if way == 2:  # other numbers than it says
        return lazy.map_blocks(lambda rows: rows.astype(np.float64) + 0.5, dtype=lazy.dtype)
    return lazy[lazy[:, 0] >= 0] if array.ndim == 2 and array.shape[1] else lazy  # unknown sizes


# --- settings --------------------------------------------------------------------------------------------


def values() -> tuple[Any, ...]:
    """Values of many types, right for some settings and wrong for others."""
    numbers: tuple[Any, ...] = (
        True,
        False,
        0,
        1,
        2,
        3,
        -1,
        2.5,
        1e3,
        np.nan,
        np.inf,
        -0.0,
        1e-320,
        1e300,
        10**30,
        10**400,
    )
    words = ["2", "auto", "spectal", "random", "kernel", "paper", "pairwise", "rank", "lsr", "mm", "exact", "store"]
    words += ["memory", "probit", "mallows"]
    lists: tuple[Any, ...] = ([], [1], [0.5, 0.5], [0.6, 0.5], [np.nan, 1.0], (0.5, 0.5), {}, {"a": 1})
    of_numpy: tuple[Any, ...] = (np.int64(2), np.float32(0.5), np.bool_(True), np.array(2), np.array([0.5, 0.5]))
    tables = (np.zeros((2, 3)), np.full((2, 3), np.nan), np.array([["a"]]))
    seeds = (np.random.RandomState(0), np.random.default_rng(0))
    others: tuple[Any, ...] = (None, "", b"x", 1j, object(), lambda record: None, Path("nowhere"))
    return (*numbers, *words, *lists, *of_numpy, *tables, *seeds, *others)


STARTS = (
    *(Spectral(embedding, rank) for embedding in ("auto", "pairwise", "rank") for rank in ("auto", "paper", 1, 2)),
    Spectral(link="probit"),
    *(KernelStart(kernel, link) for kernel in ("kendall", "mallows") for link in ("logit", "probit")),
)
RIGHT: dict[str, tuple[Any, ...]] = {
    "n_components": (1, 2, 3, np.int64(2)),
    "m_step": ("auto", "lsr", "mm", "cml", "gmm", "stochastic-lsr"),
    "em": ("fused", "exact"),
    "init": ("spectral", "random", "kernel", "moments", *STARTS),
    "n_init": (1, 2, 3),
    "alpha": (1e-6, 0.5, 1, 1e6),
    "shares": (None, [0.5, 0.5], np.array([0.9, 0.1])),
    "tol": (1e-8, 1e-300, 1.0),
    "accelerate": (True, False),
    "residency": ("auto", "memory", "store"),
    "random_state": (0, 7, None),
    "max_iter": (1, 20),
}


def settings(rng: random.Random, folder: Path) -> str:
    """Settings of every type for every parameter of the estimators and of `fit`."""
    del folder
    kind = rng.choice((PlackettLuceMixture, PlackettLuceMixture, SpectralPlackettLuce))
    names = sorted(kind().get_params())
    chosen = rng.sample(names, rng.randint(1, 4))
    given = {name: rng.choice(RIGHT.get(name, (None,)) if rng.random() < 0.75 else values()) for name in chosen}
    if "max_iter" not in given and kind is PlackettLuceMixture:
        given["max_iter"] = 20
    fit_given = {}
    if rng.random() < 0.2:
        name = rng.choice(("sample_weight", "n_items", "unranked", "client"))
        fit_given[name] = rng.choice(values())
    rankings = np.array([[0, 1, 2]] * 6 + [[2, 1, 0]] * 3 + [[1, 0, 2]])
    model = kind(**given).fit(rankings, **fit_given)
    if kind is PlackettLuceMixture:
        if not fit_given:
            rows = [Ranking(tuple((int(item),) for item in row), (), "absent", 1.0) for row in rankings]
            expect_likelihood(model, rows, 3)
        expect(bool(np.isclose(model.shares_.sum(), 1)), f"{given}: the shares are {model.shares_}")
    expect(bool(np.isfinite(model.log_worths_).all()), f"{given}: not finite")
    return "fitted"


TARGETS: dict[str, Callable[[random.Random, Path], str]] = {
    "readers": readers,
    "stores": stores,
    "models": models,
    "blocks": blocks,
    "arrays": arrays,
    "settings": settings,
}


def say(text: str) -> None:
    """Print at once: a crash must not swallow it."""
    sys.stdout.write(text)
    sys.stdout.flush()


def run(name: str, first: int, count: int) -> int:
    """Run some mutations of a target; prints a line before and after each, and gives the number of failures."""
    n_failed = 0
    base()
    for seed in range(first, first + count):
        say(f"{name} {seed}: ")
        faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for category in ALLOWED:
                    warnings.simplefilter("ignore", category)
                say(TARGETS[name](random.Random(f"{name} {seed}"), folder) + "\n")
        except PlmixError as error:
            say(f"{type(error).__name__}: {str(error)[:200]!r}\n")
        except Exception:  # noqa: BLE001 - these are what is looked for
            n_failed += 1
            say(f"FAILED\n{traceback.format_exc()}\n")
        finally:
            faulthandler.cancel_dump_traceback_later()
            shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(base(), ignore_errors=True)
    return n_failed


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) > 0)
