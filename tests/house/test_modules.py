"""What every module of the package has to keep."""

from __future__ import annotations

import ast
import importlib
import pathlib
import pkgutil

import pytest

import overnight
from overnight.app import doctor
from overnight.interfaces.cli import commands

PACKAGE = pathlib.Path(overnight.__file__).parent
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages([str(PACKAGE)], "overnight.")
    if not found.name.rpartition(".")[2].startswith("_")
)


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_exports_is_there(name: str) -> None:
    """That it is sorted, ruff checks."""
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert len(set(exported)) == len(exported)
    assert [public for public in exported if not hasattr(module, public)] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_modules_import_modules_not_names(path: pathlib.Path) -> None:
    """`from overnight.model import times`, never `from overnight.model.times import f`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("overnight"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                spec = whole == "overnight.__version__" or _is_module(whole)
                assert spec, f"{path}:{node.lineno} imports a name: {whole}"


def _is_module(name: str) -> bool:
    base = PACKAGE.parent / name.replace(".", "/")
    return base.is_dir() or bool(list(base.parent.glob(base.name + ".*")))


def test_plugins_offer_what_their_parent_promises() -> None:
    from overnight import app

    assert [module.ORDER for module in doctor.modules()] == [1, 2, 3, 4, 5]
    for command in app.discover(commands):
        assert callable(command.register)
        assert isinstance(command.ORDER, int)
