"""Starts as values: Spectral, KernelStart, Moments, Random; what fits and saved models have in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from plmix_dist.errors import SettingsError
from plmix_dist.settings import INITS, SETTINGS, one_of, shown, start_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plmix_dist.fitting.methods import FitSettings

# Settings that say how a start works, and their defaults; saved models and fingerprints have all of them.
_FLAT = {setting.name: setting.default for setting in SETTINGS if setting.field}


class _StartValue:
    """A start as a value: frozen and comparable; scikit-learn's `clone` keeps it."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field, setting in start_fields(self.name).items():
            setting.kind.check(field, getattr(self, field))

    def __sklearn_clone__(self) -> Self:
        return self

    def __repr__(self) -> str:
        """Fields that are not at their defaults, as estimators show their parameters."""
        fields = start_fields(self.name)
        own = {name: getattr(self, name) for name in fields}
        given = [f"{name}={value!r}" for name, value in own.items() if value != fields[name].default]
        return f"{type(self).__name__}({', '.join(given)})"


@dataclass(frozen=True, repr=False)
class Spectral(_StartValue):
    """A spectral start: rankings become vectors, an SVD reduces them, k-means clusters them (docs/fitting.md).

    Parameters
    ----------
    embedding
        How a ranking becomes a vector: "rank" (one number per item), "pairwise" (one number per pair of items, as in
        the paper; the SVD is dask-ml's), or "auto", which is "rank" unless the rank is "paper".
    rank
        How many singular vectors are used: those above the noise ("auto"), those above the paper's threshold
        ("paper"), or a number.
    threshold
        The paper's threshold is multiplied by this, for rank="paper".
    cluster_worths
        How the worths of a cluster are estimated: "least-squares", from frequencies of pairs, or "lsr", one
        Plackett-Luce model per cluster by Luce spectral ranking.
    link
        Relates frequencies of pairs to differences of log-worths: "logit" (Plackett-Luce) or "probit" (Thurstone).

    Examples
    --------
    >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
    >>> model = plm.PlackettLuceMixture(2, init=plm.Spectral(embedding="pairwise", rank=1), random_state=0)
    >>> model.fit(rankings).init_["rank"]
    1
    >>> plm.Spectral(rank=1) == plm.Spectral(rank=2)
    False
    """

    name: ClassVar[str] = "spectral"

    embedding: Literal["auto", "pairwise", "rank"] = "auto"
    rank: Literal["auto", "paper"] | int = "auto"
    threshold: float = 1.0
    cluster_worths: Literal["least-squares", "lsr"] = "least-squares"
    link: Literal["logit", "probit"] = "logit"


@dataclass(frozen=True, repr=False)
class KernelStart(_StartValue):
    """A start that clusters a small sample by a similarity of rankings and semidefinite programming (docs/fitting.md).

    Parameters
    ----------
    kernel
        The similarity of partial rankings: "kendall" or "mallows".
    link
        Relates frequencies of pairs to differences of log-worths: "logit" (Plackett-Luce) or "probit" (Thurstone).

    Examples
    --------
    >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
    >>> model = plm.PlackettLuceMixture(2, init=plm.KernelStart(kernel="mallows"), random_state=0).fit(rankings)
    >>> model.init_["kernel"]
    'mallows'
    """

    name: ClassVar[str] = "kernel"

    kernel: Literal["kendall", "mallows"] = "kendall"
    link: Literal["logit", "probit"] = "logit"


@dataclass(frozen=True, repr=False)
class Moments(_StartValue):
    """A start that fits the frequencies of the first three places, for two components (docs/fitting.md).

    Examples
    --------
    >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
    >>> plm.PlackettLuceMixture(2, init=plm.Moments(), random_state=0).fit(rankings).init_["method"]
    'moments'
    """

    name: ClassVar[str] = "moments"


@dataclass(frozen=True, repr=False)
class Random(_StartValue):
    """Standard normal log-worths and equal shares.

    Examples
    --------
    >>> rankings = [[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 10
    >>> plm.PlackettLuceMixture(2, init=plm.Random(), n_init=3, random_state=0).fit(rankings).init_["method"]
    'random'
    """

    name: ClassVar[str] = "random"


_STARTS: dict[str, type[_StartValue]] = {start.name: start for start in (Spectral, Random, KernelStart, Moments)}
assert tuple(_STARTS) == INITS


def is_start_value(init: Any) -> bool:
    """Whether `init` is a start as a value."""
    return isinstance(init, _StartValue)


def is_start(init: Any) -> bool:
    """Whether `init` names a way to make starts, or is its value; otherwise it is a point to begin at."""
    return is_start_value(init) or (isinstance(init, str) and init in INITS)


def flat_start(init: Any) -> dict[str, Any]:
    """`init` by the flat names that fits, saved models and fingerprints have: `svd_rank` is the field `rank`."""
    if not is_start_value(init):
        return {"init": init, **_FLAT}
    own = {setting.name: getattr(init, field) for field, setting in start_fields(init.name).items()}
    return {"init": init.name, **_FLAT, **own}


def start_of(flat: Mapping[str, Any], *, strict: bool = True) -> Any:
    """The `init` of an estimator from flat names: a name or a path as it is, a value where a field differs.

    A field of another start is an error if `strict`. Models that were saved before starts were values may have some.
    """
    init = flat.get("init", INITS[0])
    given = {name: flat[name] for name, default in _FLAT.items() if flat.get(name, default) != default}
    own = start_fields(init) if isinstance(init, str) and init in INITS else {}
    foreign = given.keys() - {setting.name for setting in own.values()}
    if foreign and strict:
        name = min(foreign)
        owners = next(setting.starts for setting in SETTINGS if setting.name == name)
        raise SettingsError(
            f"{name} belongs to init={' or '.join(map(repr, owners))}, but init is {shown(init, str)}; leave {name} out"
        )
    chosen = {field: given[setting.name] for field, setting in own.items() if setting.name in given}
    return _STARTS[init](**chosen) if chosen else init


def check_start(settings: FitSettings) -> None:
    """Refuse settings of the start that are out of range or contradict each other."""
    one_of("init", settings.init, INITS)
    one_of("start_rows", settings.start_rows, ("sample", "all"))
    if settings.init == "moments" and settings.n_components != 2:
        raise SettingsError(
            f"init='moments' is defined for two components, but n_components is {settings.n_components}; choose "
            "init='spectral'"
        )
    if settings.svd_rank == "paper" and settings.embedding == "rank":
        raise SettingsError(
            "the rank 'paper' of a spectral start is a rule for the pairwise embedding; choose embedding='pairwise'"
        )
    if settings.svd_threshold != 1.0 and settings.svd_rank != "paper":
        raise SettingsError(
            "the threshold of a spectral start multiplies that of the rank 'paper', but the rank is "
            f"{shown(settings.svd_rank, str)}; choose the rank 'paper', or leave the threshold out"
        )
    if settings.cluster_worths == "lsr" and settings.link != "logit":
        raise SettingsError(
            f"cluster_worths='lsr' estimates Plackett-Luce models, to which link={settings.link!r} does not belong; "
            "choose cluster_worths='least-squares', or link='logit'"
        )
