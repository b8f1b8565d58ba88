"""Options that several verbs share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from plmix_dist.engine import ClusterOptions, LazyExecutor
from plmix_dist.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable


def examples(*commands: str) -> str:
    """The end of a verb's help: commands as users type them. tests/test_help_examples.py runs them.

    Examples
    --------
    >>> examples("plmix verify ballots").splitlines()[1:]
    ['Examples:', '  plmix verify ballots']
    """
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


class _PathText(click.ParamType):  # type: ignore[type-arg] # click 8.1 has no type arguments
    """A path or a URL. Shells complete it with the names of files and folders."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What stands there, for the shell to complete itself."""
        del ctx, param
        return [CompletionItem(incomplete, type="file")]


PATH = _PathText()


@dataclass(frozen=True)
class Talk:
    """How much a verb prints, and in which form.

    Examples
    --------
    >>> Talk(as_json=False, quiet=True).progress
    False
    """

    as_json: bool
    quiet: bool

    @property
    def progress(self) -> bool:
        """Whether to show a progress bar."""
        return not (self.as_json or self.quiet)


def talking(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --quiet and --debug to a verb, which receives a Talk.

    Examples
    --------
    >>> @click.command()
    ... @talking
    ... def verb(talk: Talk) -> None:
    ...     print(talk)
    >>> verb.main(["--quiet"], standalone_mode=False)
    Talk(as_json=False, quiet=True)
    """

    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option("--quiet", is_flag=True, help="Print nothing but errors.")
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(verb)
    def wrapped(*args: Any, as_json: bool, quiet: bool, debug: bool, **options: Any) -> Any:
        del debug  # main() looks it up, because errors arrive there
        try:
            return verb(*args, talk=Talk(as_json, quiet), **options)
        except (
            BrokenPipeError
        ) as error:  # of a connection: click would take it for a closed stdout and say nothing
            raise ClusterError(
                f"a connection was closed by the other side: {error}; run this again"
            ) from error

    return wrapped


def computing(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to compute to a verb, which receives an executor.

    Examples
    --------
    >>> @click.command()
    ... @computing
    ... def verb(executor: LazyExecutor) -> None:
    ...     print(type(executor).__name__)
    >>> verb.main(["--workers", "0"], standalone_mode=False)
    LazyExecutor
    """

    @click.option("--scheduler", metavar="ADDRESS", help="Compute on this Dask scheduler.")
    @click.option(
        "--workers",
        type=click.IntRange(0),
        help="Number of worker processes of a local cluster; 0 for no cluster.",
    )
    @click.option("--threads", type=click.IntRange(1), help="Threads per worker.")
    @click.option("--memory-limit", metavar="SIZE", help="Memory per worker, such as 1GB.")
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
force_option = click.option(
    "--force", is_flag=True, help="Replace what is there, if it is a result of the same kind."
)
unranked_option = click.option(
    "--unranked",
    type=click.Choice(["below", "absent"]),
    help="Unlisted items: on offer and ranked below, or not on offer.",
)
