"""The keys of all streams of random numbers: nothing that is drawn apart shares a stream, whatever draws it."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist as plm
from plmix_dist.rankings import sampling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.promise(56)

SEED = 7
LEAF_ROWS = 50
N_LEAVES = 3

Key = tuple[int, ...]


@pytest.fixture
def store(tmp_path: Path) -> plm.RankingStore:
    """150 rankings of 4 items with ties, in 3 leaves."""
    rows = np.argsort(np.random.default_rng(0).gumbel(size=(N_LEAVES * LEAF_ROWS, 4)), axis=1)
    lines = "".join(f"1: {{{a},{b}}},{c},{d}\n" for a, b, c, d in (rows + 1).tolist())
    file = tmp_path / "votes.toc"
    file.write_text(f"# NUMBER ALTERNATIVES: 4\n{lines}")
    return plm.ingest(file, tmp_path / "store", format="preflib", leaf_rows=LEAF_ROWS)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Key]]:
    """Note every stream that any module of the package asks for; gives the keys of one purpose."""
    noted: list[tuple[int, str, Key]] = []
    real = sampling.generator

    def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
        noted.append((seed, purpose, key))
        return real(seed, purpose, *key)

    names = [module.name for module in pkgutil.walk_packages(plm.__path__, "plmix_dist.")]
    modules = [importlib.import_module(name) for name in names if name != "plmix_dist.__main__"]
    for module in modules:
        if getattr(module, "generator", None) is real:
            monkeypatch.setattr(module, "generator", generator)

    def keys_of(purpose: str) -> list[Key]:
        assert {seed for seed, of, _ in noted if of == purpose} == {SEED}
        return sorted(key for _, of, key in noted if of == purpose)

    return keys_of


def all_of(*sizes: int) -> list[Key]:
    """Every key once."""
    return sorted(product(*map(range, sizes)))


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_resampled_ties__another_stream_in_every_pass_and_leaf(store: Any, keys: Callable[[str], list[Key]]) -> None:
    model = plm.PlackettLuceMixture(2, ties="resample", max_iter=5, random_state=SEED).fit(store)
    assert keys("resample") == all_of(len(model.history_), N_LEAVES)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_stochastic_m_step__another_stream_for_every_start_pass_and_leaf(
    tmp_path: Path, keys: Callable[[str], list[Key]]
) -> None:
    plm.simulate(tmp_path / "s", n_rankings=N_LEAVES * LEAF_ROWS, n_items=4, leaf_rows=LEAF_ROWS, random_state=1)
    model = plm.PlackettLuceMixture(
        2, m_step="stochastic-lsr", init="random", n_init=3, max_iter=4, random_state=SEED, alpha=0.1
    )
    model.fit(tmp_path / "s")
    found = keys("memberships")
    assert len(set(found)) == len(found)
    assert {start for start, _, _ in found} == {0, 1, 2}
    assert {leaf for _, _, leaf in found} == set(range(N_LEAVES))
    assert {one for start, one, _ in found if start == 0} == set(range(4))
    assert keys("start") == all_of(3)


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
def test_gibbs__another_stream_for_every_chain_sweep_and_leaf(tmp_path: Path, keys: Callable[[str], list[Key]]) -> None:
    plm.simulate(tmp_path / "s", n_rankings=N_LEAVES * LEAF_ROWS, n_items=4, leaf_rows=LEAF_ROWS, random_state=1)
    plm.BayesianPlackettLuceMixture(2, n_chains=3, n_warmup=4, n_draws=4, init="prior", random_state=SEED).fit(
        tmp_path / "s"
    )
    sweeps = 1 + 4 + 4
    assert keys("gibbs-start") == all_of(3)
    assert keys("gibbs-parameters") == all_of(3, sweeps)
    assert keys("gibbs-rows") == all_of(3, sweeps, N_LEAVES)


def test_bootstrap__another_stream_for_every_replicate_and_leaf(
    tmp_path: Path, keys: Callable[[str], list[Key]]
) -> None:
    source = plm.simulate(
        tmp_path / "s", n_rankings=N_LEAVES * LEAF_ROWS, n_items=4, leaf_rows=LEAF_ROWS, random_state=1
    )
    model = plm.PlackettLuceMixture(1, random_state=0).fit(source)
    plm.bootstrap(model, source, 5, random_state=SEED)
    assert sorted(set(keys("bootstrap"))) == all_of(5, N_LEAVES)


def test_folds__another_stream_for_every_leaf(tmp_path: Path, keys: Callable[[str], list[Key]]) -> None:
    source = plm.simulate(
        tmp_path / "s", n_rankings=N_LEAVES * LEAF_ROWS, n_items=4, leaf_rows=LEAF_ROWS, random_state=1
    )
    plm.split(source, [tmp_path / "a", tmp_path / "b"], shares=[0.5, 0.5], random_state=SEED)
    assert sorted(set(keys("split"))) == all_of(N_LEAVES)
