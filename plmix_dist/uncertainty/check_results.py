"""FitCheck: what a check of fit found: p-values, residuals with names, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from plmix_dist.display.marks import count, label
from plmix_dist.display.notebook import card

_SHOWN = 5
# From this probability on, the rankings do not speak against the mixture.
_LEVEL = 0.05


class Residual(NamedTuple):
    """How often an item was first, or an item before another, and how often the mixture expects it."""

    items: tuple[str, ...]  # one item, or two: the first before the second
    observed: float  # weight of rankings
    expected: float
    out_of: float  # weight of the rankings that offer the item, or decide the pair
    z: float  # the difference in standard deviations, after estimation; NaN where nothing can differ

    def __str__(self) -> str:
        """One sentence."""
        what = f"{self.items[0]} is first" if len(self.items) == 1 else f"{self.items[0]} is before {self.items[1]}"
        shares = [f"{100 * part / self.out_of:.1f} %" for part in (self.observed, self.expected)]
        return (
            f"{what} in {shares[0]} of {count(round(self.out_of))} rankings, expected {shares[1]} (z = {self.z:+.1f})"
        )


class Length(NamedTuple):
    """The check of the rankings of some lengths."""

    places: str  # how many places they order
    weight: float  # of rankings, or persons
    p_values: dict[str, float]


@dataclass(frozen=True, repr=False)
class FitCheck:
    """Whether a fitted mixture reproduces first places and pairs.

    Parameters
    ----------
    p_values
        By what was checked: "first places", and "pairs" where there are some. A small one says that the rankings differ
        from the mixture by more than chance.
    residuals
        First places of all items, then pairs; `worst` sorts them.
    lengths
        The same check for rankings of each length, or of each band of lengths, if there are several.
    notes
        What to know when reading the numbers.
    conservative
        True if p-values are too large: a misfit may be overlooked.
    discrepancies
        What the p-values are of.
    posterior_predictive
        Of Bayesian fits: the share of draws whose copy of the rankings differs from them as much as the rankings do, or
        more, as in the R package PLMIX. Conservative: draws know the rankings. None where there is none.

    Examples
    --------
    >>> rankings = [[0, 1, 2]] * 40 + [[2, 1, 0]] * 40 + [[1, 0, 2]] * 10
    >>> plm.PlackettLuceMixture(1).fit(rankings).check_fit(rankings)
    FitCheck: 1 component does not explain these rankings
      first places p = 0.0001, pairs p = 0.00...
      1 is first in 11.1 % of 90 rankings, expected 44.7 % (z = -10.4)
    ...
    """

    n_components: int
    p_values: dict[str, float]
    discrepancies: dict[str, float]
    residuals: tuple[Residual, ...] = ()
    lengths: tuple[Length, ...] = ()
    notes: tuple[str, ...] = ()
    conservative: bool = False
    posterior_predictive: dict[str, float] | None = None

    @property
    def fits(self) -> bool:
        """Whether no p-value speaks against the mixture: all are above 0.05 divided by their number."""
        known = [value for value in self.p_values.values() if value == value]
        return min(known, default=1.0) > _LEVEL / max(1, len(known))

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        one = self.n_components == 1
        verb = ("does not explain" if one else "do not explain") if not self.fits else "reproduce" + "s" * one
        what = " and ".join(self.p_values) if self.fits else "these rankings"
        return f"{self.n_components} component{'s'[: not one]} {verb} {what}"

    def worst(self, n: int = _SHOWN) -> list[Residual]:
        """The residuals that are largest, measured by their standard deviations.

        Examples
        --------
        >>> rankings = [[0, 1, 2]] * 40 + [[2, 1, 0]] * 40 + [[1, 0, 2]] * 10
        >>> [one.items for one in plm.PlackettLuceMixture(1).fit(rankings).check_fit(rankings).worst(1)]
        [('1',)]
        """
        return sorted([one for one in self.residuals if one.z == one.z], key=lambda one: -abs(one.z))[:n]

    def lines(self, n: int = _SHOWN) -> list[str]:
        """p-values, the worst residuals and notes as sentences."""
        found = [_words(self.p_values) + " (conservative)" * self.conservative, *map(str, self.worst(n))]
        if self.posterior_predictive:
            words = _words(self.posterior_predictive)
            found.append(f"posterior predictive, conservative: {words}; hardly any power for pairs")
        for places, weight, p_values in self.lengths:
            found.append(f"places {places}, {count(round(weight))} rankings: {_words(p_values)}")
        return [*found, *self.notes]

    def summary(self, n: int = _SHOWN) -> str:
        """The verdict, p-values, the `n` worst residuals, each length, and notes."""
        return "\n  ".join([self.verdict, *self.lines(n)])

    def __repr__(self) -> str:
        """The verdict and what fits worst."""
        return "\n  ".join([f"FitCheck: {self.verdict}", *self.lines()[: 1 + len(self.worst())]])

    def _repr_html_(self) -> str:
        rest = "".join(f"<div>{label(line)}</div>" for line in self.lines())
        return card(f"<div><b>{label(self.verdict)}</b></div>{rest}")


def _words(p_values: dict[str, float]) -> str:
    known = {what: f"p = {value:.4f}" if value == value else "not known" for what, value in p_values.items()}
    return ", ".join(f"{what} {value}" for what, value in known.items())
