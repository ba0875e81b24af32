"""Break each import contract in a copy of the source; the linter must report it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
CONFIG = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]

# name -> contract, file, text added to it, module that the linter must name
SEEDS = {
    "upwards": ("layers", "sources/seed.py", "from overnight import app\n", "overnight.app"),
    "sideways": ("layers", "sources/seed.py", "from overnight import store\n", "overnight.store"),
    "unlisted package": ("layers", "misc/__init__.py", "", "misc"),
    "reader reaches a host": (
        "apart",
        "queries/seed.py",
        "from overnight.undo import local\n",
        "overnight.undo",
    ),
    "host reaches a reader": (
        "apart",
        "undo/seed.py",
        "from overnight.queries import top\n",
        "overnight.queries",
    ),
    "reader reaches a host through another": (
        "apart",
        "queries/seed.py",
        "from overnight.model import between\n",
        "overnight.model.between",
    ),
    "third-party package in a source": ("stdlib", "sources/seed.py", "import numpy\n", "numpy"),
    "third-party package, inside a function": (
        "stdlib",
        "model/seed.py",
        "def f() -> None:\n    import rich.table\n",
        "rich",
    ),
    "third-party package in the ring": ("stdlib", "store/ring/seed.py", "import numpy\n", "numpy"),
    "third-party package through the store": (
        "stdlib",
        "agent/seed.py",
        "from overnight.store import heavy\n",
        "overnight.store.heavy",
    ),
    "command reaches a query": (
        "interfaces",
        "interfaces/cli/commands/seed.py",
        "def f() -> None:\n    from overnight.queries import top\n",
        "overnight.queries.top",
    ),
    "interface reaches a pool": (
        "interfaces",
        "interfaces/http/seed.py",
        "from overnight import pools\n",
        "overnight.pools",
    ),
    "the MCP SDK in a command": (
        "mcp",
        "interfaces/cli/commands/seed.py",
        "def f() -> None:\n    import mcp.server\n",
        "mcp",
    ),
    "types of the MCP SDK in a use case": ("mcp", "app/seed.py", "import mcp_types\n", "mcp_types"),
    "tool reaches a pool": (
        "interfaces",
        "interfaces/mcp/seed.py",
        "def f() -> None:\n    from overnight.pools import control\n",
        "overnight.pools.control",
    ),
    "tool reaches another interface": (
        "concierge",
        "interfaces/mcp/seed.py",
        "def f() -> None:\n    from overnight.interfaces.cli import session\n",
        "overnight.interfaces.cli.session",
    ),
    "tool reaches the HTTP interface": (
        "concierge",
        "interfaces/mcp/seed.py",
        "from overnight.interfaces.http import access\n",
        "overnight.interfaces.http.access",
    ),
    "database reaches a package with tables": (
        "layers",
        "database/seed.py",
        "from overnight import pools\n",
        "overnight.pools",
    ),
    "fleet reaches a pool": (
        "layers",
        "fleet/seed.py",
        "from overnight import pools\n",
        "overnight.pools",
    ),
    "source reaches the HTTP client": (
        "layers",
        "sources/seed.py",
        "from overnight import http_client\n",
        "overnight.http_client",
    ),
    "fleet reaches a reader": (
        "apart",
        "fleet/seed.py",
        "from overnight.queries import top\n",
        "overnight.queries",
    ),
    "third-party package in the HTTP client": (
        "stdlib",
        "http_client.py",
        "import httpx\n",
        "httpx",
    ),
    "SQLAlchemy beside the fast path": (
        "stdlib",
        "database/sqlite_files.py",
        "from overnight.database import columns\n",
        "sqlalchemy",
    ),
    "SQL in pools": (
        "sql",
        "pools/seed.py",
        "def f() -> None:\n    import sqlalchemy as sa\n",
        "sqlalchemy",
    ),
    "SQL in fleet": ("sql", "fleet/seed.py", "import sqlalchemy\n", "sqlalchemy"),
    "migrations in app": ("sql", "app/seed.py", "import alembic.command\n", "alembic"),
    "source reaches Kubernetes": (
        "layers",
        "sources/seed.py",
        "from overnight import kubernetes_api\n",
        "overnight.kubernetes_api",
    ),
    "reader reaches Kubernetes": (
        "apart",
        "queries/seed.py",
        "from overnight import kubernetes_api\n",
        "overnight.kubernetes_api",
    ),
    "pool reaches Kubernetes": (
        "kubernetes",
        "pools/seed.py",
        "def f() -> None:\n    from overnight.kubernetes_api import client\n",
        "overnight.kubernetes_api.client",
    ),
    "lightkube in a provider": (
        "lightkube",
        "reservations/providers/seed.py",
        "def f() -> None:\n    import lightkube.core.client\n",
        "lightkube",
    ),
    "YAML in a use case": (
        "yaml",
        "app/seed.py",
        "def f() -> None:\n    import yaml\n",
        "yaml",
    ),
    "reservation knows investigations": (
        "layers",
        "reservations/seed.py",
        "from overnight.investigations import decisions\n",
        "overnight.investigations.decisions",
    ),
    "report runs an investigation": (
        "apart",
        "reports/seed.py",
        "def f() -> None:\n    from overnight.investigations import driver\n",
        "overnight.investigations.driver",
    ),
    "sibling": ("plugins", "sources/cpu.py", "from overnight.sources import kmsg\n", "kmsg"),
}
ALSO = {
    "undo/__init__.py": "",
    "undo/local.py": "",
    "queries/__init__.py": "",
    "queries/top.py": "",
    "agent/__init__.py": "",
    "http_client.py": "",
    "store/heavy.py": "import duckdb\n",
    "model/between.py": "from overnight.undo import local\n",
}


# Answers a contract a line with an exit code and what the linter printed: a process each would take 0.4 s.
LINTER = """
import contextlib, io, json, sys
from importlinter import cli
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = cli.lint_imports(limit_to_contracts=(line.strip(),), no_cache=True, no_logo=True)
    print(json.dumps([code, printed.getvalue()]), flush=True)
"""


class Copy:
    """A copy of the source, and a process that lints it."""

    def __init__(self, folder: pathlib.Path, linter: subprocess.Popen[str]) -> None:
        self._source = folder / "src/overnight"
        self._linter = linter
        self._added: list[str] = []

    def add(self, name: str, text: str) -> None:
        path = self._source / name
        package = path.parent / "__init__.py"
        path.parent.mkdir(exist_ok=True)
        package.touch()
        path.write_text((path.read_text() if path.exists() else "") + text)
        self._added += [name, str(package.relative_to(self._source))]

    def lint(self, contract: str) -> tuple[int, str]:
        assert self._linter.stdin
        assert self._linter.stdout
        self._linter.stdin.write(contract + "\n")
        self._linter.stdin.flush()
        code, printed = json.loads(self._linter.stdout.readline())
        return code, printed

    def restore(self) -> None:
        for name in self._added:
            path, original = self._source / name, REPOSITORY / "src/overnight" / name
            if original.exists():
                shutil.copy(original, path)
            else:
                path.unlink(missing_ok=True)
        for name in self._added:
            if not (REPOSITORY / "src/overnight" / name).parent.exists():
                shutil.rmtree((self._source / name).parent, ignore_errors=True)
        self._added.clear()


@pytest.fixture(scope="module")
def module_copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(REPOSITORY / "src/overnight", folder / "src/overnight", ignore=ignore)
    shutil.copytree(REPOSITORY / "tools", folder / "tools", ignore=ignore)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    with subprocess.Popen(
        [sys.executable, "-c", LINTER],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder / 'src'}:{folder}", "COLUMNS": "200"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as linter:
        yield Copy(folder, linter)


@pytest.fixture
def copy(module_copy: Copy) -> Iterator[Copy]:
    yield module_copy
    module_copy.restore()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seeded_violation_is_caught(copy: Copy, seed: str) -> None:
    contract, name, text, named = SEEDS[seed]
    if seed == "unlisted package":
        copy.add(name, text)
    else:
        for other, body in ALSO.items():
            # Only the modules that this seed imports: the others would break other contracts.
            if pathlib.Path(other).stem in text or other.endswith("__init__.py"):
                copy.add(other, body)
        if "between" in text:
            copy.add("undo/local.py", "")
        copy.add(name, text)
    code, printed = copy.lint(contract)
    assert code == 1, printed
    assert named in printed


@pytest.mark.parametrize("contract", [contract["id"] for contract in CONFIG["contracts"]])
def test_every_contract_has_a_seed_and_holds(copy: Copy, contract: str) -> None:
    assert contract in {seed[0] for seed in SEEDS.values()}
    code, printed = copy.lint(contract)
    assert code == 0, printed
