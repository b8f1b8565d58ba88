"""What a model is, in lines and as JSON: its components, what it was fitted to, how the fit ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plmix_dist.cli.output import number, show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from plmix_dist.cli.options import Talk
    from plmix_dist.estimator import PlackettLuceMixture
    from plmix_dist.fitted import MixtureEstimator
    from plmix_dist.store import Location

_ITEMS_SHOWN = 5
_SETTINGS_SHOWN = ("m_step", "em", "init", "n_init", "alpha", "ties", "tol", "max_iter")


def component_lines(model: MixtureEstimator) -> list[tuple[str, str]]:
    """A line per component: its share, and the items of the largest log-worths. Numbers begin with 0, as in Python.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> component_lines(PlackettLuceMixture.from_arrays([[1.0, -1.0]], item_names=["tea", "mate"]))
    [('component 0', '100.0%  tea +1.00  mate -1.00')]
    """
    return [
        (f"component {k}", f"{share:6.1%}  {favourites(model.log_worths_[k], model.item_names_)}")
        for k, share in enumerate(model.shares_)
    ]


def component_records(model: PlackettLuceMixture) -> list[dict[str, Any]]:
    """The same for --json: number, share and the first items of each component.

    Examples
    --------
    >>> from plmix_dist import PlackettLuceMixture
    >>> component_records(PlackettLuceMixture.from_arrays([[1.0, -1.0]], item_names=["tea", "mate"]))[0]["top_items"]
    [{'item': 'tea', 'log_worth': 1.0}, {'item': 'mate', 'log_worth': -1.0}]
    """
    return [
        {
            "component": k,
            "share": float(share),
            "top_items": [
                {"item": model.item_names_[item], "log_worth": float(model.log_worths_[k, item])}
                for item in best_items(model.log_worths_[k])
            ],
        }
        for k, share in enumerate(model.shares_)
    ]


def favourites(log_worths: NDArray[np.float64], names: tuple[str, ...]) -> str:
    """The items of the largest log-worths, and these.

    Examples
    --------
    >>> import numpy as np
    >>> favourites(np.array([-0.5, 0.5]), ("tea", "mate"))
    'mate +0.50  tea -0.50'
    """
    return "  ".join(f"{names[item]} {log_worths[item]:+.2f}" for item in best_items(log_worths))


def best_items(log_worths: NDArray[np.float64]) -> list[int]:
    """The numbers of the items of the largest log-worths, largest first.

    Examples
    --------
    >>> import numpy as np
    >>> best_items(np.array([-0.5, 0.5]))
    [1, 0]
    """
    best: list[int] = log_worths.argsort()[::-1][:_ITEMS_SHOWN].tolist()
    return best


def show_model(place: Location, talk: Talk) -> None:
    """Print what is in the folder of a model."""
    from plmix_dist.estimator import PlackettLuceMixture
    from plmix_dist.store.models import load_model

    saved = load_model(place).record
    model = PlackettLuceMixture.load(place)
    job = saved.get("job") or {}
    record = {
        "model": place.url,
        "format": f"{saved['format']} {saved['version']}",
        "n_components": len(model.shares_),
        "n_items": len(model.item_names_),
        "item_names": list(model.item_names_),
        "shares": model.shares_.tolist(),
        "components": component_records(model),
        "converged": model.converged_,
        "n_iter": model.n_iter_,
        "log_likelihood": model.log_likelihood_,
        "gradient_norm": model.gradient_norm_,
        "m_step": model.m_step_,
        "n_share_coefficients": 0
        if model.share_coefficients_ is None
        else model.share_coefficients_.shape[1],
        "settings": saved.get("settings", {}),
        "seed": job.get("seed"),
        "fitted_to": saved.get("fitted_to"),
        "plmix_version": job.get("version"),
        "events": model.events_,
    }
    show(_model_lines(record, model), record, **vars(talk))


def _model_lines(record: dict[str, Any], model: PlackettLuceMixture) -> list[tuple[str, str]]:
    lines = [
        ("model", f"{record['model']} ({record['format']}{_version(record)})"),
        ("mixture", f"{record['n_components']} components of {number(record['n_items'])} items"),
    ]
    data = record["fitted_to"]
    if data is not None:
        weight = number(data["total_weight"])
        lines.append(
            ("fitted to", f"{data['store']}: {number(data['n_rankings'])} rankings, weight {weight}")
        )
    lines.append(("fit", _fit_words(record)))
    if record["settings"]:
        shown = {name: record["settings"][name] for name in _SETTINGS_SHOWN if name in record["settings"]}
        seed = "" if record["seed"] is None else f", seed {record['seed']}"
        lines.append(("settings", ", ".join(f"{name} {value}" for name, value in shown.items()) + seed))
    if record["n_share_coefficients"]:
        n_columns = record["n_share_coefficients"] - 1
        lines.append(
            ("covariates", f"shares depend on {n_columns} columns of persons; below are their means")
        )
    return [*lines, *component_lines(model)]


def _version(record: dict[str, Any]) -> str:
    return "" if record["plmix_version"] is None else f", plmix {record['plmix_version']}"


def _fit_words(record: dict[str, Any]) -> str:
    if record["n_iter"] is None:
        return "none: these parameters were given or drawn, not fitted"
    state = "converged" if record["converged"] else "NOT converged"
    return f"{state} in {record['n_iter']} iterations, log-likelihood {record['log_likelihood']:,.2f}"
