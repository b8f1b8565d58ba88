"""plmix: the command line. Each verb calls the function of the same name."""

from __future__ import annotations

import sys

import click

from plmix_dist import __version__
from plmix_dist.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, report_error


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

    debug = "--debug" in (sys.argv if arguments is None else arguments)
    try:
        code = plmix.main(arguments, prog_name="plmix", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        report_error("interrupted; run the same command again to continue")
        code = EXIT_INTERRUPTED
    except PlmixError as error:
        if debug:
            raise
        report_error(str(error))
        code = EXIT_ERROR
    except Exception as error:
        if debug:
            raise
        report_error(f"{type(error).__name__}: {error} (this should not happen; --debug shows where)")
        code = EXIT_ERROR
    sys.exit(code if isinstance(code, int) else 0)


from plmix_dist.cli import compile as _compile  # noqa: E402, F401 - the verbs register themselves
from plmix_dist.cli import data, model  # noqa: E402, F401
