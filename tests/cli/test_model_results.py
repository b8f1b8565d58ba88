"""What a command leaves behind: exit codes, and numbers on weighted data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from plmix_dist import MixtureParams
from plmix_dist.errors import StoreError
from plmix_dist.rankings import RankingBlock
from plmix_dist.store import reader
from tests.helpers.fit_oracle import log_likelihood, slate, top
from tests.helpers.ingest_helpers import printed_json
from tests.helpers.oracle import write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.common import Said

ROWS = [slate([0, 1, 2], [], weight=4.5), top(2, weight=0.25), slate([1, 2], [], weight=7.0)]


@pytest.fixture
def weighted(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", [[RankingBlock.from_rows(ROWS, n_items=3)]])
    return tmp_path / "store"


def test_score__json_of_weighted_rows(tmp_path: Path, weighted: Path, plmix: Callable[..., Said]) -> None:
    log_worths, shares = np.array([[1.0, 0.0, -1.0], [-0.5, 0.2, 0.3]]), [0.7, 0.3]
    MixtureParams.of(log_worths, shares, ["item 0", "item 1", "item 2"]).save(tmp_path / "model")
    expected = log_likelihood(ROWS, 3, log_worths, shares)
    record = printed_json(plmix("score", tmp_path / "model", weighted, "--json").out)
    assert record == {
        "score": pytest.approx(expected / 11.75, rel=1e-12),
        "log_likelihood": pytest.approx(expected, rel=1e-12),
        "total_weight": 11.75,
    }


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "plmix: error: interrupted; "),
        (StoreError("wrong"), 1, "plmix: error: wrong\n"),
        (LookupError("odd"), 1, "plmix: error: LookupError: odd (an error of plmix itself; --debug shows where)\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit__codes(
    weighted: Path,
    plmix: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fails(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(reader.RankingStore, "total_weight", property(fails))
    ended = plmix("info", weighted)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.lstrip().startswith(said)
