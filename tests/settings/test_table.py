"""Every setting is declared once: estimators, verbs and job files take the same settings, defaults and messages."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import plmix_dist as pl
from plmix_dist.cli import plmix
from plmix_dist.errors import JobError, SettingsError
from plmix_dist.fitting.criteria import CRITERIA
from plmix_dist.fitting.methods import _METHODS
from plmix_dist.fitting.starts.clusters import _LINKS
from plmix_dist.fitting.starts.kernel import _SIMILARITIES
from plmix_dist.jobs.file import KEYS, _job_of
from plmix_dist.jobs.results import Work
from plmix_dist.rankings.checks import LARGEST_WEIGHT
from plmix_dist.rankings.ties import TIES
from plmix_dist.settings import INITS, SETTINGS, TASKS, seed_of, settings_of, start_fields
from plmix_dist.settings.table import Setting, real, whole
from plmix_dist.solvers import M_STEPS

ESTIMATORS: dict[str, Any] = {
    "fit": pl.PlackettLuceMixture,
    "select": pl.MixtureSelection,
    "bayes": pl.BayesianPlackettLuceMixture,
}
STARTS: dict[str, Any] = {"spectral": pl.Spectral, "kernel": pl.KernelStart, "moments": pl.Moments, "random": pl.Random}
ROWS = [[0, 1, 2, 3]] * 6 + [[3, 2, 1, 0]] * 3
OF_TEXT = [(task, setting) for task in TASKS for setting in settings_of(task).values() if setting.text is not None]
EVERY = pytest.mark.parametrize(
    ("task", "setting"), OF_TEXT, ids=[f"{task}-{setting.name}" for task, setting in OF_TEXT]
)


def defaults_of(made: Any) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(made).parameters.items()}


@pytest.mark.parametrize("task", TASKS)
def test_estimator__has_the_settings_and_defaults_of_the_table(task: str) -> None:
    known = {name: setting.default for name, setting in settings_of(task).items() if not setting.field}
    found = defaults_of(ESTIMATORS[task])
    if task == "select":  # the other settings are those of its fits
        fits = defaults_of(pl.PlackettLuceMixture)
        assert {name: fits[name] for name in known if name not in found} == {
            name: default for name, default in known.items() if name not in found
        }
        known = {name: default for name, default in known.items() if name in found}
    assert found == known


def test_estimator__has_at_most_19_parameters() -> None:
    assert len(defaults_of(pl.PlackettLuceMixture)) <= 19


@pytest.mark.parametrize("start", INITS)
def test_start__has_the_fields_and_defaults_of_the_table(start: str) -> None:
    expected = {field: setting.default for field, setting in start_fields(start).items()}
    assert defaults_of(STARTS[start]) == expected
    assert repr(STARTS[start]()) == f"{STARTS[start].__name__}()"


def test_start__is_shown_with_the_fields_that_are_not_at_their_defaults() -> None:
    assert repr(pl.Spectral(rank=2, link="probit")) == "Spectral(rank=2, link='probit')"


@pytest.mark.parametrize("task", TASKS)
def test_verb__has_the_options_and_defaults_of_the_table(task: str) -> None:
    verb = plmix.commands[task]
    found = {param.name: param for param in verb.params if isinstance(param, click.Option)}
    context = click.Context(verb, info_name=task)
    for name, setting in settings_of(task).items():
        if setting.text is None:
            # Checkpoints have options of their own; a file that is not a store is read as --unranked says.
            assert name not in found or name == "checkpoint" or (task, name) == ("fit", "unranked")
            continue
        assert setting.option in found[name].opts
        assert found[name].required == setting.required
        if not setting.required:
            default = found[name].type_cast_value(context, found[name].get_default(context))
            expected = setting.default
            assert default == (list(expected) if isinstance(expected, range) else expected)


@pytest.mark.parametrize("task", TASKS)
def test_verb__ordinary_options_come_first(task: str) -> None:
    text = CliRunner().invoke(plmix, [task, "--help"]).output
    ordinary, _, advanced = text.partition("\nAdvanced options:\n")
    for setting in settings_of(task).values():
        if setting.text is not None:
            assert f"{setting.option} " in (advanced if setting.advanced else ordinary)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settings")
    pl.simulate(folder / "ballots", n_rankings=30, n_items=4, random_state=1)
    return folder


def job_with(place: Path, task: str, values: dict[str, Any]) -> Any:
    """The job of these settings, by their keys."""
    given: dict[str, Any] = {"task": task, "data": {"store": "ballots"}, "outputs": {"folder": "out"}}
    for key, value in {"model.components": 2 if task != "select" else [2, 3], **values}.items():
        table, _, name = key.partition(".")
        given.setdefault(table, {})[name] = value
    return _job_of(given, place)


@pytest.mark.parametrize("task", TASKS)
def test_job__has_the_keys_and_defaults_of_the_table(task: str, place: Path) -> None:
    known = {name: setting for name, setting in settings_of(task).items() if setting.text is not None}
    work = job_with(place, task, {}).work
    assert set(work.settings) == set(known)
    for name, setting in known.items():
        if name != "n_components":
            expected = setting.default
            assert work.settings[name] == (list(expected) if isinstance(expected, tuple) else expected)
    keys = {setting.key for setting in SETTINGS if setting.text is not None}
    other = {"model.seed", "start.warm"}
    assert {key.key for key in KEYS if key.key.startswith(("model.", "start."))} == keys | other


# A value that each kind refuses, as Python and job files write it, and as a shell does.
def wrong_value(setting: Setting) -> tuple[Any, str]:
    words = setting.kind.words
    if words.endswith("whole numbers"):
        return "5:2", "5:2"
    if words.endswith("list of names"):
        return ["bicc"], "bicc"
    if words == "list of numbers":
        return [0.5, 0.6], "0.5,0.6"
    if setting.kind.known:
        return "nothing", "nothing"
    return -1 if words == "whole number" else -1.0, "-1"


# A value of these kinds that can be read and is refused is not an error of usage: exit code 1.
NUMBERS = ("number", "list of numbers", "number or list of numbers", '"auto" or "paper" or whole number')


@EVERY
def test_wrong_value__the_same_message_everywhere(task: str, setting: Setting, place: Path) -> None:
    if setting.name == "init" or isinstance(setting.default, bool):
        pytest.skip("a path may be any text; a switch has no value")
    value, text = wrong_value(setting)
    said = message(task, setting, value)
    assert said.startswith((f"{setting.name} must be", f"{setting.name}: "))
    expected = said.removeprefix(setting.name)
    required = [] if setting.name == "n_components" else ["--components", "2"]
    result = CliRunner().invoke(plmix, [task, "s", "--out", "m", *required, setting.option, text])
    if setting.kind.words in NUMBERS:
        assert str(result.exception) == f"{setting.option}{expected}"
        assert isinstance(result.exception, SettingsError)
    else:
        assert result.exit_code == 2
        assert f"Error: {setting.option}{expected}\n" in result.output
    with pytest.raises(JobError) as caught:
        job_with(place, task, {setting.key: value})
    assert str(caught.value) == f"this job is wrong:\n  {setting.key}{expected}"


def message(task: str, setting: Setting, value: Any) -> str:
    """The message that Python gives for a value: of the estimator, or of the start that has it as a field."""
    with pytest.raises(SettingsError) as caught:
        use_in_python(task, setting, value)
    said = str(caught.value)
    return setting.name + said.removeprefix(setting.field) if setting.field else said


def use_in_python(task: str, setting: Setting, value: Any) -> None:
    given = {setting.name: value}
    if setting.field:
        STARTS[setting.starts[0]](**{setting.field: value})
    elif setting.name in defaults_of(ESTIMATORS[task]):
        ESTIMATORS[task](**given).fit(ROWS)
    else:
        pl.MixtureSelection([2], estimator=pl.PlackettLuceMixture(**given)).fit(ROWS)


def test_registries__have_the_names_of_the_table() -> None:
    of_fit = settings_of("fit")
    known = {name: setting.kind.known for name, setting in of_fit.items()}
    assert known["m_step"] == ["auto", *M_STEPS]
    assert known["ties"] == (*TIES, "davidson")  # made when it is asked for, as are its orders
    assert known["link"] == tuple(_LINKS)
    assert known["kernel"] == tuple(_SIMILARITIES)
    assert known["method"] == tuple(_METHODS)
    assert settings_of("select")["criterion"].kind.known == tuple(CRITERIA)
    likely = [name for name, m_step in M_STEPS.items() if m_step.objective is not None]
    assert settings_of("select")["m_step"].kind.known == ("auto", *likely)
    of_fit["alpha"].kind.check("alpha", LARGEST_WEIGHT)
    with pytest.raises(SettingsError, match="at most"):
        of_fit["alpha"].kind.check("alpha", 2 * LARGEST_WEIGHT)


def test_reference__lists_every_setting() -> None:
    tables = runpy.run_path(str(Path(__file__).parents[2] / "docs/_ext/tables.py"))
    found = tables["rows"]()
    assert len(found) == len(SETTINGS)
    assert all(len(row) == len(tables["HEADER"]) for row in found)
    assert any("Spectral(rank=)" in row and "--svd-rank" in row and "start.svd_rank" in row for row in found)


# --- what a result was made from ---------------------------------------------------------------------------


def test_made_from__a_record_without_a_setting_had_its_default(place: Path) -> None:
    """Settings that are added later, and residency, do not make a result another one."""
    from plmix_dist.jobs.results import is_same

    store = pl.open_store(place / "ballots")
    given = {name: setting.default for name, setting in settings_of("fit").items() if setting.text is not None}
    mine = Work("fit", given, seed=3).made_from(store)
    older = {name: value for name, value in mine.items() if name != "shares"}
    assert is_same(mine, older)
    assert not is_same(mine, older | {"shares": [0.5, 0.5]})
    assert is_same(mine, Work("fit", given | {"residency": "store"}, seed=3).made_from(store))
    of_a_job = mine | {"method": "fit", "covariates": None}  # as jobs once wrote it
    assert is_same(mine, of_a_job)


@EVERY
def test_made_from__every_setting_that_changes_bits_counts(task: str, setting: Setting, place: Path) -> None:
    from plmix_dist.jobs.results import is_same

    store = pl.open_store(place / "ballots")
    given = {name: each.default for name, each in settings_of(task).items() if each.text is not None}
    others = {"fit": "prior", "spectral": "random", "plackett-luce": "maxdiff"}
    other = others.get(setting.default, "another")
    one, two = (Work(task, values).made_from(store) for values in (given, given | {setting.name: other}))
    assert is_same(one, two) == (setting.name == "residency")
    assert not is_same(one, Work(task, given, seed=1).made_from(store))


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        ({"above": 0}, [5e-324, 1], [0, -1]),
        ({"at_least": 0}, [0, 1], [-5e-324]),
        ({"at_most": 1}, [1, 0], [1 + 2**-52]),
        ({"at_least": 1, "at_most": 2}, [1, 2], [0.5, 2.5]),
    ],
    ids=str,
)
def test_real__bounds_to_the_last_bit(bounds: dict[str, float], inside: list[float], outside: list[float]) -> None:
    assert [real(**bounds).check("x", value) for value in inside] == inside
    for value in [*outside, float("nan"), float("inf"), True, "1"]:
        with pytest.raises(SettingsError, match=r"^x must be a finite number"):
            real(**bounds).check("x", value)


@pytest.mark.parametrize("at_least", [0, 1, 2])
def test_whole__bound(at_least: int) -> None:
    assert whole(at_least).check("x", at_least) == at_least
    for value in (at_least - 1, float(at_least), True, "1"):
        with pytest.raises(SettingsError, match=f"^x must be a whole number from {at_least} on"):
            whole(at_least).check("x", value)


def test_seeds__of_generators_are_below_the_largest_seed() -> None:
    drawn = [seed_of(np.random.default_rng(number)) for number in range(200)]
    assert 2**62 < max(drawn) < 2**63
    assert len(set(drawn)) == 200
    assert seed_of(np.random.RandomState(0)) == 2357136044  # the first 32 bits of MT19937 with this seed


def test_worth_shape__every_item_is_above_the_least() -> None:
    with pytest.raises(SettingsError, match=r"worth_shape must be at least .*, but its least is 1e-12"):
        settings_of("bayes")["worth_shape"].kind.check("worth_shape", [1.0, 1e-12, 2.0])


@pytest.mark.filterwarnings("ignore::plmix_dist.errors.NotConvergedWarning")
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint64])
def test_settings__small_integers_of_numpy_do_not_overflow(kind: type[np.integer[Any]]) -> None:
    rows = [[0, 1, 2]] * 6 + [[2, 1, 0]] * 3 + [[1, 0, 2]]
    given: dict[str, Any] = {"n_components": 2, "n_init": 3, "max_iter": 100, "random_state": 1}
    plain = pl.PlackettLuceMixture(**given).fit(rows)
    fitted = pl.PlackettLuceMixture(**{name: kind(value) for name, value in given.items()}).fit(rows)
    np.testing.assert_array_equal(fitted.log_worths_, plain.log_worths_)
    given = {"n_components": 2, "n_chains": 2, "n_warmup": 5, "n_draws": 9, "random_state": 0}
    sampled = pl.BayesianPlackettLuceMixture(**{name: kind(value) for name, value in given.items()}).fit(rows)
    assert sampled.draws_.shares.shape == (2, 9, 2)
    assert pl.SpectralPlackettLuce(kind(2), random_state=0).fit(rows).log_worths_.shape == (2, 3)
