"""Import contracts that import-linter does not have.

Its own `forbidden` contract requires a list of all third-party packages, so it would miss a new one, and
every module must exist, while ours are added issue by issue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    import grimp

__all__ = ["Apart", "ImportedOnlyBy", "ImportsOnly", "StdlibOnly"]


def _names(field: object) -> list[str]:
    return sorted(str(module) for module in cast("Iterable[Any]", field))


def _chains(graph: grimp.ImportGraph, froms: list[str], tos: list[str]) -> list[tuple[str, ...]]:
    """Return the shortest chain of imports of each connected pair, through any module between."""
    return [
        chain
        for importer in froms
        for imported in tos
        if {importer, imported} <= graph.modules
        and (chain := graph.find_shortest_chain(importer, imported, as_packages=True))
    ]


def _family(graph: grimp.ImportGraph, package: str) -> list[str]:
    """Return a package and everything below it; a third-party one is a single module of the graph."""
    below = set() if graph.is_module_squashed(package) else graph.find_descendants(package)
    return sorted({package, *below})


class _NoChains(Contract):
    """Kept while no forbidden chain exists; prints each one that does."""

    def render_broken_contract(self, check: ContractCheck) -> None:
        for chain in check.metadata["chains"]:
            output.print_error("  " + " -> ".join(chain))


class StdlibOnly(_NoChains):
    """No chain of imports leads from `modules` to a third-party package."""

    type_name = "stdlib_only"
    modules = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Follow every chain, also through packages that are not listed."""
        del verbose
        third_party = [
            name
            for name in graph.modules
            if graph.is_module_squashed(name) and name not in sys.stdlib_module_names
        ]
        chains = _chains(graph, _names(self.modules), sorted(third_party))
        return ContractCheck(kept=not chains, metadata={"chains": chains})


class Apart(_NoChains):
    """No chain of imports leads from a package of one side to one of the other, either way."""

    type_name = "apart"
    first = fields.SetField(subfield=fields.ModuleField())
    second = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Check both directions."""
        del verbose
        first, second = _names(self.first), _names(self.second)
        chains = _chains(graph, first, second) + _chains(graph, second, first)
        return ContractCheck(kept=not chains, metadata={"chains": chains})


class ImportsOnly(_NoChains):
    """Modules of `package` import directly only modules of `package` and `allowed`, of our own modules."""

    type_name = "imports_only"
    package = fields.ModuleField()
    allowed = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Check direct imports; the packages in `allowed` may import anything."""
        del verbose
        package = str(self.package)
        root = package.partition(".")[0]
        allowed = (package, *_names(self.allowed))
        chains = [
            (importer, imported)
            for importer in sorted({package, *graph.find_descendants(package)})
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.startswith(f"{root}.")
            and not any(imported == name or imported.startswith(f"{name}.") for name in allowed)
        ]
        return ContractCheck(kept=not chains, metadata={"chains": chains})


class ImportedOnlyBy(_NoChains):
    """Nothing imports `packages` directly, except they themselves and `importers`."""

    type_name = "imported_only_by"
    packages = fields.SetField(subfield=fields.ModuleField())
    importers = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Check direct imports; a package that does not exist yet is not imported."""
        del verbose
        packages = [name for name in _names(self.packages) if name in graph.modules]
        allowed = (*packages, *_names(self.importers))
        chains = [
            (importer, imported)
            for package in packages
            for imported in _family(graph, package)
            for importer in sorted(graph.find_modules_that_directly_import(imported))
            if not any(importer == name or importer.startswith(f"{name}.") for name in allowed)
        ]
        return ContractCheck(kept=not chains, metadata={"chains": chains})
