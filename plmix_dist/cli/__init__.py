"""plmix: the command line. Each verb calls the function of the same name."""

from __future__ import annotations

import contextlib
import sys

import click

from plmix_dist import __version__
from plmix_dist.cli.interruption import end_now, ended_soon, report_interruption, was_signalled
from plmix_dist.cli.output import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_OUT_OF_TIME,
    report_error,
    warnings_in_words,
)
from plmix_dist.cli.streams import open_closed_streams
from plmix_dist.errors import PlmixError
from plmix_dist.interruption import OutOfTime, threads_left_alone


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="plmix")
def plmix() -> None:
    """Mixtures of Plackett-Luce models, fitted to millions of rankings on a Dask cluster."""


def main(arguments: list[str] | None = None) -> None:
    """Run a verb and exit. Errors are one line on stderr; exit codes are those of docs/command-line.md.

    Examples
    --------
    >>> main(["--version"])
    Traceback (most recent call last):
    ...
    SystemExit: 0
    """
    open_closed_streams()
    with ended_soon():
        code = _run(arguments)
        stopped = code in (EXIT_INTERRUPTED, EXIT_OUT_OF_TIME)
        if stopped and (was_signalled() or threads_left_alone()):
            end_now(code)
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    """Run a verb; gives its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    code: object
    try:
        with warnings_in_words(as_json="--json" in given, quiet="--quiet" in given):
            code = plmix.main(arguments, prog_name="plmix", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError, ValueError):  # a closed or full stderr
            error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt) as stop:
        late = isinstance(stop.__cause__ or stop, OutOfTime)  # click makes an Abort of it
        report_interruption("out of time" if late else "interrupted")
        code = EXIT_OUT_OF_TIME if late else EXIT_INTERRUPTED
    except PlmixError as error:
        if debug:
            raise
        report_error(str(error))
        code = error.exit_code
    except OSError as error:
        if debug:
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        report_error(f"{where}{error.strerror or error} (--debug shows where)")
        code = EXIT_ERROR
    except Exception as error:
        if debug:
            raise
        report_error(f"{type(error).__name__}: {error} (an error of plmix itself; --debug shows where)")
        code = EXIT_ERROR
    return code if isinstance(code, int) else 0


from plmix_dist.cli import bayes, cluster, completion, data, doctor, jobs, model, report, select  # noqa: E402, F401
from plmix_dist.cli import compile as _compile  # noqa: E402, F401 - the verbs register themselves
