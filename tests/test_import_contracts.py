"""Import contracts name every top-level module, so that a new one cannot import whatever it likes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {
    f"plmix_dist.{entry.stem}"
    for entry in (ROOT / "plmix_dist").iterdir()
    if (entry.suffix == ".py" and entry.stem != "__init__") or (entry / "__init__.py").exists()
}
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


def test_layers__every_module_is_in_one() -> None:
    layered = [name for layer in CONTRACTS["layers"]["layers"] for name in layer.split(" | ")]
    assert sorted(layered) == sorted(MODULES)


@pytest.mark.parametrize(
    ("name", "owner", "libraries"),
    [
        ("numba is used by the kernels alone", "kernels", {"numba", "llvmlite"}),
        ("zarr is used by the store alone", "store", {"zarr", "numcodecs"}),
        ("dask is used by the engine alone", "engine", {"dask", "distributed", "dask_ml"}),
    ],
)
def test_library__every_module_but_its_owner_is_forbidden_to_import_it(
    name: str, owner: str, libraries: set[str]
) -> None:
    contract = CONTRACTS[name]
    assert set(contract["source_modules"]) == MODULES - {f"plmix_dist.{owner}"}
    assert set(contract["forbidden_modules"]) == libraries
