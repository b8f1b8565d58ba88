"""Verbs for clusters and the installation: scheduler, worker, certificates, doctor, compile, completion."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from plmix_dist.cli.main import on_interruption, plmix
from plmix_dist.cli.options import PATH, executor_options, option, tls_options, verb
from plmix_dist.cli.output import EXIT_ERROR, asked_for, print_result, show, size
from plmix_dist.cluster.executor import LazyExecutor
from plmix_dist.errors import SettingsError

_TLS = "--tls-ca tls/ca.pem --tls-cert tls/cert.pem --tls-key tls/key.pem"
_without_tls = option(
    "--without-tls", is_flag=True, help="Allow what others can reach to be neither encrypted nor checked."
)


@verb("plmix scheduler", f"plmix scheduler --host cluster.example.org {_TLS}")
@option("--host", default="127.0.0.1", help="Name or address to listen at.")
@option("--all-interfaces", is_flag=True, help="Listen at every address of this machine, instead of --host.")
@option("--port", type=click.IntRange(0, 65535), default=8786, help="0: any free one.")
@option("--dashboard", default="127.0.0.1:8787", metavar="HOST:PORT", help="Pages for a browser.")
@option("--no-dashboard", is_flag=True, help="No pages but /health and /metrics, at any free port.")
@tls_options
@_without_tls
def scheduler(*, host: str, all_interfaces: bool, dashboard: str, no_dashboard: bool, **options: Any) -> None:
    """Run a Dask scheduler until it is stopped.

    Beyond this machine it needs TLS. The dashboard has neither encryption nor passwords: leave it at 127.0.0.1 and
    reach it by `ssh -L 8787:127.0.0.1:8787 HOST`.
    """
    from plmix_dist.cluster.services import serve_scheduler

    on_interruption(lambda: "the scheduler has ended; work that it had is lost")
    options |= {"host": "" if all_interfaces else host, "dashboard": None if no_dashboard else dashboard}
    serve_scheduler(_shown("scheduler"), **options)


@verb(
    "plmix worker tcp://127.0.0.1:8786 --workers 2 --memory-limit 2GB",
    f"plmix worker tls://cluster.example.org:8786 {_TLS}",
)
@click.argument("scheduler")
@option("--workers", type=click.IntRange(1), default=1, help="Number of processes.")
@option("--threads", type=click.IntRange(1), default=1, help="Threads per worker.")
@option("--memory-limit", metavar="SIZE", help="Memory per worker, such as 1GB.")
@option("--host", help="Name or address to listen at; the one that faces the scheduler if left out.")
@option("--wait", type=click.FloatRange(1), default=60.0, help="Seconds to wait for the scheduler.")
@tls_options
@_without_tls
def worker(**options: Any) -> None:
    """Run workers of the scheduler at an address until they are stopped, or until the scheduler ends."""
    from plmix_dist.cluster.services import serve_workers

    on_interruption(lambda: "the workers have ended; others do their work again")
    serve_workers(_shown("workers"), **options)


@verb("plmix certificates tls --host cluster.example.org")
@click.argument("folder", metavar="DIR", type=PATH)
@option("--host", "hosts", multiple=True, help="Name or address in the certificate; may be repeated.")
@option("--days", type=click.IntRange(1, 3650), default=365, help="How long it is valid.")
@option("--force", is_flag=True, help="Replace an earlier set.")
def certificates(folder: str, hosts: tuple[str, ...], days: int, force: bool) -> None:
    """Write a set of certificates for development: DIR/ca.pem, cert.pem and key.pem.

    All members of a cluster use the same three files. Whoever has the key can run programs on the workers.
    """
    from plmix_dist.cluster.tls import write_certificates

    on_interruption(lambda: "nothing was written; run the same command again to start over")
    made = write_certificates(folder, hosts=hosts or ("localhost", "127.0.0.1"), days=days, force=force)
    record = {name: str(value) for name, value in made._asdict().items()}
    use = f"--tls-ca {made.ca} --tls-cert {made.cert} --tls-key {made.key}"
    show([("folder", Path(folder)), ("valid until", f"{made.expires:%Y-%m-%d}"), ("use", use)], record)


def _shown(name: str) -> Callable[[dict[str, Any]], None]:
    """Prints addresses when they are known. Whoever started the process waits for that line."""

    def ready(record: dict[str, Any]) -> None:
        values = [", ".join(value) if isinstance(value, list) else value for value in record.values()]
        show(list(zip([name if key == "address" else key for key in record], values, strict=True)), record)

    return ready


@verb("plmix doctor", "plmix doctor --workers 2 --json")
@executor_options
def doctor(*, executor: LazyExecutor) -> int:
    """Look at versions, threads, memory, compiled kernels, the cache and, if one is named, a cluster.

    What is wrong is marked, with what to do about it; then the exit code is 1. Notes do not change it.
    """
    from plmix_dist.cluster.doctor import examine

    options = executor.options
    found = examine(options if options.scheduler is not None or options.workers else None)
    wrong = [finding for finding in found if finding.state == "wrong"]
    lines = []
    for finding in found:
        sign = "" if finding.state == "ok" else f"{finding.state.upper()}: "
        lines.append((finding.name, f"{sign}{finding.words}"))
        if finding.remedy:
            lines.append(("", f"-> {finding.remedy}"))
    verdict = "nothing is wrong" if not wrong else f"wrong: {', '.join(finding.name for finding in wrong)}"
    show([*lines, ("verdict", verdict)], {"ok": not wrong, "findings": [finding._asdict() for finding in found]})
    return EXIT_ERROR if wrong else 0


@verb("plmix compile", name="compile")
def compile_verb() -> None:
    """Compile all kernels into the cache, for images and new workers.

    A first fit then starts without compiling. The cache is in PLMIX_CACHE_DIR or, if that is not set, in the user's
    cache folder. It serves one version of plmix and one type of processor.
    """
    from plmix_dist.kernels import cache_folder, compile_kernels
    from plmix_dist.threads import StoppableThreads

    on_interruption(lambda: "kernels that are compiled are kept; run the same command again to continue")
    begun, folder = time.perf_counter(), cache_folder()
    threads = StoppableThreads(1, "compile")  # an interruption does not wait for the compiler
    try:
        kernels = threads.submit(compile_kernels).result()
    finally:
        threads.stop(0.0)
    if not all(kernel.is_kept for kernel in kernels):
        raise SettingsError(
            f"compiled kernels cannot be written to {folder}; set PLMIX_CACHE_DIR to a folder that can be written"
        )
    seconds = time.perf_counter() - begun
    n_bytes = sum(path.stat().st_size for path in folder.glob("*.kernel"))
    record = {
        "folder": str(folder),
        "kernels": [
            {"name": kernel.name, "compiled": not kernel.was_kept, "seconds": round(kernel.seconds, 3)}
            for kernel in kernels
        ],
        "bytes": n_bytes,
        "seconds": round(seconds, 3),
    }
    lines = [
        *((kernel.name, "was there" if kernel.was_kept else f"{kernel.seconds:.2f} s") for kernel in kernels),
        ("compiled", f"{sum(not kernel.was_kept for kernel in kernels)} of {len(kernels)} kernels, {seconds:.2f} s"),
        ("folder", f"{folder} ({size(n_bytes)})"),
    ]
    show(lines, record)


_VARIABLE = "_PLMIX_COMPLETE"


@verb("plmix completion bash")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes verbs, options, their values and paths in SHELL.

    Put its output where your shell reads it when it starts: bash, `plmix completion bash >> ~/.bashrc`; zsh, `plmix
    completion zsh >> ~/.zshrc`; fish, `plmix completion fish > ~/.config/fish/completions/plmix.fish`. Then open a new
    shell.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(plmix, {}, "plmix", _VARIABLE).source()
    if asked_for("as_json"):
        show([], {"shell": shell, "script": script})
    elif not asked_for("quiet"):
        print_result(script)
