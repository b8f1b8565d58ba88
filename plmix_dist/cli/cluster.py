"""Verbs for clusters: scheduler, worker, certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plmix_dist.cli import plmix
from plmix_dist.cli.interruption import tell_if_interrupted
from plmix_dist.cli.options import PATH, encrypting, examples, talking
from plmix_dist.cli.output import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from plmix_dist.cli.options import Talk
    from plmix_dist.engine.encryption import TlsFiles

_TLS = "--tls-ca tls/ca.pem --tls-cert tls/cert.pem --tls-key tls/key.pem"
_without_tls = click.option(
    "--without-tls", is_flag=True, help="Allow what others can reach to be neither encrypted nor checked."
)


@plmix.command(epilog=examples("plmix scheduler", f"plmix scheduler --host cluster.example.org {_TLS}"))
@click.option("--host", default="127.0.0.1", show_default=True, help="Name or address to listen at.")
@click.option(
    "--all-interfaces", is_flag=True, help="Listen at every address of this machine, instead of --host."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8786, show_default=True, help="0: any free one."
)
@click.option(
    "--dashboard",
    default="127.0.0.1:8787",
    show_default=True,
    metavar="HOST:PORT",
    help="Pages for a browser.",
)
@click.option("--no-dashboard", is_flag=True, help="No pages but /health and /metrics, at any free port.")
@encrypting
@_without_tls
@talking
def scheduler(
    host: str,
    all_interfaces: bool,
    port: int,
    dashboard: str,
    no_dashboard: bool,
    tls: TlsFiles,
    without_tls: bool,
    *,
    talk: Talk,
) -> None:
    """Run a Dask scheduler until it is told to end.

    Beyond this machine it needs TLS. The dashboard has neither encryption nor passwords: leave it at 127.0.0.1 and
    reach it by `ssh -L 8787:127.0.0.1:8787 HOST`.
    """
    from plmix_dist.engine.serving import SchedulerOptions, serve_scheduler

    tell_if_interrupted(lambda: "the scheduler has ended; work that it had is lost")
    options = SchedulerOptions(
        host="" if all_interfaces else host,
        port=port,
        dashboard=None if no_dashboard else dashboard,
        tls=tls,
        without_tls=without_tls,
    )
    serve_scheduler(options, _shown("scheduler", talk))


@plmix.command(
    epilog=examples(
        "plmix worker tcp://127.0.0.1:8786 --workers 2 --memory-limit 2GB",
        f"plmix worker tls://cluster.example.org:8786 {_TLS}",
    )
)
@click.argument("scheduler")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of processes.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads per worker.")
@click.option("--memory-limit", metavar="SIZE", help="Memory per worker, such as 1GB.")
@click.option("--host", help="Name or address to listen at; the one that faces the scheduler if left out.")
@click.option(
    "--wait",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="Seconds to wait for the scheduler.",
)
@encrypting
@_without_tls
@talking
def worker(*, talk: Talk, **options: Any) -> None:
    """Run workers of the scheduler at an address until they are told to end, or until the scheduler ends."""
    from plmix_dist.engine.serving import WorkerOptions, serve_workers

    tell_if_interrupted(lambda: "the workers have ended; others do their work again")
    serve_workers(WorkerOptions(**options), _shown("workers", talk))


@plmix.command(epilog=examples("plmix certificates tls --host cluster.example.org"))
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--host", "hosts", multiple=True, help="Name or address in the certificate; may be repeated.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long it is valid."
)
@click.option("--force", is_flag=True, help="Replace an earlier set.")
@talking
def certificates(folder: str, hosts: tuple[str, ...], days: int, force: bool, *, talk: Talk) -> None:
    """Write a set of certificates for development: DIR/ca.pem, cert.pem and key.pem.

    All members of a cluster use the same three files. Whoever has the key can run programs on the workers.
    """
    from plmix_dist.engine.certificates import write_certificates

    tell_if_interrupted(lambda: "nothing was written; run the same command again to start over")
    chosen = hosts or ("localhost", "127.0.0.1")
    made = write_certificates(folder, hosts=chosen, days=days, force=force)
    record = {name: str(value) for name, value in made._asdict().items()}
    use = f"--tls-ca {made.ca} --tls-cert {made.cert} --tls-key {made.key}"
    lines = [
        ("folder", Path(folder)),
        ("valid until", f"{made.expires:%Y-%m-%d}"),
        ("use", use),
    ]
    show(lines, record, **vars(talk))


def _shown(name: str, talk: Talk) -> Callable[[dict[str, Any]], None]:
    """Prints addresses when they are known. Whoever started the process waits for that line."""

    def ready(record: dict[str, Any]) -> None:
        values = [", ".join(value) if isinstance(value, list) else value for value in record.values()]
        keys = [name if key == "address" else key for key in record]
        show(list(zip(keys, values, strict=True)), record, **vars(talk))

    return ready
