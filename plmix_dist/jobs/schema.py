"""The keys of a job file: one value for each, from which checks, defaults and the documentation are made."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from plmix_dist.errors import SettingsError
from plmix_dist.rankings.tie_treatments import TIES
from plmix_dist.selection.component_numbers import component_numbers
from plmix_dist.selection.criteria import CRITERIA
from plmix_dist.solvers import M_STEPS
from plmix_dist.store.checkpoints import DEFAULT_KEPT, DEFAULT_SECONDS
from plmix_dist.values import one_of, real_number, shown, whole_number, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Callable

REQUIRED = object()
# What a job computes. To add one, add its name here, its keys below, and its value in `methods.py`.
METHODS = ("fit", "select", "bayes")
_FIT, _SELECT, _BAYES = (("fit",), ("select",), ("bayes",))
_EM, _STARTED = (*_FIT, *_SELECT), (*_FIT, *_BAYES)
# Seconds of the longest wait; the clocks of the system take no number that is much larger.
_LONGEST = 1e9
# Where chains begin, beside the folder of a model.
BAYES_INITS = ("fit", "prior")


class Key(NamedTuple):
    """One key of a job file.

    Parameters
    ----------
    name
        With its table, such as "model.components".
    kind
        What its value is, for people.
    check
        Gives the checked value, or raises a SettingsError. It takes the name and the value.
    default
        The value if the key is left out; REQUIRED if it must be given.
    help
        What it means.
    methods
        The values of `model.method` that it belongs to.

    Examples
    --------
    >>> KEYS["model.components"].check("model.components", 3)
    3
    """

    name: str
    kind: str
    check: Callable[[str, Any], Any]
    default: Any
    help: str
    methods: tuple[str, ...] = METHODS


def text(name: str, value: Any) -> str:
    """The value if it is text, and not empty.

    Examples
    --------
    >>> text("data.store", "ballots")
    'ballots'
    """
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{name} must be text, but is {shown(value, str)}")
    return value


def texts(name: str, value: Any) -> list[str]:
    """The value as a list if it is text or a list of texts.

    Examples
    --------
    >>> texts("data.sources", "a.csv"), texts("data.sources", ["a.csv", "b.csv"])
    (['a.csv'], ['a.csv', 'b.csv'])
    """
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed or not all(isinstance(one, str) and one for one in listed):
        raise SettingsError(f"{name} must be text or a list of texts, but is {shown(value)}")
    return listed


def text_by_name(name: str, value: Any) -> dict[str, str]:
    """The value if it is a table of texts.

    Examples
    --------
    >>> text_by_name("data.columns", {"id": "ballot"})
    {'id': 'ballot'}
    """
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise SettingsError(f"{name} must be a table of texts, but is {shown(value)}")
    return value


def web_address(name: str, value: Any) -> str:
    """The value if it is the address of a web server.

    Examples
    --------
    >>> web_address("hooks.url", "https://example.org/done")
    'https://example.org/done'
    """
    if not text(name, value).startswith(("http://", "https://")):
        raise SettingsError(f"{name} must begin with http:// or https://, but is {shown(value, str)}")
    return str(value)


def _whole(at_least: int) -> Callable[[str, Any], int]:
    return partial(whole_number, at_least=at_least)


def _number(
    *, above: float | None = None, at_least: float | None = None, at_most: float | None = None
) -> Callable[[str, Any], float]:
    return partial(real_number, above=above, at_least=at_least, at_most=at_most)


def _one_of(*known: str) -> Callable[[str, Any], str]:
    return partial(one_of, known=known)


def _rank(name: str, value: Any) -> str | int:
    return value if value in ("auto", "paper") else whole_number(name, value, at_least=1)


def _components(name: str, value: Any) -> int | str | list[int]:
    """A number of components, or several: a range such as "2:10", or a list."""
    try:
        if isinstance(value, str):
            component_numbers(value)
            return value
    except SettingsError as error:
        raise SettingsError(f"{name}: {error}") from None
    if isinstance(value, list) and value:
        return [whole_number(name, one, at_least=1) for one in value]
    return whole_number(name, value, at_least=1)


def _criteria(name: str, value: Any) -> list[str]:
    return [one_of(name, one, tuple(CRITERIA)) for one in texts(name, value)]


def _choice(
    name: str, known: tuple[str, ...], default: Any, words: str, methods: tuple[str, ...] = METHODS
) -> Key:
    return Key(name, " or ".join(f'"{one}"' for one in known), _one_of(*known), default, words, methods)


_KEYS = (
    Key("name", "text", text, "plmix", "Name of the job, in logs and metrics."),
    Key("data.store", "path or URL", text, REQUIRED, "The store of rankings."),
    Key("data.sources", "list of paths", texts, None, "Files, globs or URLs that are read into the store first; "
        "those it has already are left out. Without it the store must be there."),
    Key("data.format", "text", text, "auto", "Format of the sources, as in `plmix ingest`."),
    _choice("data.unranked", ("below", "absent"), None, "What unlisted items mean in the sources."),
    _choice("data.on_error", ("raise", "drop", "quarantine"), "raise", "What becomes of bad rows."),
    Key("data.merge", "true or false", yes_or_no, False, "Whether equal rows become one."),
    Key("data.columns", "table", text_by_name, None, "The column of each role, such as `{id = \"ballot\"}`."),
    Key("data.delimiter", "text", text, None, "Delimiter of text."),
    Key("data.covariates", "path", text, None, "Columns of persons, on which shares depend: .npy or CSV.", _FIT),
    _choice("model.method", METHODS, "fit", "What is computed."),
    Key("model.components", "whole number", _components, REQUIRED, "Number of components; for select several, such as "
        "`\"2:10\"` or a list."),
    Key("model.m_step", "name", _one_of("auto", *M_STEPS), "auto", "The M-step ([fitting](fitting.md)).", _EM),
    _choice("model.em", ("fused", "exact"), "fused", "One step per pass, or M-steps to their ends.", _FIT),
    Key("model.ties", "name", _one_of(*TIES), "expand", "How ties are treated ([ties](ties-and-groups.md)).", _EM),
    Key("model.alpha", "number", _number(at_least=0), 1.0, "Strength of the prior; 0 for none.", _EM),
    Key("model.tol", "number", _number(above=0), 1e-8, "Bound on gradient and change, divided by total weight.", _EM),
    Key("model.max_iter", "whole number", _whole(1), 500, "The most iterations.", _EM),
    Key("model.accelerate", "true or false", yes_or_no, True, "Whether to use Anderson and Newton steps.", _FIT),
    _choice("model.residency", ("auto", "memory", "store"), "auto", "Whether rows stay in memory between passes."),
    Key("model.seed", "whole number", _whole(0), 0, "Random seed."),
    _choice("model.criterion", tuple(CRITERIA), "bic", "What decides ([choosing K](choosing-k.md)).", _SELECT),
    Key("model.also", "list of names", _criteria, None, "Further criteria for the table.", _SELECT),
    Key("model.folds", "whole number", _whole(2), 5, "Folds of \"held-out\".", _SELECT),
    Key("model.chains", "whole number", _whole(1), 4, "Number of chains ([Bayesian mixtures](bayes.md)).", _BAYES),
    Key("model.warmup", "whole number", _whole(0), 500, "Sweeps of each chain that are dropped.", _BAYES),
    Key("model.draws", "whole number", _whole(1), 1000, "Draws that each chain keeps.", _BAYES),
    Key("model.thin", "whole number", _whole(1), 1, "One of so many sweeps is kept.", _BAYES),
    Key("model.worth_shape", "number", _number(above=0), 1.0, "Shape of the gamma prior of worths.", _BAYES),
    Key("model.share_concentration", "number", _number(above=0), 1.0, "Of the Dirichlet prior of shares.", _BAYES),
    Key("start.init", "text", text, "spectral", "\"spectral\", \"kernel\", \"random\", \"moments\", or the folder of a "
        "model; for bayes \"fit\" (the default), \"prior\", or such a folder.", _STARTED),
    Key("start.n_init", "whole number", _whole(1), 1, "Number of starts run to convergence.", _EM),
    _choice("start.embedding", ("auto", "pairwise", "rank"), "auto", "How a spectral start represents a ranking.",
        _FIT),
    Key("start.svd_rank", '"auto", "paper" or whole number', _rank, "auto", "Singular vectors of a spectral start.",
        _FIT),
    _choice("start.link", ("logit", "probit"), "logit", "Frequencies of pairs to differences of log-worths.", _FIT),
    _choice("start.kernel", ("kendall", "mallows"), "kendall", "Similarity of rankings in a kernel start.", _FIT),
    Key("start.warm", "true or false", yes_or_no, True, "Whether to begin at the last model if rankings were added.",
        _STARTED),
    Key("cluster.scheduler", "address", text, None, "A Dask scheduler. Without it and workers: one process."),
    Key("cluster.workers", "whole number", _whole(1), None, "Worker processes of a cluster on this machine."),
    Key("cluster.threads", "whole number", _whole(1), None, "Threads per worker."),
    Key("cluster.memory", "text", text, None, "Memory per worker, such as \"2GB\"."),
    Key("cluster.tls_ca", "path", text, None, "Certificate authority of the scheduler."),
    Key("cluster.tls_cert", "path", text, None, "Certificate to show to the scheduler."),
    Key("cluster.tls_key", "path", text, None, "Key of that certificate."),
    Key("outputs.folder", "path", text, REQUIRED, "Folder for everything the job writes."),
    Key("outputs.memberships", "true or false", yes_or_no, False, "Whether to write the membership of every ranking."),
    Key("outputs.report", "true or false", yes_or_no, False, "Whether to write a [report](report.md)."),
    Key("outputs.metrics", "path", text, None, "File of metrics for the textfile collector of Prometheus."),
    Key("checkpoint.folder", "path or URL", text, None, "Where the state is saved; else `checkpoints` in the folder."),
    Key("checkpoint.every", "seconds", _number(at_least=0), DEFAULT_SECONDS, "Fewest seconds between two saves; 0 for "
        "every pass."),
    Key("checkpoint.keep", "whole number", _whole(1), DEFAULT_KEPT, "How many checkpoints are kept."),
    Key("limits.seconds", "seconds", _number(above=0, at_most=_LONGEST), None, "The job saves its state and stops "
        "after so long."),
    Key("hooks.command", "list of words", texts, None, "A command that is run at the end, with the summary on stdin."),
    Key("hooks.url", "URL", web_address, None, "An address that the summary is posted to at the end, as JSON."),
    Key("hooks.timeout", "seconds", _number(above=0, at_most=_LONGEST), 30.0, "How long a hook may take."),
)  # fmt: skip
KEYS = {key.name: key for key in _KEYS}
TABLES = tuple(dict.fromkeys(name.split(".")[0] for name in KEYS if "." in name))


def documented() -> str:
    """The keys as a table in Markdown; with those methods that a key belongs to, if it is not all.

    Examples
    --------
    >>> print(documented().splitlines()[2])
    | `name` | text | `"plmix"` | Name of the job, in logs and metrics. |
    """
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key in _KEYS:
        default = "required" if key.default is REQUIRED else _toml(key.default)
        of = "" if key.methods == METHODS else f" (`{'`, `'.join(key.methods)}`)"
        lines.append(f"| `{key.name}`{of} | {key.kind} | {default} | {key.help} |")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    is_whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
    return f"`{int(value) if is_whole else value}`"
