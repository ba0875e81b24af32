"""CONTRIBUTING.md has a recipe for every extension point."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
SOURCE = REPOSITORY / "src/overnight"
RECIPES = dict(
    re.findall(
        r"^### ([^\n]+)\n(.*?)(?=^##)",
        (REPOSITORY / "CONTRIBUTING.md").read_text() + "\n## end",
        re.DOTALL | re.MULTILINE,
    )
)
# Extension points that are entries of a file or a folder of data, and the title of each recipe.
TITLES = [
    "a source", "a signal", "a watch", "an outlet", "a kernel-log rule", "a signature", "a finding kind",
    "a detector", "a doctor check", "an input format", "an output format", "a filter", "a use case",
    "a command", "an HTTP operation", "a table or a column", "a pool provider", "a workload", "a host state", "a rehearsal", "a built-in change", "an undo operation",
    "a benchmark",
]  # fmt: skip


def discovered_packages() -> set[str]:
    """Find the packages that are passed to a discover function or to `pkgutil.iter_modules`."""
    packages = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "iter_modules(" not in text and "discover(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            call, argument = ast.unparse(node.func), ast.unparse(node.args[0])
            name = argument.removesuffix(".__path__")
            if call == "pkgutil.iter_modules" and name in ("__path__", "package"):
                name = path.parent.name if name == "__path__" else ""
            elif call == "app.discover" and name == "sys.modules[__name__]":
                name = path.parent.name
            elif call not in ("pkgutil.iter_modules", "app.discover", "sources.discover"):
                name = ""
            packages |= {name} - {""}
    return packages


def test_discovered_packages_are_found() -> None:
    assert {"sources", "watches", "detectors", "formats", "providers", "workloads", "rehearsals", "host_state", "doctor", "commands"} <= discovered_packages()  # fmt: skip


@pytest.mark.parametrize("package", sorted(discovered_packages()))
def test_every_discovered_package_has_a_recipe(package: str) -> None:
    assert any(f"/{package}/" in text for text in RECIPES.values()), f"no recipe names {package}/"


@pytest.mark.parametrize("title", TITLES)
def test_every_extension_point_has_a_recipe(title: str) -> None:
    assert RECIPES[title].strip()


@pytest.mark.parametrize("title", sorted(RECIPES))
def test_a_recipe_names_paths_that_exist(title: str) -> None:
    for name in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]*)`", RECIPES[title]):
        if "NAME" not in name:
            assert (REPOSITORY / name).exists(), f"{name} does not exist"
        else:
            assert (REPOSITORY / name).parent.is_dir(), f"{name}: its folder does not exist"
