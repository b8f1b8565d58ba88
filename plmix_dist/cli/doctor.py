"""The verb that looks at the installation and at a cluster: doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmix_dist.cli import plmix
from plmix_dist.cli.options import computing, examples, talking
from plmix_dist.cli.output import EXIT_ERROR, show

if TYPE_CHECKING:
    from plmix_dist.cli.options import Talk
    from plmix_dist.engine import LazyExecutor


@plmix.command(epilog=examples("plmix doctor", "plmix doctor --workers 2 --json"))
@computing
@talking
def doctor(*, executor: LazyExecutor, talk: Talk) -> int:
    """Look at versions, threads, memory, compiled kernels, the cache and, if one is named, a cluster.

    What is wrong is marked, with what to do about it; then the exit code is 1. Notes do not change it.
    """
    from plmix_dist.doctor import examine

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
    record = {"ok": not wrong, "findings": [finding._asdict() for finding in found]}
    show([*lines, ("verdict", verdict)], record, **vars(talk))
    return EXIT_ERROR if wrong else 0
