"""Options that several verbs share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from plmix_dist.engine import ClusterOptions, LazyExecutor
from plmix_dist.engine.encryption import TlsFiles
from plmix_dist.errors import ClusterError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable


def examples(*commands: str) -> str:
    """The end of a verb's help: commands as users type them. tests/test_shell_comfort.py runs them.

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


def encrypting(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name certificates to a verb, which receives them as `tls`.

    Examples
    --------
    >>> @click.command()
    ... @encrypting
    ... def verb(tls: TlsFiles) -> None:
    ...     print(tls)
    >>> verb.main([], standalone_mode=False)
    TlsFiles(ca=None, cert=None, key=None)
    """

    @click.option(
        "--tls-ca", type=click.Path(exists=True), help="Certificate of the authority of the cluster."
    )
    @click.option("--tls-cert", type=click.Path(exists=True), help="Certificate to show to the others.")
    @click.option("--tls-key", type=click.Path(exists=True), help="Key of that certificate.")
    @functools.wraps(verb)
    def wrapped(
        *args: Any, tls_ca: str | None, tls_cert: str | None, tls_key: str | None, **options: Any
    ) -> Any:
        return verb(*args, tls=TlsFiles(tls_ca, tls_cert, tls_key), **options)

    return wrapped


def placing(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to compute to a verb, which receives them as `cluster`.

    Examples
    --------
    >>> @click.command()
    ... @placing
    ... def verb(cluster: ClusterOptions) -> None:
    ...     print(cluster.workers)
    >>> verb.main(["--workers", "0"], standalone_mode=False)
    0
    """

    @click.option("--scheduler", metavar="ADDRESS", help="Compute on this Dask scheduler.")
    @click.option(
        "--workers",
        type=click.IntRange(0),
        help="Number of worker processes of a local cluster; 0 for no cluster.",
    )
    @click.option("--threads", type=click.IntRange(1), help="Threads per worker.")
    @click.option("--memory-limit", metavar="SIZE", help="Memory per worker, such as 1GB.")
    @encrypting
    @functools.wraps(verb)
    def wrapped(*args: Any, **options: Any) -> Any:
        tls = options.pop("tls")
        names = ("scheduler", "workers", "threads", "memory_limit")
        chosen = ClusterOptions(
            **{name: options.pop(name) for name in names}, tls_ca=tls.ca, tls_cert=tls.cert, tls_key=tls.key
        )
        return verb(*args, cluster=chosen, **options)

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

    @placing
    @functools.wraps(verb)
    def wrapped(*args: Any, cluster: ClusterOptions, **options: Any) -> Any:
        with LazyExecutor(cluster) as executor:
            return verb(*args, executor=executor, **options)

    return wrapped


def checkpoint_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add --checkpoint, --checkpoint-every and --keep to a verb, which receives a Checkpoint or None.

    Examples
    --------
    >>> @click.command()
    ... @checkpoint_options
    ... def verb(checkpoint) -> None:
    ...     print(checkpoint)
    >>> verb.main(["--checkpoint", "saved", "--keep", "5"], standalone_mode=False)
    Checkpoint(path='saved', every=30.0, keep=5)
    """

    @click.option(
        "--checkpoint", metavar="DIR", help="Save the state here; the same command goes on from it."
    )
    @click.option(
        "--checkpoint-every",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Fewest seconds between two saves; 0 for every pass.  [default: 30]",
    )
    @click.option("--keep", type=click.IntRange(1), help="How many checkpoints are kept.  [default: 3]")
    @functools.wraps(verb)
    def wrapped(
        *args: Any, checkpoint: str | None, checkpoint_every: float | None, keep: int | None, **options: Any
    ) -> Any:
        from plmix_dist.store.checkpoints import DEFAULT_KEPT, DEFAULT_SECONDS, Checkpoint

        if checkpoint is None and (checkpoint_every is not None or keep is not None):
            raise SettingsError("--checkpoint-every and --keep need --checkpoint DIR")
        chosen = None
        if checkpoint is not None:
            every = DEFAULT_SECONDS if checkpoint_every is None else checkpoint_every
            chosen = Checkpoint(checkpoint, every, DEFAULT_KEPT if keep is None else keep)
        return verb(*args, checkpoint=chosen, **options)

    return wrapped


seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."
)
force_option = click.option(
    "--force", is_flag=True, help="Replace what is there, if it is a result of the same kind."
)
covariates_option = click.option(
    "--covariates",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Columns of the person who gave each ranking, on which shares depend: .npy, or CSV of numbers.",
)
unranked_option = click.option(
    "--unranked",
    type=click.Choice(["below", "absent"]),
    help="Unlisted items: on offer and ranked below, or not on offer.",
)
