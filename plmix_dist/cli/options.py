"""Options that verbs share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.engine import ClusterOptions, LazyExecutor

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Talk:
    """How to speak to the user."""

    as_json: bool
    quiet: bool

    @property
    def progress(self) -> bool:
        """Whether to show a bar."""
        return not (self.as_json or self.quiet)


def talking(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --quiet and --debug; the verb receives a Talk."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option("--quiet", is_flag=True, help="Print nothing but errors.")
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(verb)
    def wrapped(*args: Any, as_json: bool, quiet: bool, debug: bool, **options: Any) -> Any:
        del debug  # looked up by main(), which is where errors arrive
        return verb(*args, talk=Talk(as_json, quiet), **options)

    return wrapped


def computing(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to compute; the verb receives an executor."""

    @click.option("--scheduler", metavar="ADDRESS", help="Compute on this Dask scheduler.")
    @click.option(
        "--workers", type=click.IntRange(0), help="Worker processes of a local cluster; 0 for none."
    )
    @click.option("--threads", type=click.IntRange(1), help="Threads of each worker.")
    @click.option("--memory-limit", metavar="SIZE", help="Memory of each worker, such as 1GB.")
    @click.option("--tls-ca", type=click.Path(exists=True), help="Certificate authority of the scheduler.")
    @click.option("--tls-cert", type=click.Path(exists=True), help="Certificate to show to the scheduler.")
    @click.option("--tls-key", type=click.Path(exists=True), help="Key of that certificate.")
    @functools.wraps(verb)
    def wrapped(*args: Any, **options: Any) -> Any:
        names = ("scheduler", "workers", "threads", "memory_limit", "tls_ca", "tls_cert", "tls_key")
        chosen = ClusterOptions(**{name: options.pop(name) for name in names})
        with LazyExecutor(chosen) as executor:
            return verb(*args, executor=executor, **options)

    return wrapped


seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."
)
unranked_option = click.option(
    "--unranked",
    type=click.Choice(["below", "absent"]),
    help="Items a ranking does not list: on offer and below, or not on offer.",
)
