"""MixtureParams: the parameters of a mixture in canonical order, and a folder of arrays and JSON for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from plmix_dist.errors import DamagedStoreError, SettingsError, StoreNotFoundError, UnsupportedFormatError
from plmix_dist.store.location import Location
from plmix_dist.store.npy import array_from_npy, npy_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

MODEL = "model.json"


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
        folder = Location.of(path)
        folder.write_bytes("log_worths.npy", npy_bytes(self.log_worths))
        folder.write_bytes("shares.npy", npy_bytes(self.shares))
        record = {"format": "plmix-model", "version": 1, "item_names": list(self.item_names), **(about or {})}
        folder.write_bytes(MODEL, json.dumps(record, indent=1, ensure_ascii=False).encode())

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
        folder = Location.of(path)
        try:
            record = json.loads(folder.read_bytes(MODEL))
            _refuse_other_formats(record, folder.url)
            names = tuple(str(name) for name in record["item_names"])
            log_worths = array_from_npy(folder.read_bytes("log_worths.npy"), np.float64)
            shares = array_from_npy(folder.read_bytes("shares.npy"), np.float64)
            mixture = cls(log_worths, shares, names)
            if log_worths.shape != (len(shares), len(names)) or shares.ndim != 1:
                raise ValueError(
                    f"log-worths of shape {log_worths.shape}, {len(shares)} shares, {len(names)} names"
                )
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"there is no model at {folder.url}: {error}") from None
        except UnsupportedFormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedStoreError(f"the model at {folder.url} cannot be read: {error}") from None
        return mixture


def _refuse_other_formats(record: dict[str, Any], url: str) -> None:
    if record.get("format") != "plmix-model":
        raise UnsupportedFormatError(f"there is no model at {url}: its format is {record.get('format')!r}")
    if record.get("version") != 1:
        raise UnsupportedFormatError(
            f"the model at {url} has format version {record.get('version')}, and this version of plmix_dist "
            "reads 1; install a newer plmix_dist"
        )
