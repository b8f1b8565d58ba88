"""Names that every runnable example may use: np, plm and tmp, a fresh folder."""

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _names_of_examples(request: pytest.FixtureRequest) -> None:
    if not isinstance(request.node, pytest.DoctestItem):
        return
    import numpy as np

    import plmix_dist as plm

    names: dict[str, Any] = request.getfixturevalue("doctest_namespace")
    names.update(np=np, plm=plm, tmp=request.getfixturevalue("tmp_path"))
