"""Draws for ArviZ, which is optional and imported here alone. Works with ArviZ 0.23 and with 1.x.

This file imports nothing else of the package, so that it can be tried with an ArviZ that needs another Python.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


def inference_data(
    posterior: Mapping[str, NDArray[np.float64]],
    sample_stats: Mapping[str, NDArray[np.float64]],
    item_names: Sequence[str],
) -> Any:
    """Draws as ArviZ holds them: an InferenceData (0.23) or a DataTree (1.x).

    Parameters
    ----------
    posterior
        "log_worths" (n_chains, n_draws, n_components, n_items) and "shares" (n_chains, n_draws, n_components).
    sample_stats
        "lp", the log-posterior, and "deviance", minus twice the log-likelihood: (n_chains, n_draws).
    item_names : (n_items,)

    Examples
    --------
    >>> import numpy as np
    >>> draws = {"log_worths": np.zeros((2, 5, 1, 2)), "shares": np.ones((2, 5, 1))}
    >>> data = inference_data(draws, {"lp": np.zeros((2, 5))}, ["tea", "coffee"])  # doctest: +SKIP
    >>> data["posterior"]["log_worths"].dims  # doctest: +SKIP
    ('chain', 'draw', 'component', 'item')
    """
    try:
        import arviz
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("arviz"):
            raise
        raise ModuleNotFoundError(
            "inference_data_ needs ArviZ, which is not installed; install it with `pip install arviz`",
            name=error.name,
        ) from None
    from_dict: Any = arviz.from_dict
    groups = {"posterior": dict(posterior), "sample_stats": dict(sample_stats)}
    coords = {"component": list(range(posterior["shares"].shape[2])), "item": list(item_names)}
    dims = {"log_worths": ["component", "item"], "shares": ["component"]}
    if (
        "posterior" in inspect.signature(from_dict).parameters
    ):  # 0.23 takes groups by keyword, 1.x as one dict
        return from_dict(**groups, coords=coords, dims=dims)
    return from_dict(groups, coords=coords, dims=dims)
