"""Rooms: every one stands in the layers of imports, and heavy libraries are imported in one room each."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "plmix_dist"
MODULES = {
    f"plmix_dist.{entry.stem}"
    for entry in PACKAGE.iterdir()
    if (entry.suffix == ".py" and entry.stem != "__init__") or (entry / "__init__.py").exists()
}


def test_layers__every_module_is_in_one() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert sorted(contract["layers"]) == sorted(MODULES)


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    tree = ast.parse(path.read_text())
    plain = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in [*plain, *named]}


@pytest.mark.parametrize(
    ("libraries", "rooms"),
    [
        ({"numba", "llvmlite"}, {"kernels"}),
        ({"zarr", "numcodecs"}, {"store"}),
        ({"dask", "distributed", "dask_ml"}, {"cluster", "passes", "datasets/export.py"}),
    ],
)
def test_library__is_imported_in_its_rooms_alone(libraries: set[str], rooms: set[str]) -> None:
    users = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if libraries & imported(path)}
    assert users
    assert {user for user in users if user.partition("/")[0] not in rooms} <= rooms
