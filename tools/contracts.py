"""Import contracts that import-linter does not bring.

Its own `forbidden` contract wants every third-party package named, so that a new one would slip
through, and every module to exist, where ours come issue by issue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    import grimp

__all__ = ["Apart", "ImportsOnly", "StdlibOnly"]


def _names(field: object) -> list[str]:
    return sorted(str(module) for module in cast("Iterable[Any]", field))


def _chains(graph: grimp.ImportGraph, froms: list[str], tos: list[str]) -> list[tuple[str, ...]]:
    """The shortest chain of imports for each pair that has one, through any module between."""
    return [
        chain
        for importer in froms
        for imported in tos
        if {importer, imported} <= graph.modules
        and (chain := graph.find_shortest_chain(importer, imported, as_packages=True))
    ]


class _NoChains(Contract):
    """Kept while there are no forbidden chains; says each one that there is."""

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
    one = fields.SetField(subfield=fields.ModuleField())
    other = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Look both ways."""
        del verbose
        one, other = _names(self.one), _names(self.other)
        chains = _chains(graph, one, other) + _chains(graph, other, one)
        return ContractCheck(kept=not chains, metadata={"chains": chains})


class ImportsOnly(_NoChains):
    """No module of `package` imports a module of ours directly that is not in `package` or `allowed`."""

    type_name = "imports_only"
    package = fields.ModuleField()
    allowed = fields.SetField(subfield=fields.ModuleField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Look at direct imports: what lies behind `allowed` is theirs to choose."""
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
