"""InterchangeMethods: a fitted mixture from plain arrays, and to and from JSON."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plmix_dist.choices.fitted_mixture import FittedMixture
from plmix_dist.errors import SettingsError, UnsupportedFormatError
from plmix_dist.mixture import MixtureParams
from plmix_dist.store.models import plain_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.rankings import Unranked

JSON_FORMAT = "plmix-model-json"
JSON_VERSION = 1
_WHERE = "this JSON"


class InterchangeMethods(FittedMixture):
    """A model from arrays and JSON, and back.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> issubclass(PlackettLuceMixture, InterchangeMethods)
    True
    """

    @classmethod
    def from_arrays(
        cls,
        log_worths: ArrayLike,
        shares: ArrayLike | None = None,
        item_names: Sequence[str] | None = None,
        *,
        unranked: Unranked | None = None,
    ) -> Self:
        """A model with given parameters, such as those of another tool. It can do all that a fitted model can.

        Parameters
        ----------
        log_worths : (n_components, n_items)
            Logarithms of worths, up to a constant per component. They are centred, and components are put into
            canonical order: largest share first.
        shares : (n_components,)
            None makes them equal.
        item_names : (n_items,)
            None names items by their numbers, from 0.
        unranked
            What short rows of arrays mean: "below" or "absent"; None if all rows are full.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture.from_arrays([[0.0, np.log(3.0)]], item_names=["tea", "mate"])
        >>> round(float(np.exp(model.score([["mate", "tea"]]))), 6)
        0.75
        """
        worths = np.atleast_2d(np.asarray(log_worths, np.float64))
        names = tuple(map(str, range(worths.shape[-1]))) if item_names is None else tuple(item_names)
        mixture, order = MixtureParams.ordered(worths, shares, names)
        if np.allclose(worths.mean(axis=1), 0.0, rtol=0.0, atol=1e-12):  # centred already: keep every bit
            mixture = MixtureParams(worths[order], mixture.shares, mixture.item_names)
        fitted = {"fit": {"unranked": unranked}, "settings": {"unranked": unranked}}
        return cls._restored(mixture, fitted, {}, "these arrays")

    def to_json(self) -> str:
        """The model as JSON text. `from_json` gives every number back, bit for bit.

        It holds what `save` writes, save the arrays of the start (singular values and vectors).

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> json.loads(model.to_json())["item_names"]
        ['mate', 'tea']
        """
        mixture = self._mixture()
        arrays = {"log_worths": mixture.log_worths, "shares": mixture.shares, **self._more_arrays()}
        return json.dumps(
            {
                "format": JSON_FORMAT,
                "version": JSON_VERSION,
                "item_names": list(mixture.item_names),
                **{name: array.tolist() for name, array in arrays.items()},
                **plain_json(self._record()),
            },
            ensure_ascii=False,
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The model that `to_json` wrote; an error that says what is wrong with any other text.

        Examples
        --------
        >>> from plmix_dist import PlackettLuceMixture
        >>> model = PlackettLuceMixture(1, alpha=0).fit([["tea", "mate"]] * 3 + [["mate", "tea"]])
        >>> again = PlackettLuceMixture.from_json(model.to_json())
        >>> bool((again.log_worths_ == model.log_worths_).all()), again.n_iter_ == model.n_iter_
        (True, True)
        """
        record = _record_of(text)
        try:
            arrays: dict[str, Any] = {
                name: np.array(record.pop(name), np.float64)
                for name in ("log_worths", "shares", "ghosts", "share_coefficients")
                if name in record
            }
            names = record.pop("item_names")
            mixture = MixtureParams.checked(arrays.pop("log_worths"), arrays.pop("shares"), names)
        except KeyError as error:
            raise SettingsError(f"{_WHERE} is no model: it has no {error.args[0]}") from None
        except (ValueError, TypeError) as error:
            raise SettingsError(f"{_WHERE} is no model: {error}") from None
        return cls._restored(mixture, record, arrays, _WHERE)

    @abstractmethod
    def _record(self) -> dict[str, Any]:
        """All that is saved of a model but its arrays."""

    @abstractmethod
    def _more_arrays(self) -> dict[str, NDArray[np.float64]]:
        """The parameters of a model that are not those of its mixture."""

    @classmethod
    @abstractmethod
    def _restored(
        cls, mixture: MixtureParams, about: dict[str, Any], arrays: dict[str, Any], where: str
    ) -> Self:
        """The model of what these two gave."""


def _record_of(text: str | bytes) -> dict[str, Any]:
    """The object of a JSON text that holds a model."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"this is no JSON: {error}; from_json takes the text that to_json gave") from None
    if not isinstance(record, dict) or record.get("format") != JSON_FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise SettingsError(
            f"{_WHERE} is no model: its format is {found!r}, where {JSON_FORMAT!r} is expected; "
            "from_json takes the text that to_json gave, and load takes the folder of a model"
        )
    if record.get("version") != JSON_VERSION:
        raise UnsupportedFormatError(
            f"{_WHERE} has format version {record.get('version')!r}, and this version of plmix_dist reads "
            f"{JSON_VERSION}; install a newer plmix_dist"
        )
    return record
