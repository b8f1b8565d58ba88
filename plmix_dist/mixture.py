"""MixtureParams: the parameters of a mixture in canonical order, and a folder of arrays and JSON for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plmix_dist.errors import DamagedStoreError, SettingsError
from plmix_dist.store.location import Location
from plmix_dist.store.models import load_model, save_model

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from plmix_dist.store.models import SavedModel


@dataclass(frozen=True, eq=False)
class MixtureParams:
    """A mixture of Plackett-Luce models.

    Log-worths have mean zero in each component. Components are in canonical order: largest share first,
    equal shares by their worths.

    Parameters
    ----------
    log_worths : (n_components, n_items)
    shares : (n_components,)
    item_names : (n_items,)

    Examples
    --------
    >>> mixture = MixtureParams.of([[1.0, 3.0], [0.0, 0.0]], [0.25, 0.75], ["tea", "coffee"])
    >>> mixture.log_worths.tolist(), mixture.shares.tolist()
    ([[0.0, 0.0], [-1.0, 1.0]], [0.75, 0.25])
    """

    log_worths: NDArray[np.float64]
    shares: NDArray[np.float64]
    item_names: tuple[str, ...]

    @classmethod
    def of(cls, log_worths: ArrayLike, shares: ArrayLike | None, item_names: Sequence[str]) -> Self:
        """Check, centre and order. `shares=None` makes them equal.

        Examples
        --------
        >>> MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).log_worths.tolist()
        [[-1.0, 1.0]]
        """
        return cls.ordered(log_worths, shares, item_names)[0]

    @classmethod
    def ordered(
        cls, log_worths: ArrayLike, shares: ArrayLike | None, item_names: Sequence[str]
    ) -> tuple[Self, NDArray[np.int64]]:
        """The mixture that `of` makes, and the order of its components.

        Parameters
        ----------
        log_worths : (n_components, n_items)
        shares : (n_components,)
            None makes them equal.
        item_names : (n_items,)

        Returns
        -------
        mixture
        order : (n_components,)
            Component k of the mixture is component `order[k]` of the arguments.

        Examples
        --------
        >>> mixture, order = MixtureParams.ordered([[1, 3], [0, 0]], [0.25, 0.75], ["tea", "coffee"])
        >>> mixture.shares.tolist(), order.tolist()
        ([0.75, 0.25], [1, 0])
        """
        worths = np.atleast_2d(np.asarray(log_worths, np.float64))
        if worths.ndim != 2 or worths.shape[1] != len(item_names) or not worths.size:
            raise SettingsError(
                f"expected log-worths of shape (components, {len(item_names)}), one per named item, "
                f"but got {worths.shape}"
            )
        portions = np.full(len(worths), 1 / len(worths)) if shares is None else np.asarray(shares, np.float64)
        if portions.shape != (len(worths),) or not (portions >= 0).all() or not np.isclose(portions.sum(), 1):
            raise SettingsError(
                f"shares must be {len(worths)} non-negative numbers that sum to 1, but are {portions}"
            )
        if not np.isfinite(worths).all():
            raise SettingsError("log-worths must be finite")
        worths = worths - worths.mean(axis=1, keepdims=True)
        order = np.array(
            sorted(range(len(worths)), key=lambda k: (-portions[k], *(-worths[k]))), dtype=np.int64
        )
        return cls(worths[order], portions[order], tuple(item_names)), order

    @classmethod
    def checked(cls, log_worths: ArrayLike, shares: ArrayLike, item_names: Sequence[str]) -> Self:
        """A mixture of these very numbers, in this order; an error if they are no mixture.

        Examples
        --------
        >>> MixtureParams.checked([[-1.0, 1.0]], [1.0], ["tea", "coffee"]).n_items
        2
        """
        worths, portions = np.asarray(log_worths, np.float64), np.asarray(shares, np.float64)
        if (fault := _fault(worths, portions, item_names)) is not None:
            raise SettingsError(fault)
        return cls(worths, portions, tuple(item_names))

    @property
    def n_components(self) -> int:
        """The number of components."""
        return len(self.shares)

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.log_worths.shape[1])

    @property
    def log_shares(self) -> NDArray[np.float64]:
        """(n_components,): logarithms of the shares; minus infinity for a component without a share.

        Examples
        --------
        >>> MixtureParams.of([[0, 1], [1, 0]], [1.0, 0.0], ["tea", "coffee"]).log_shares.tolist()
        [0.0, -inf]
        """
        with np.errstate(divide="ignore"):
            logarithms: NDArray[np.float64] = np.log(self.shares)
        return logarithms

    def save(self, path: str | os.PathLike[str] | Location, about: dict[str, Any] | None = None) -> None:
        """Write a folder with `log_worths.npy`, `shares.npy` and `model.json`. Nothing is pickled.

        A model that is there stays whole until the new one is. See docs/rankings-and-store.md.

        Parameters
        ----------
        path
            The folder or URL to write.
        about
            More entries for `model.json`.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).save(folder)
        >>> Location.of(folder).listing()
        ['log_worths.npy', 'model.json', 'shares.npy']
        """
        self.save_with(path, about or {}, {})

    def save_with(
        self,
        path: str | os.PathLike[str] | Location,
        about: Mapping[str, Any],
        arrays: Mapping[str, NDArray[np.float64]],
    ) -> None:
        """Write what `save` writes, and more arrays.

        Parameters
        ----------
        path
            The folder or URL to write.
        about
            More entries for `model.json`.
        arrays
            More arrays, with names that `save_model` takes.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> mixture = MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"])
        >>> mixture.save_with(folder, {}, {"ghosts": np.zeros(1)})
        >>> load_with(folder)[1].arrays["ghosts"].tolist()
        [0.0]
        """
        log_worths, shares = np.asarray(self.log_worths), np.asarray(self.shares)
        if (fault := _fault(log_worths, shares, self.item_names)) is not None:
            raise SettingsError(f"this mixture cannot be saved: {fault}")
        record = {**about, "item_names": list(self.item_names)}
        save_model(Location.of(path), record, {"log_worths": log_worths, "shares": shares, **arrays})

    @classmethod
    def load(cls, path: str | os.PathLike[str] | Location) -> Self:
        """Read what `save` wrote.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).save(folder)
        >>> MixtureParams.load(folder).item_names
        ('tea', 'coffee')
        """
        mixture = load_with(path)[0]
        return cls(mixture.log_worths, mixture.shares, mixture.item_names)


def load_with(path: str | os.PathLike[str] | Location) -> tuple[MixtureParams, SavedModel]:
    """The mixture of a model folder, and all that is saved with it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> MixtureParams.of([[1.0, 3.0]], None, ["tea", "coffee"]).save(folder, {"seed": 7})
    >>> mixture, saved = load_with(folder)
    >>> mixture.n_items, saved.record["seed"]
    (2, 7)
    """
    folder = Location.of(path)
    saved = load_model(folder)
    names, arrays = saved.record.get("item_names"), saved.arrays
    missing = [name for name in ("log_worths", "shares") if name not in arrays]
    fault = (
        f"it has no {' and no '.join(missing)}"
        if missing
        else _fault(arrays["log_worths"], arrays["shares"], names)
    )
    if fault is not None:
        raise DamagedStoreError(f"the model at {folder.url} cannot be read: {fault}; fit and save it again")
    return MixtureParams(arrays["log_worths"], arrays["shares"], tuple(names or ())), saved


def _fault(log_worths: NDArray[Any], shares: NDArray[Any], names: Any) -> str | None:
    """What is wrong with the parameters of a mixture, in words; None if nothing is."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return f"item names must be a list of text, but are {str(names)[:80]}"
    if len(set(names)) != len(names):
        name, count = Counter(names).most_common(1)[0]
        return f"item names must differ, but {name!r} occurs {count} times"
    if log_worths.ndim != 2 or shares.shape != (len(log_worths),) or log_worths.shape[1] != len(names):
        return (
            f"log-worths of shape {log_worths.shape}, shares of shape {shares.shape}, {len(names)} item names"
        )
    if not log_worths.size:
        return "it has no components or no items"
    if not np.isfinite(log_worths).all():
        return "log-worths must be finite"
    if not (shares >= 0).all() or not np.isclose(shares.sum(), 1):
        return f"shares must be {len(shares)} non-negative numbers that sum to 1, but are {shares}"
    return None
