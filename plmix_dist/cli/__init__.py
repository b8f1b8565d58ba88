"""plmix: the command line. Each verb calls the function of the same name."""

from __future__ import annotations

import contextlib
import sys

import click

from plmix_dist import __version__
from plmix_dist.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, report_error
from plmix_dist.cli.streams import open_closed_streams


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
    from plmix_dist.errors import PlmixError

    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    open_closed_streams()
    try:
        code = plmix.main(arguments, prog_name="plmix", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError, ValueError):  # a closed or full stderr
            error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        report_error(f"interrupted; {_what_now(given)}")
        code = EXIT_INTERRUPTED
    except PlmixError as error:
        if debug:
            raise
        report_error(str(error))
        code = EXIT_ERROR
    except OSError as error:
        if debug:
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        report_error(f"{where}{error.strerror or error} (--debug shows where)")
        code = EXIT_ERROR
    except Exception as error:
        if debug:
            raise
        report_error(f"{type(error).__name__}: {error} (this should not happen; --debug shows where)")
        code = EXIT_ERROR
    sys.exit(code if isinstance(code, int) else 0)


# These verbs write parts that a second run keeps; the others begin again.
_CONTINUED = ("ingest", "simulate", "split", "predict", "compile")


def _what_now(given: list[str]) -> str:
    """What a user should know after an interruption."""
    verb = next((argument for argument in given if argument in plmix.commands), None)
    if verb in _CONTINUED:
        return "run the same command again to continue"
    return "nothing was written; run the same command again to start over"


from plmix_dist.cli import compile as _compile  # noqa: E402, F401 - the verbs register themselves
from plmix_dist.cli import data, model  # noqa: E402, F401
