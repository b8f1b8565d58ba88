"""One rule for places that are written to: nothing is replaced unless asked, and only results of the same kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import plmix_dist
from plmix_dist import MixtureParams, PlackettLuceMixture, open_store
from plmix_dist.errors import SettingsError, StoreExistsError
from plmix_dist.store import Location, targets
from tests.cli import common, conftest
from tests.helpers.ingest_helpers import printed_json
from tests.helpers.oracle import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Said = common.Said
plmix = conftest.plmix  # the fixture that runs a command in this process


VERBS = ("ingest", "simulate", "split", "fit", "predict", "export")


REPLACE = "choose another path, or replace it with --force"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with text files, a store of each, and a model."""
    for name, votes in (("one", "30,tea coffee\n20,coffee tea\n"), ("two", "90,tea coffee\n10,coffee tea\n")):
        (tmp_path / f"{name}.csv").write_text(f"count,ordering\n{votes}")
        plmix_dist.ingest(tmp_path / f"{name}.csv", tmp_path / name)
    PlackettLuceMixture(1).fit(tmp_path / "one").save(tmp_path / "model")
    PlackettLuceMixture(1).fit(tmp_path / "two").save(tmp_path / "other-model")
    return tmp_path


def command(verb: str, root: Path, out: Path, variant: int) -> list[Any]:
    """A command that writes to `out`; the two variants give different results."""
    source = root / ("one", "two")[variant]
    commands: dict[str, list[Any]] = {
        "ingest": ["ingest", f"{source}.csv", out],
        "simulate": ["simulate", out, "--rankings", 50 + variant, "--items", 3],
        "split": ["split", source, out, f"{out}.npy", "--shares", "0.5,0.5"],
        "fit": ["fit", source, "--components", 1, "--out", out],
        "predict": ["predict", root / ("model", "other-model")[variant], source, out],
        "export": ["export", source, out],
    }
    return [*commands[verb], *(["--format", "orderings"] if verb == "export" else ["--workers", 0])]


def written(root: Path, out: Path) -> dict[str, bytes]:
    """What a verb wrote: the bytes of arrays and files, without the records that hold times."""
    found = {**snapshot(out), **{f"npy/{key}": value for key, value in snapshot(out.parent).items()}}
    if out.is_file():
        return {"": out.read_bytes()}
    if (out / "model.json").exists():  # its arrays may have other names, if others were there before
        return {"log_worths": MixtureParams.load(out).log_worths.tobytes()}
    return {key: data for key, (_, data) in found.items() if not key.endswith((".json", ".csv"))}


@pytest.mark.promise(40)
@pytest.mark.parametrize("verb", VERBS)
def test_twice__nothing_or_refused(root: Path, plmix: Callable[..., Said], verb: str) -> None:
    out = root / "results" / "out"
    out.parent.mkdir()
    assert plmix(*command(verb, root, out, 0)).code == 0
    before = snapshot(out.parent)
    again = plmix(*command(verb, root, out, 0))
    if verb == "export":  # a file does not say what it was made from
        assert (again.code, again.out) == (1, "")
        assert f"{out} exists already; {REPLACE}" in again.err
    else:
        assert (again.code, again.err) == (0, "")
    if verb != "export":
        assert again.out.splitlines()[-1].startswith("nothing to do  ")
    assert snapshot(out.parent) == before
    other = plmix(*command(verb, root, out, 1))
    assert (other.code, other.out) == (1, "")
    assert REPLACE in other.err
    assert snapshot(out.parent) == before


@pytest.mark.parametrize("verb", VERBS)
def test_force__replaces_the_same_kind(root: Path, plmix: Callable[..., Said], verb: str) -> None:
    out, fresh = root / "results" / "out", root / "fresh" / "out"
    out.parent.mkdir()
    fresh.parent.mkdir()
    assert plmix(*command(verb, root, out, 0)).code == 0
    said = plmix(*command(verb, root, out, 1), "--force")
    assert (said.code, said.err) == (0, "")
    assert "nothing to do" not in said.out
    assert plmix(*command(verb, root, fresh, 1)).code == 0
    assert written(root, out) == written(root, fresh)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "export"])
@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_folder_of_the_user__is_never_touched(
    root: Path, plmix: Callable[..., Said], verb: str, force: list[str]
) -> None:
    out = root / "mine"
    (out / "thesis").mkdir(parents=True)
    (out / "thesis" / "chapter.txt").write_text("years of work")
    said = plmix(*command(verb, root, out, 0), *force)
    assert (said.code, said.out) == (1, "")
    assert f"{out} holds other files, such as thesis" in said.err
    assert list(snapshot(out)) == ["thesis/chapter.txt"]


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "export"])
def test_force__spares_what_is_not_part_of_the_result(root: Path, plmix: Callable[..., Said], verb: str) -> None:
    out = root / "out"
    assert plmix(*command(verb, root, out, 0)).code == 0
    (out / "notes.txt").write_text("mine")
    before = snapshot(out)
    said = plmix(*command(verb, root, out, 1), "--force")
    assert said.code == 1
    assert f"{out} holds other files, such as notes.txt" in said.err
    assert snapshot(out) == before


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "export"])
@pytest.mark.parametrize("there", ["one", "model", "memberships"])
def test_force__another_kind_is_refused(root: Path, plmix: Callable[..., Said], verb: str, there: str) -> None:
    assert plmix("predict", root / "model", root / "two", root / "memberships").code == 0
    kinds = {"ingest": "a store", "simulate": "a store", "split": "a store", "fit": "a model"}
    kind = kinds.get(verb, "memberships")
    found = {"one": "a store", "model": "a model", "memberships": "memberships"}[there]
    if kind == found:
        return
    before = snapshot(root / there)
    said = plmix(*command(verb, root, root / there, 1), "--force")
    assert said.code == 1
    assert f"{root / there} holds {found}, and {kind} cannot be written there" in said.err
    assert snapshot(root / there) == before


def test_store__not_into_the_folder_of_its_sources(root: Path, plmix: Callable[..., Said]) -> None:
    (root / "races").mkdir()
    (root / "races" / "a.csv").write_text("count,ordering\n3,tea coffee\n2,coffee tea\n")
    for source in (root / "races" / "a.csv", root / "races" / "*.csv", f"file://{root}/races/*.csv"):
        for force in ([], ["--force"]):
            said = plmix("ingest", source, root / "races", *force)
            assert said.code == 1
            assert f"{root / 'races'} is the folder of {source}; a store needs a folder of its own" in said.err
    assert list(snapshot(root / "races")) == ["a.csv"]
    # Beside the folder, or in a folder inside it, is fine; and so is an empty folder.
    (root / "empty").mkdir()
    for target in ("races-store", "races/store", "empty"):
        assert plmix("ingest", root / "races" / "*.csv", root / target).code == 0
        assert open_store(root / target).total_weight == 5


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_source__is_never_replaced(root: Path, plmix: Callable[..., Said], force: list[str]) -> None:
    before = snapshot(root / "one")
    said = plmix("split", root / "one", root / "one", root / "test", *force)
    assert f"{root / 'one'} is what the result is made from" in said.err
    said = plmix("export", root / "one", root / "one" / "votes.csv", *force)
    assert f"{root / 'one/votes.csv'} is inside {root / 'one'}, which is read" in said.err
    assert snapshot(root / "one") == before


def test_fit__says_what_differs(root: Path, plmix: Callable[..., Said]) -> None:
    fit = ["fit", root / "one", "--components", 1, "--out", root / "out"]
    assert plmix(*fit, "--tol", 1e-6).code == 0
    said = plmix(*fit, "--seed", 3)
    assert said.code == 1
    assert "already holds another model (seed is 0 there and 3 here; --tol is 1e-06 there and 1e-08 here)" in said.err
    # Where it runs and where rows are kept change no bit.
    same = plmix(*fit, "--tol", 1e-6, "--residency", "store", "--workers", 0, "--json")
    assert same.code == 0
    assert printed_json(same.out)["changed"] is False
    # Other rankings under the same path.
    assert plmix("ingest", root / "two.csv", root / "one", "--force").code == 0
    assert "already holds another model (rankings is " in plmix(*fit, "--tol", 1e-6).err


def test_fit__twice_without_converging_keeps_its_exit_code(root: Path, plmix: Callable[..., Said]) -> None:
    plmix_dist.simulate(root / "drawn", n_rankings=500, n_items=6, n_components=2, random_state=0)
    fit = ["fit", root / "drawn", "--components", 2, "--out", root / "out", "--max-iter", 1]
    assert [plmix(*fit).code for _ in range(2)] == [4, 4]


def test_simulate__parameters_beside_the_store(root: Path, plmix: Callable[..., Said]) -> None:
    simulate = ["simulate", root / "drawn", "--rankings", 50, "--items", 3]
    PlackettLuceMixture(1).fit(root / "one").save(root / "drawn.truth")
    before = snapshot(root / "drawn.truth")
    said = plmix(*simulate)
    assert said.code == 1
    assert f"{root / 'drawn.truth'} already holds other parameters; {REPLACE}" in said.err
    assert snapshot(root / "drawn.truth") == before
    assert not (root / "drawn").exists()
    assert plmix(*simulate, "--force").code == 0
    assert MixtureParams.load(root / "drawn.truth").log_worths.shape == (1, 3)


def test_force__repairs_a_damaged_result(root: Path, plmix: Callable[..., Said]) -> None:
    before = written(root, root / "one")
    manifest = root / "one" / "manifest.json"
    manifest.write_text(manifest.read_text()[:-10])
    assert plmix("ingest", root / "one.csv", root / "one").code == 1
    assert plmix("ingest", root / "one.csv", root / "one", "--force").code == 0
    assert written(root, root / "one") == before


def test_force__continues_its_own_unfinished_run(
    root: Path, plmix: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from plmix_dist.store import writer

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    simulate = ["simulate", root / "one", "--rankings", 9_000, "--items", 3, "--force", "--workers", 0]
    with monkeypatch.context() as patch:
        patch.setattr(writer.WriteSession, "finalise", stopped)
        assert plmix(*simulate).code == 130
    stamps = {key: stamp for key, (stamp, _) in snapshot(root / "one").items() if key.startswith("partitions/")}
    assert stamps
    assert plmix(*simulate).code == 0
    after = snapshot(root / "one")
    assert {key: after[key][0] for key in stamps} == stamps


def test_python__overwrite(root: Path) -> None:
    with pytest.raises(StoreExistsError, match="already holds another store, of 2 rankings"):
        plmix_dist.ingest(root / "two.csv", root / "one")
    assert plmix_dist.ingest(root / "two.csv", root / "one", overwrite=True).total_weight == 100
    with pytest.raises(SettingsError, match="choose one of them"):
        plmix_dist.ingest(root / "two.csv", root / "one", overwrite=True, append=True)
    with pytest.raises(StoreExistsError, match=r"two\.csv exists already"):
        plmix_dist.export(root / "one", root / "two.csv")
    plmix_dist.export(root / "one", root / "two.csv", overwrite=True)


def test_python__save_replaces_models_alone(root: Path) -> None:
    model = PlackettLuceMixture(1).fit(root / "two")
    model.save(root / "model", about={"project": "tea"})
    assert json.loads((root / "model/model.json").read_text())["project"] == "tea"
    assert np.array_equal(PlackettLuceMixture.load(root / "model").log_worths_, model.log_worths_)
    for place in ("one", "."):
        with pytest.raises(StoreExistsError, match="choose another path"):
            model.save(root / place)


def test_remote__the_same_rule(memory_place: Location, root: Path) -> None:
    memory_place.write_bytes("thesis/chapter.txt", b"years of work")
    with pytest.raises(StoreExistsError, match="holds other files, such as thesis"):
        plmix_dist.ingest(root / "one.csv", memory_place, overwrite=True)
    memory_place.remove("thesis")
    plmix_dist.ingest(root / "one.csv", memory_place)
    assert targets.kind_at(memory_place) == "store"
    assert plmix_dist.ingest(root / "two.csv", memory_place, overwrite=True).total_weight == 100


def test_differences__at_most_five() -> None:
    mine, there = ({f"s{n}": n * factor for n in range(1, 8)} for factor in (1, 2))
    assert targets.differences(mine, there).endswith("s5 is 10 there and 5 here; and 2 more")
    assert targets.differences({"a": "x" * 99}, {}) == f"a is None there and {'x' * 37}... here"
