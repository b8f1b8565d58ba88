"""The table of settings: name, kind of value, default, help, and who takes it.

`settings_of("fit")` are the settings of PlackettLuceMixture, of `plmix fit` and of jobs with task = "fit"; the same for
"select" and "bayes". Checks of estimators, options of verbs, keys of job files and the reference page are made from it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from plmix_dist.errors import SettingsError
from plmix_dist.settings import checks

_Parameters = ParamSpec("_Parameters")

TASKS = ("fit", "select", "bayes")
INITS = ("spectral", "random", "kernel", "moments")
BAYES_INITS = ("fit", "prior")
# Below this, prior draws of log-worths range further than kernels can compute with.
_LEAST_SHAPE = 0.05
# Longer lists of shares are shown by their shape.
_MOST_SHARES_SHOWN = 10


# --- kinds of values ---------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """What values a setting has: `check` takes a name and a value, `read` the text of a command line."""

    words: str
    check: Callable[[str, Any], Any]
    read: Callable[[str], Any] = str
    known: Sequence[str] = ()


def word(*known: str, because: str = "", also: Callable[[Any], bool] | None = None, more: str = "") -> Kind:
    """One of some words, or what `also` takes."""

    def check(name: str, value: Any) -> Any:
        return value if also is not None and also(value) else checks.one_of(name, value, known, because)

    return Kind(_listed(known) + more, check, known=known)


def _no_value(value: Any) -> bool:
    """Whether a value is None, for words that may be left out."""
    return value is None


# `rankings.ties.Davidson` makes these.
DAVIDSON_NAMES = r"davidson(?:-([3-9]))?(-each)?"


def _is_davidson(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(DAVIDSON_NAMES, value) is not None


def words(*known: str) -> Kind:
    """A list of some words."""

    def check(name: str, value: Any) -> list[str]:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise SettingsError(f"{name} must be a list of names, but is {checks.shown(value, str)}")
        return [checks.one_of(name, one, known) for one in value]

    return Kind("list of names", check, known=known)


def whole(at_least: int) -> Kind:
    """A whole number."""
    return Kind("whole number", functools.partial(checks.whole_number, at_least=at_least), _whole_if_one)


def _whole_or(*known: str) -> Kind:
    """A whole number from 1 on, or one of some words."""

    def check(name: str, value: Any) -> str | int:
        if isinstance(value, str) and value in known:
            return value
        if not checks.is_whole(value) or value < 1:
            raise SettingsError(
                f"{name} must be {', '.join(map(repr, known))} or a whole number from 1 on, but is "
                f"{checks.shown(value, str)}{checks.nearest(value, known)}"
            )
        return int(value)

    return Kind(f"{_listed(known)} or whole number", check, _whole_if_one, known)


def real(*, above: float | None = None, at_least: float | None = None, at_most: float | None = None) -> Kind:
    """A finite number in a range."""
    check = functools.partial(checks.real_number, above=above, at_least=at_least, at_most=at_most)
    return Kind("number", check, _real_if_one)


def _reals_per_item(at_least: float = 0.0, because: str = "") -> Kind:
    """A positive number, or one per item."""

    def check(name: str, value: Any) -> Any:
        found = checks.numbers(name, value)
        if found.ndim > 1 or not found.size or not np.isfinite(found).all() or not (found > 0).all():
            raise SettingsError(f"{name} must be a positive number, or one per item, but is {value!r}")
        if found.min() < at_least:
            raise SettingsError(f"{name} must be at least {at_least}, but its least is {found.min()}: {because}")
        return value

    return Kind("number or list of numbers", check, _reals)


def _check_shares(name: str, value: Any) -> Any:
    """Positive numbers that sum to 1; how many there must be depends on the number of components."""
    if value is None:
        return None
    found = checks.numbers(name, value)
    if found.ndim != 1 or not ((found > 0) & (found <= 1)).all() or not np.isclose(found.sum(), 1):
        words = found.tolist() if found.size <= _MOST_SHARES_SHOWN else f"of shape {found.shape}"
        raise SettingsError(f"{name} must be positive numbers that sum to 1, one per component, but is {words}")
    return value


def _check_component_numbers(name: str, value: Any) -> list[int]:
    """Several numbers of components, rising."""
    if isinstance(value, str):
        try:
            return list(checks.component_numbers(value))
        except SettingsError as error:
            raise SettingsError(f"{name}: {error}") from None
    if isinstance(value, bytes) or not hasattr(value, "__iter__"):
        raise SettingsError(
            f"{name} must be several numbers, such as range(2, 11), but is {checks.shown(value)}; to fit one number of "
            "components use PlackettLuceMixture"
        )
    found = sorted({checks.whole_number(name, number, at_least=1) for number in value})
    if not found:
        raise SettingsError(f"{name} names no number of components: {checks.shown(value)}")
    return found


def _check_progress(name: str, value: Any) -> Any:
    if not (value is None or isinstance(value, bool) or callable(value)):
        raise SettingsError(f"{name} must be True, a function or None, but is {checks.shown(value)}")
    return value


def _is_slates(value: Any) -> bool:
    """In Python a value, elsewhere JSON or the path of it."""
    return hasattr(value, "of_items") or (isinstance(value, str) and value.endswith((".json", "}")))


def _start(*known: str) -> Kind:
    """A name of a start or the folder of a model; in Python also values, which the estimator itself checks."""
    return Kind(f"{_listed(known)} or folder of a model", lambda _, value: value, known=known)


def _listed(known: Sequence[str]) -> str:
    return " or ".join(f'"{one}"' for one in known)


def _whole_if_one(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[+-]?\d{1,400}", text) else text


def _real_if_one(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _reals(text: str) -> Any:
    found = [_real_if_one(part) for part in text.split(",")]
    return found if len(found) > 1 else found[0]


def _python(words: str) -> Kind:
    """A value of Python alone, which the estimator itself checks."""
    return Kind(words, lambda _, value: value)


flag = Kind("true or false", checks.yes_or_no)
# `solvers.add_m_step` adds to these.
M_STEP_NAMES = ["auto", "lsr", "mm", "cml", "gmm", "stochastic-lsr"]
_M_STEP = Kind(_listed(M_STEP_NAMES), functools.partial(checks.one_of, known=M_STEP_NAMES), known=M_STEP_NAMES)
_several = Kind('text such as "2:10", or list of whole numbers', _check_component_numbers)
_shares = Kind("list of numbers", _check_shares, _reals)


# --- the table ---------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """A setting.

    `name` is the parameter of an estimator; of `field`, which says how a start of `starts` works, it is the name in
    verbs, job files and saved models. `text` is another spelling in verbs and job files, None if only Python has it.
    `table` is its table in a job file, `page` its page in the documentation. A `required` one must be given to verbs
    and jobs. `advanced` ones come last in `--help`.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    tasks: tuple[str, ...] = TASKS
    text: str | None = ""
    table: str = "model"
    required: bool = False
    advanced: bool = False
    starts: tuple[str, ...] = ()
    field: str = ""
    page: str = ""

    @property
    def spelling(self) -> str:
        """What it is called in verbs and job files, with underscores."""
        return self.text or self.name

    @property
    def option(self) -> str:
        """What it is called on the command line."""
        return f"--{self.spelling.replace('_', '-')}"

    @property
    def key(self) -> str:
        """What it is called in a job file."""
        return f"{self.table}.{self.spelling}".lstrip(".")


_FIT, _SELECT, _BAYES, _EM = ("fit",), ("select",), ("bayes",), ("fit", "select")
_CRITERIA = ("bic", "aic", "icl", "held-out", "paper")
_TIES = ("auto", "expand", "marginal", "resample", "half", "half-last", "davidson")
_CHOICES = ("plackett-luce", "slates", "best-worst", "maxdiff")
_COMPARED = "a selection compares likelihoods"

# To add a setting, add it here, as a parameter with the same default to the constructor, and to FitSettings or
# BayesSettings if the computation needs it. Names in registries (M_STEPS, TIES, LINKS ...) are repeated here because
# this room is below theirs; tests/settings/test_table.py compares them.
SETTINGS = (
    Setting("n_components", whole(1), 2, "Number of components.", ("fit", "bayes"), "components", required=True),
    Setting("n_components", _several, range(2, 11), "Numbers of components: 2:10 is 2 to 10; 2,3,5 is a "
            "list.", _SELECT, "components"),
    Setting("criterion", word(*_CRITERIA), "bic", "What decides.", _SELECT, page="choosing-k"),
    Setting("also", words(*_CRITERIA), (), "Further criteria for the table.", _SELECT),
    Setting("n_folds", whole(2), 5, "Number of folds of \"held-out\".", _SELECT, "folds"),
    Setting("method", word("paper", also=_no_value), None, "\"paper\": EM-LSR as published. It sets what is left at "
            "its default.", _EM, page="paper"),
    Setting("m_step", _M_STEP, "auto", "How worths are re-estimated; only lsr and mm end at the "
            "maximum of the likelihood.", _FIT, page="m-steps"),
    Setting("m_step", word("auto", "lsr", "mm", because=_COMPARED), "auto", "How worths are re-estimated.", _SELECT),
    Setting("init", _start(*INITS), "spectral", "How a fit begins; moments is for two components.", _FIT, table="start",
            page="fitting"),
    Setting("init", _start(*BAYES_INITS), "fit", "Where chains begin: around a fit by EM, at draws from the prior, or "
            "around a model.", _BAYES, table="start", page="bayes"),
    Setting("n_init", whole(1), 1, "Number of starts run to convergence.", _EM, table="start"),
    Setting("alpha", real(at_least=0, at_most=1e100), 1.0, "Strength of the prior; 0 for none.", _EM, page="fitting"),
    Setting("shares", _shares, None, "Fixed mixing shares, one per component; estimated if left out.", _FIT),
    Setting("ties", word(*_TIES, also=_is_davidson), "auto", "How items that share a place are treated; auto is half "
            "for battles, expand for all other rows; davidson-3 has ties of up to 3 items, davidson-each parameters "
            "for each component.", _FIT, page="ties-and-groups"),
    Setting("ties", word(*(one for one in _TIES if one != "resample"), also=_is_davidson, because=_COMPARED), "auto",
            "How items that share a place are treated.", _SELECT, page="ties-and-groups"),
    Setting("choices", word(*_CHOICES, also=_is_slates, more=" or path of slates"), "plackett-luce", "What the choices "
            "of a row are; or a JSON file with the items of each slate, which \"slates\" finds.", _EM, page="choices"),
    Setting("noise", flag, False, "Whether to add a component with equal worths, whose share is estimated.", _FIT,
            page="noise"),
    Setting("tol", real(above=0), 1e-8, "Bound on gradient and change of the objective, divided by total weight.", _EM),
    Setting("max_iter", whole(1), 500, "The most iterations.", _EM),
    Setting("n_chains", whole(1), 4, "Number of chains.", _BAYES, "chains"),
    Setting("n_warmup", whole(0), 500, "Sweeps of each chain that are dropped.", _BAYES, "warmup"),
    Setting("n_draws", whole(1), 1000, "Draws that each chain keeps.", _BAYES, "draws"),
    Setting("thin", whole(1), 1, "Keep one sweep in this many.", _BAYES),
    Setting("worth_shape", _reals_per_item(at_least=_LEAST_SHAPE, because="log-worths drawn from such a prior range "
            "too far to be computed with"), 1.0, "Shape of the gamma prior of worths; larger numbers pull worths "
            "together.", _BAYES),
    Setting("share_concentration", real(at_least=1e-3, at_most=1e9), 1.0, "Concentration of the Dirichlet prior of "
            "shares.", _BAYES),
    Setting("em", word("fused", "exact"), "fused", "One M-step per pass, or M-steps solved to their ends.", _EM,
            advanced=True, page="fitting"),
    Setting("accelerate", flag, True, "Whether to use Anderson and Newton steps.", _EM, advanced=True),
    Setting("worth_rate", _reals_per_item(), 1.0, "Rate of the gamma prior of worths; only ratios between items "
            "matter.", _BAYES, advanced=True),
    Setting("residency", word("auto", "memory", "store"), "auto", "Whether rows stay in memory between passes.",
            advanced=True),
    Setting("embedding", word("auto", "pairwise", "rank"), "auto", "How a spectral start turns rankings into vectors.",
            _EM, table="start", advanced=True, starts=("spectral",), field="embedding"),
    Setting("svd_rank", _whole_or("auto", "paper"), "auto", "Number of singular vectors of a spectral start: those "
            "above the noise, those above the paper's threshold, or this many.", _EM, table="start", advanced=True,
            starts=("spectral",), field="rank"),
    Setting("svd_threshold", real(above=0), 1.0, "Multiplies the threshold of svd_rank = \"paper\".", _EM,
            table="start", advanced=True, starts=("spectral",), field="threshold"),
    Setting("cluster_worths", word("least-squares", "lsr"), "least-squares", "How a spectral start estimates the "
            "worths of a cluster.", _EM, table="start", advanced=True, starts=("spectral",), field="cluster_worths"),
    Setting("link", word("logit", "probit"), "logit", "Relates frequencies of pairs to differences of log-worths, in "
            "spectral and kernel starts.", _EM, table="start", advanced=True, starts=("spectral", "kernel"),
            field="link"),
    Setting("kernel", word("kendall", "mallows"), "kendall", "Similarity of rankings in a kernel start.", _FIT,
            table="start", advanced=True, starts=("kernel",), field="kernel"),
    Setting("estimator", _python("a PlackettLuceMixture"), None, "The settings of all fits.", _SELECT, None),
    Setting("unranked", word("below", "absent", also=_no_value), None, "What unlisted items of an array mean; a store "
            "knows it.", text=None),
    Setting("random_state", _python("a whole number from 0 on, a numpy RandomState or Generator, or None"), None,
            "Random seed; verbs and job files have `seed`, which is 0 by default.", text=None),
    Setting("progress", Kind("True, a function or None", _check_progress), None, "What is called with each iteration; "
            "verbs show it on stderr.", text=None),
    Setting("checkpoint", _python("a folder, a URL or a Checkpoint"), None, "Where the state is saved; verbs have "
            "`--checkpoint`, job files the table `[checkpoint]`.", text=None, page="checkpoints"),
)  # fmt: skip


@functools.cache
def settings_of(task: str) -> dict[str, Setting]:
    """The settings of a task by name, in the order of the table; fields of starts too.

    Examples
    --------
    >>> settings_of("fit")["alpha"].default, settings_of("bayes")["init"].default
    (1.0, 'fit')
    """
    return {setting.name: setting for setting in SETTINGS if task in setting.tasks}


def start_fields(start: str) -> dict[str, Setting]:
    """The settings that say how a start works, by their names in its value: `rank` is `svd_rank`."""
    return {setting.field: setting for setting in SETTINGS if start in setting.starts}


def default_of(name: str, task: str = "fit") -> Any:
    """The default of a setting."""
    return settings_of(task)[name].default


def check_settings(task: str, given: Mapping[str, Any]) -> None:
    """An error for the first value that its setting refuses; names that are not settings are left alone."""
    known = settings_of(task)
    for name, value in given.items():
        if name in known:
            known[name].kind.check(name, value)


def take_settings(task: str, settings: Any) -> None:
    """Check the fields of a frozen dataclass of settings; NumPy's numbers become Python's, which do not overflow."""
    known = settings_of(task)
    for field in dataclasses.fields(settings):
        if field.name in known:
            value = getattr(settings, field.name)
            checked = known[field.name].kind.check(field.name, value)
            object.__setattr__(settings, field.name, checked if isinstance(value, np.generic) else value)


# --- names that are gone -----------------------------------------------------------------------------------


def refuse_start_fields(init: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
    """A constructor that refuses the names of fields of starts, which were its own parameters, with their new spelling.

    Examples
    --------
    >>> plm.PlackettLuceMixture(2, svd_rank=3)
    Traceback (most recent call last):
    ...
    TypeError: svd_rank says how a start works and is not a parameter; write init=plm.Spectral(rank=...)
    """

    @functools.wraps(init)
    def checked(*args: _Parameters.args, **given: _Parameters.kwargs) -> None:
        for start, value in (("spectral", "Spectral"), ("kernel", "KernelStart")):
            for field, setting in start_fields(start).items():
                if setting.name in given:
                    raise TypeError(
                        f"{setting.name} says how a start works and is not a parameter; write "
                        f"init=plm.{value}({field}=...)"
                    )
        init(*args, **given)

    return checked
