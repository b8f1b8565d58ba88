"""Rows of the table of settings, and job keys in Markdown for docs/jobs.md; `python docs/_ext/tables.py`."""

from __future__ import annotations

import math
from typing import Any

from plmix_dist.jobs.file import KEYS
from plmix_dist.settings.table import SETTINGS, TASKS, Setting

HEADER = ("of", "Python", "command line", "job file", "value", "default", "meaning")
_VALUES = {"spectral": "Spectral", "kernel": "KernelStart"}


def rows() -> list[tuple[str, ...]]:
    """One row of texts per setting, in the order of the table."""
    return [
        (
            ", ".join(setting.tasks),
            _in_python(setting),
            "" if setting.text is None else setting.option,
            "" if setting.text is None else setting.key,
            setting.kind.words,
            "required by verbs and jobs" if setting.required else repr(setting.default),
            setting.help,
        )
        for setting in SETTINGS
    ]


def _in_python(setting: Setting) -> str:
    if not setting.field:
        return setting.name
    return ", ".join(f"{_VALUES[start]}({setting.field}=)" for start in setting.starts)


def in_markdown() -> str:
    """One line per key, with the tasks that it belongs to if these are not all."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key in KEYS:
        default = "required" if key.required else _toml(key.default)
        of = "" if key.tasks == TASKS else f" (`{'`, `'.join(key.tasks)}`)"
        more = f" See [{key.page}]({key.page}.md)." if key.page else ""
        lines.append(f"| `{key.key}`{of} | {key.kind.words} | {default} | {key.help}{more} |")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    is_whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
    return f"`{int(value) if is_whole else value}`"


if __name__ == "__main__":
    print(in_markdown())  # noqa: T201
