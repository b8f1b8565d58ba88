"""Options that verbs share; those of fit, select and bayes are made from the table of settings."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

import plmix_dist as plm
from plmix_dist.cli.main import plmix
from plmix_dist.cluster.executor import ClusterOptions, LazyExecutor
from plmix_dist.cluster.tls import TlsFiles
from plmix_dist.errors import ClusterError, SettingsError, StoreNotFoundError
from plmix_dist.settings import checks
from plmix_dist.settings.table import Kind, Setting, settings_of

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def verb(*examples: str, name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a verb of plmix, with --json, --quiet and --debug.

    Its help ends with examples: commands as users type them. tests/cli/test_main_comfort.py runs them.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            for own in ("as_json", "quiet", "debug"):  # `output` and main() look these up
                del options[own]
            try:
                return function(*args, **options)
            except BrokenPipeError as error:  # of a connection: click would take it for a closed stdout and say nothing
                raise ClusterError(f"a connection was closed by the other side: {error}; run this again") from error

        listed = "\n".join(f"  {command}" for command in examples)
        command = plmix.command(name, cls=_Verb, epilog=f"\b\nExamples:\n{listed}")(called)
        command.params += [
            click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."),
            click.Option(["--quiet"], is_flag=True, help="Print nothing but errors."),
            click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
        ]
        return command

    return decorate


def option(*names: str, **how: Any) -> Decorator:
    """An option whose help shows its default, if it has one."""
    return click.option(*names, **{"show_default": how.get("default") is not None} | how)


class _PathText(click.ParamType):  # type: ignore[type-arg] # click 8.1 has no type arguments
    """A path or a URL. Shells complete it with the names of files and folders. `missing` says what to name."""

    name = "text"

    def __init__(self, missing: str = "") -> None:
        self._missing = missing

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """What is to be named, where it is missing."""
        del param, ctx
        return self._missing

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """What stands there, for the shell to complete itself."""
        del ctx, param
        return [CompletionItem(incomplete, type="file")]


PATH = _PathText()


class _ResultPath(_PathText):
    """The path or URL of a result. A path where nothing is ends the verb before it imports what it computes with."""

    def __init__(self, kind: str, made_by: str) -> None:
        super().__init__(f"Name a {kind}; {made_by}.")
        self._kind, self._made_by = kind, made_by

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text itself, or the error that opening it would give."""
        del param, ctx
        text, missing = value.removeprefix("file://"), False
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # opening it has the words for these
            if text and "://" not in text:
                text = str(Path(text).expanduser().absolute())
                missing = not Path(text).exists()
        if missing:
            raise StoreNotFoundError(f"no {self._kind} at {text}{checks.near_path(text)}; {self._made_by}")
        return value


STORE = _ResultPath("store", "make one with `plmix ingest` or `plmix simulate`")
MODEL = _ResultPath("model", "make one with `plmix fit`")
SOURCES = _PathText("Name the files first, then the store to make: `plmix ingest ballots.csv ballots`.")


def gathered(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Add options to a verb, which receives them as one value, `name`, that `make` makes of them."""

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **given: Any) -> Any:
            return verb(*args, **{name: make(**{own: given.pop(own) for own in names})}, **given)

        for option in reversed(options):
            option(wrapped)
        made: Any = wrapped
        params = made.__click_params__
        names = [param.name for param in params]
        functools.update_wrapper(wrapped, verb)
        made.__click_params__ = [*getattr(verb, "__click_params__", ()), *params]
        return wrapped

    return decorate


_TLS = (
    click.option("--tls-ca", "ca", type=click.Path(exists=True), help="Certificate of the authority of the cluster."),
    click.option("--tls-cert", "cert", type=click.Path(exists=True), help="Certificate to show to the others."),
    click.option("--tls-key", "key", type=click.Path(exists=True), help="Key of that certificate."),
)
tls_options = gathered("tls", TlsFiles, *_TLS)
cluster_options = gathered(
    "cluster",
    lambda ca, cert, key, **options: ClusterOptions(**options, tls=TlsFiles(ca, cert, key)),
    click.option("--scheduler", metavar="ADDRESS", help="Compute on this Dask scheduler."),
    click.option(
        "--workers", type=click.IntRange(0), help="Number of worker processes of a local cluster; 0 for no cluster."
    ),
    click.option("--threads", type=click.IntRange(1), help="Threads per worker."),
    click.option("--memory-limit", metavar="SIZE", help="Memory per worker, such as 1GB."),
    *_TLS,
)


def executor_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to compute to a verb, which receives an executor."""

    @cluster_options
    @functools.wraps(verb)
    def wrapped(*args: Any, cluster: ClusterOptions, **options: Any) -> Any:
        with LazyExecutor(cluster) as executor:
            return verb(*args, executor=executor, **options)

    return wrapped


def _checkpoint(checkpoint: str | None, checkpoint_every: float | None, keep: int | None) -> plm.Checkpoint | None:
    how: Any = {name: value for name, value in {"every": checkpoint_every, "keep": keep}.items() if value is not None}
    if checkpoint is None and how:
        raise SettingsError("--checkpoint-every and --keep need --checkpoint DIR")
    return None if checkpoint is None else plm.Checkpoint(checkpoint, **how)


_EVERY = "Fewest seconds between two saves; 0 for every pass.  [default: 30]"
_checkpoint_options = gathered(
    "checkpoint",
    _checkpoint,
    click.option("--checkpoint", metavar="DIR", help="Save the state here; the same command goes on from it."),
    click.option("--checkpoint-every", type=click.FloatRange(0), metavar="SECONDS", help=_EVERY),
    click.option("--keep", type=click.IntRange(1), help="How many checkpoints are kept.  [default: 3]"),
)
seed_option = option("--seed", type=click.IntRange(0), default=0, help="Random seed.")
force_option = click.option("--force", is_flag=True, help="Replace what is there, if it is a result of the same kind.")
covariates_option = click.option(
    "--covariates",
    metavar="NAMES|FILE",
    help="Columns about persons, on which shares depend: those of the store by name, or a file (.npy, CSV of numbers).",
)
features_option = click.option(
    "--features", metavar="NAME,NAME", help="Columns of the store that explain worths (docs/features.md)."
)
intercepts_option = click.option(
    "--intercepts", is_flag=True, default=None, help="Items have worths beside --features: ratings at equal style."
)
unranked_option = click.option(
    "--unranked",
    type=click.Choice(["below", "absent"]),
    help="Unlisted items: on offer and ranked below, or not on offer.",
)


# --- settings ----------------------------------------------------------------------------------------------

# What stands for a value in `--help`, by the last words of its kind.
_METAVARS = {
    "list of names": "NAME",
    "list of whole numbers": "RANGE",
    "list of numbers": "NUMBERS",
    "whole number": "INTEGER",
    "number": "FLOAT",
    "folder of a model": "DIR",
}


class AdvancedOption(click.Option):
    """An option that `--help` shows last."""


class _Verb(click.Command):
    """A verb whose advanced options have a heading of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write ordinary options first."""
        for heading, kinds in (("Options", False), ("Advanced options", True)):
            found = [
                record
                for param in self.get_params(ctx)
                if isinstance(param, click.Option)
                and isinstance(param, AdvancedOption) == kinds
                and (record := param.get_help_record(ctx))
            ]
            if found:
                with formatter.section(heading):
                    formatter.write_dl(found)


class _Value(click.ParamType):  # type: ignore[type-arg] # click 8.1 has no type arguments
    """The value of a setting: read and checked by the table, with the message that Python and job files give."""

    name = "text"

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The checked value."""
        del param
        kind = self._setting.kind
        if not isinstance(value, str):
            return value
        is_list = _is_list(self._setting)
        found = [value] if is_list else kind.read(value)
        try:
            checked = kind.check(self._setting.option, found)
        except SettingsError as error:
            if _is_misuse(kind, found):  # the type says something in Python alone: all that is typed is text
                raise click.UsageError(str(error).removesuffix(" (str)"), ctx) from None
            raise
        return checked[0] if is_list else checked

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The words that begin so; files too where the folder of a model may stand."""
        del ctx, param
        found = [CompletionItem(one) for one in self._setting.kind.known if one.startswith(incomplete)]
        is_path = self._setting.kind.words.endswith("folder of a model")
        return [*found, CompletionItem(incomplete, type="file")] if is_path else found


def _option_of(setting: Setting) -> Decorator:
    kind, default, option = setting.kind, setting.default, setting.option
    shared: dict[str, Any] = {
        "help": setting.help,
        "show_default": default not in (None, ()) and not setting.required,
        "cls": AdvancedOption if setting.advanced else click.Option,
    }
    if isinstance(default, bool):
        off = f"--no-{setting.spelling.replace('_', '-')}"
        return click.option(f"{option}/{off}", setting.name, default=default, **shared)
    if isinstance(default, range):
        default = f"{default.start}:{default.stop - 1}"
    last = next((sign for words, sign in _METAVARS.items() if kind.words.endswith(words)), "")
    metavar = f"[{'|'.join(filter(None, [*kind.known, last]))}]" if kind.known else last
    if _is_list(setting):
        shared |= {"multiple": True, "help": f"{setting.help} May be repeated."}
        metavar = f"[{'|'.join(kind.known)}]"
    given = {"required": True} if setting.required else {"default": default}
    return click.option(option, setting.name, type=_Value(setting), metavar=metavar, **given, **shared)


def _is_misuse(kind: Kind, value: Any) -> bool:
    """Whether a refused value is an error of usage, exit code 2, as click's own are; otherwise it has exit code 1.

    It is one for words and whole numbers, and for text in place of a number; not for a number out of its range.
    """
    if kind.words.endswith("numbers") or kind.words == "number":
        return any(isinstance(one, str) for one in (value if isinstance(value, list) else [value]))
    return not (kind.known and kind.words.endswith("whole number"))


def _is_list(setting: Setting) -> bool:
    """Whether an option may be repeated."""
    return setting.kind.words == "list of names"


def settings_options(task: str) -> Decorator:
    """Add the settings of a task to a verb, which receives them by flat names as `settings`."""
    return gathered("settings", dict, *(_option_of(one) for one in settings_of(task).values() if one.text is not None))


def work_options(task: str) -> Decorator:
    """Add what fit, select and bayes share: settings by flat names, checkpoint, force, seed, where to compute."""
    return lambda verb: settings_options(task)(_checkpoint_options(force_option(seed_option(executor_options(verb)))))
