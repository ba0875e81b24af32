"""Rules for every module of the package."""

from __future__ import annotations

import ast
import doctest
import importlib
import pathlib

import overnight
from overnight.app import doctor
from overnight.interfaces.cli import commands

PACKAGE = pathlib.Path(overnight.__file__).parent


def test_docstring_examples_work() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in path.read_text():
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            module = importlib.import_module(name.removesuffix(".__init__"))
            assert doctest.testmod(module).failed == 0, name


def test_modules_import_modules_not_names() -> None:
    """`from overnight.queries import flame`; only the values of `model` are imported by name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if not isinstance(node, ast.ImportFrom) or not module.startswith("overnight"):
                continue
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                allowed = (
                    whole == "overnight.__version__"
                    or module.startswith("overnight.model.")
                    or _is_module(whole)
                )
                assert allowed, f"{path}:{node.lineno} imports a name: {whole}"


def _is_module(name: str) -> bool:
    base = PACKAGE.parent / name.replace(".", "/")
    return base.is_dir() or bool(list(base.parent.glob(base.name + ".*")))


def test_plugins_implement_their_interface() -> None:
    from overnight import app

    assert [module.ORDER for module in doctor.modules()] == [1, 2, 3, 4, 5]
    for command in app.discover(commands):
        assert callable(command.register)
        assert isinstance(command.ORDER, int)
