"""Trials of an experiment as lines of a file: what is there is not computed again, so a run can be resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks import common

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run_trials(
    name: str, trials: Iterable[dict[str, Any]], compute: Callable[[dict[str, Any]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """The records of all trials, old and new; each new one is appended to results/NAME.jsonl at once.

    A trial is a dict of plain values that says all that determines its result. Its record is that dict and the result.
    """
    path = common.RESULTS / f"{name}.jsonl"
    common.RESULTS.mkdir(parents=True, exist_ok=True)
    known: dict[str, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            known[_key(entry["trial"])] = entry["result"]
    records = []
    for trial in trials:
        result = known.get(_key(trial))
        if result is None:
            result = compute(trial)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"trial": trial, "result": result}) + "\n")
            print(name, trial, {what: _short(value) for what, value in result.items()}, flush=True)
        records.append(trial | result)
    return records


def _key(trial: dict[str, Any]) -> str:
    return json.dumps(trial, sort_keys=True)


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def means(records: list[dict[str, Any]], by: tuple[str, ...], of: tuple[str, ...]) -> list[dict[str, Any]]:
    """Means of some columns over trials that agree in others, with the number of trials."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in by), []).append(record)
    return [
        dict(zip(by, key, strict=True))
        | {name: sum(record[name] for record in group) / len(group) for name in of}
        | {"trials": len(group)}
        for key, group in groups.items()
    ]
