"""A user at a shell in an empty folder: runs verbs in this process, checks exit codes, finds lines of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from plmix_dist.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Said(NamedTuple):
    """What a verb printed on stdout and on stderr."""

    out: str
    err: str

    def line(self, name: str) -> str:
        """The value of the only line `name  value` of a result."""
        (value,) = [line[len(name) :].strip() for line in self.out.splitlines() if line.startswith(f"{name} ")]
        return value

    def rankings(self) -> list[str]:
        """The first rankings as understood: the line `first` and the lines below it that have no name."""
        lines = self.out.splitlines()
        (begin,) = [number for number, line in enumerate(lines) if line.startswith("first ")]
        end = next(number for number in range(begin + 1, len(lines)) if not lines[number].startswith(" "))
        return [line.removeprefix("first").strip() for line in lines[begin:end]]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs a verb in a folder of its own; the exit code must be `code`."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        said = Said(*capsys.readouterr())
        assert int(stopped.value.code or 0) == code, said
        return said

    return run
