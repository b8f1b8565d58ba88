"""Job files: all keys, and everything that is wrong at once."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plmix_dist.errors import JobError, SettingsError
from plmix_dist.jobs.file import KEYS, _job_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.cli_helpers import Said

    Shell = Callable[..., Said]


ROOT = Path(__file__).parents[2]


def test_job__all_faults_at_once_with_the_nearest_known_name(tmp_path: Path) -> None:
    given = {
        "data": {"stores": "ballots"},
        "modell": {"components": 2},
        "model": {"components": 0, "alhpa": 1.0, "m_step": "lsrr", "tol": "small"},
        "cluster": {"scheduler": "tcp://127.0.0.1:8786", "workers": 2, "memory": "lots", "tls_ca": "none.pem"},
        "start": {"init": "spectal"},
        "limits": 3,
        "hooks": {"url": "ftp://example.org"},
    }
    with pytest.raises(JobError) as caught:
        _job_of(given, tmp_path)
    said = str(caught.value)
    for expected in (
        "[data] has no key 'stores'; did you mean 'store'?",
        "unknown table or key 'modell'; did you mean 'model'?",
        "model.components must be a whole number from 1 on, but is 0",
        "[model] has no key 'alhpa'; did you mean 'alpha'?",
        "model.m_step must be auto, lsr",
        "but is 'lsrr'; did you mean 'lsr'?",
        "model.tol must be a finite number above 0, but is 'small' (str)",
        "data.store is missing: the store of rankings",
        "outputs.folder is missing",
        "cluster.scheduler and cluster.workers exclude each other",
        "such as 2GB, at least 200MB, but is 'lots'",
        "cluster.tls_ca: no file",
        "start.init must be spectral, random, kernel, moments or the folder of a model, but is 'spectal'; did you mean",
        "limits must be a table, [limits], but is 3 (int)",
        "hooks.url must begin with http:// or https://, but is 'ftp://example.org'",
    ):
        assert expected in said
    assert said.startswith("15 things are wrong with this job:")  # TLS files are not complete either


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.key)
def test_keys__every_key_is_checked(key: Any) -> None:
    with pytest.raises(SettingsError, match=re.escape(key.key)):
        key.kind.check(key.key, [[1]])


def test_keys__every_key_is_on_the_page() -> None:
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    in_markdown = runpy.run_path(str(ROOT / "docs/_ext/tables.py"))["in_markdown"]
    assert in_markdown() in page
    (example,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    missing = [key.key for key in KEYS if not re.search(rf"^#? ?{key.key.split('.')[-1]} = ", example, re.MULTILINE)]
    assert missing == []


@pytest.mark.parametrize("text", ["model = ", "[data", "a = 1\na = 2"])
def test_job__that_is_no_toml(tmp_path: Path, text: str, shell: Shell) -> None:
    (tmp_path / "job.toml").write_text(text)
    assert "job.toml is not valid: " in shell("run", "job.toml", code=2).err
    assert not (tmp_path / "out").exists()


def test_job__two_things_are_counted(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"^2 things are wrong with this job"):
        _job_of({"data": {"store": "s"}, "outputs": {"folder": "o"}, "model": {"components": 0}}, tmp_path)
