"""Wheel and sdist: complete, with and without the C extensions, and usable without the checkout."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import zipfile

import perfrecords as make
import pytest

from overnight import __version__

REPOSITORY = pathlib.Path(__file__).parents[2]
PAGE = "src/overnight/reports/viewer.html"
ROOTS = (
    "src/",
    "web/",
    "deploy/",
    "scripts/viewer",
    "pyproject",
    "setup",
    "MANIFEST",
    "README",
    "LICENSE",
)
PURE = {"OVERNIGHT_PURE_PYTHON": "1"}
# Every command, with those of all groups, in one process.
HELP = """
import contextlib, io, sys, typer.main
from overnight.interfaces import cli
def show(command, words):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert cli.main([*words, "--help"]) == 0, words
    assert "Usage:" in text.getvalue(), words
    for name, part in getattr(command, "commands", {}).items():
        show(part, [*words, name])
    print(*words)
show(typer.main.get_command(cli.build()), [])
"""


def list_files() -> list[str]:
    """Return tracked and new files of the checkout, and the page that set-up built."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    # tests/integration/test_viewer.py tests how npm builds the page from web/.
    return [name for name in listed if name.startswith(ROOTS) and (REPOSITORY / name).exists()] + [
        PAGE
    ]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    return copy_checkout(tmp_path / "checkout")


def copy_checkout(folder: pathlib.Path) -> pathlib.Path:
    for name in list_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    return folder


def build_wheel(
    source: pathlib.Path, folder: pathlib.Path, variables: dict[str, str]
) -> pathlib.Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", folder, source],
        env={**os.environ, **variables},
        check=True,
        timeout=100,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.parametrize(
    ("compiler", "built"),
    [
        ("cc", True),
        ("/bin/false", False),
        pytest.param("/nonexistent/cc", False, marks=pytest.mark.long),
    ],
)
def test_a_wheel_with_and_without_a_compiler(
    checkout: pathlib.Path, tmp_path: pathlib.Path, compiler: str, built: bool
) -> None:
    wheel = build_wheel(checkout, tmp_path, {"CC": compiler})
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert any(installed.rglob("_perfdata.*.so")) is built
    assert any(installed.rglob("_tree.*.so")) is built
    process = subprocess.run(
        [sys.executable, "-c", "from overnight.sources.perf import perfdata; print(perfdata.HAS_EXTENSION)"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert process.stdout.strip() == str(built)


class Installation:
    """overnight in an environment of its own, with nothing of the checkout on its path."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self.program = program
        self.python = program.with_name("python")
        self.folder = folder
        self.home = folder / "home"

    def run(self, *command: str | pathlib.Path) -> str:
        plain = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(self.folder)}
        process = subprocess.run(
            command, cwd=self.folder, env=plain, capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, (command, process.stdout[-2000:], process.stderr[-2000:])
        return process.stdout

    def overnight(self, *words: str) -> str:
        return self.run(self.program, "--home", str(self.home), *words)

    def decoders(self) -> list[bool]:
        text = self.run(
            self.python, "-c",
            "from overnight.sources.perf import perfdata; from overnight.store import tree;"
            "print(perfdata.HAS_EXTENSION, tree.HAS_EXTENSION)",
        )  # fmt: skip
        return [word == "True" for word in text.split()]


def install(wheel: pathlib.Path, folder: pathlib.Path) -> Installation:
    """Install into a fresh environment. Dependencies are those of this one: folders, so that the editable
    install of the checkout, which is a .pth file there, has no effect.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-deps", "--no-index", wheel],
        check=True,
    )  # fmt: skip
    site = folder / f"lib/python{sysconfig.get_python_version()}/site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installation(folder / "bin/overnight", folder)


def write_capture(path: pathlib.Path) -> None:
    """Write a perf.data file: three processes on two cores, with kernel and user stacks."""
    layout, chance, records = make.Layout(), random.Random(16), []
    for pid in (10, 11, 12):
        records.append(layout.comm(pid, pid, f"worker-{pid}".encode()))
        records.append(layout.mmap(pid, 0x1000, 0x9000, b"/opt/worker", pid=pid))
    for number in range(3000):
        depth = chance.randrange(1, 12)
        user = [make.IN_USER, *(0x1000 + 16 * chance.randrange(64) for _ in range(depth))]
        kernel = [make.IN_KERNEL, 0xFFFFFFFF81000000 + 64 * chance.randrange(32)]
        chain = kernel + user if number % 3 else user
        pid, core = chance.choice((10, 11, 12)), chance.randrange(2)
        records.append(layout.sample(1000 + number * 10**6, chain, pid=pid, cpu=core))
    # CLOCK_DATA: version, clock, wall time and time of samples; and the name of the host.
    clock = struct.pack("<IIQQ", 1, 1, 1_790_000_000 * 10**9, 1000)
    host = make.string_feature(b"host-a")
    path.write_bytes(make.file([layout.attr()], records, features={3: host, 29: clock}))


def describe(there: Installation, capture: pathlib.Path) -> tuple[object, ...]:
    """Check that the installation works; return what it answers about a capture and a rehearsal."""
    assert there.run(there.program, "--version") == f"overnight {__version__}\n"
    located = there.run(there.python, "-c", "import overnight; print(overnight.__file__)").strip()
    assert pathlib.Path(located).is_relative_to(there.folder), located
    commands = there.run(there.python, "-c", HELP).splitlines()
    # All that the checkout has: `serve` and `agent`, too.
    folder = REPOSITORY / "src/overnight/interfaces/cli/commands"
    names = {p.stem.partition("_")[0] for p in folder.glob("[a-z]*.py")}
    assert names <= {re.split("[ -]", command)[0] for command in commands}
    checks = {
        row["id"]: row for row in json.loads(there.overnight("doctor", "-O", "json"))["checks"]
    }
    assert (checks["decoder"]["status"] == "ok") is all(there.decoders())
    there.overnight("import", str(capture))
    assert len(there.overnight("flame", "-O", "html")) > 50_000
    rehearsed = json.loads(there.overnight("rehearse", "rt-hog", "--replay", "-O", "json"))
    assert rehearsed["correct"] is True
    return there.overnight("flame", "-O", "collapsed"), there.overnight("top", "-O", "json")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The archive that `python -m build --sdist --no-isolation` makes, through the same hook."""
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run(
        [sys.executable, "-c", "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])", folder],
        cwd=copy_checkout(folder / "checkout"), check=True, capture_output=True,
    )  # fmt: skip
    (archive,) = folder.glob("*.tar.gz")
    return archive


def install_from_sdist(
    sdist: pathlib.Path, folder: pathlib.Path, variables: dict[str, str]
) -> tuple[Installation, bool]:
    """Build a wheel of the archive, install it, and return whether it is without C extensions."""
    shutil.unpack_archive(sdist, folder)
    source = folder / sdist.name.removesuffix(".tar.gz")
    assert [name for name in list_files() if not (source / name).is_file()] == []
    wheel = build_wheel(source, folder, variables)
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    package = {n.removeprefix("src/") for n in list_files() if n.startswith("src/overnight/")}
    assert package - packed == set()
    return install(wheel, folder / "environment"), wheel.name.endswith("-py3-none-any.whl")


def test_the_sdist_has_every_file_and_makes_a_wheel_that_works(
    sdist: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    capture = tmp_path / "perf.data"
    write_capture(capture)
    there, is_pure = install_from_sdist(sdist, tmp_path / "native", {})
    assert (is_pure, there.decoders()) == (False, [True, True])
    assert "worker-11" in str(describe(there, capture)[0])


@pytest.mark.long
def test_wheels_with_and_without_extensions_give_the_same_answers(
    sdist: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    capture = tmp_path / "perf.data"
    write_capture(capture)
    answers = {}
    for name, variables in {"native": {}, "pure": PURE}.items():
        there, is_pure = install_from_sdist(sdist, tmp_path / name, variables)
        assert (is_pure, there.decoders()) == (name == "pure", [name == "native"] * 2)
        answers[name] = describe(there, capture)
    assert answers["native"] == answers["pure"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_build_and_pipx_install_from_an_empty_environment(tmp_path: pathlib.Path) -> None:
    """The whole way with the tools of PyPI: dependencies are downloaded, at their pinned versions."""
    tools, constraints = tmp_path / "tools", REPOSITORY / "constraints.txt"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin/pip", "install", "-qq", "build", "pipx"], check=True)
    checkout = copy_checkout(tmp_path / "checkout")
    subprocess.run([tools / "bin/python", "-m", "build", checkout], check=True, capture_output=True)
    (wheel,) = (checkout / "dist").glob("*.whl")
    assert len(list((checkout / "dist").glob("*.tar.gz"))) == 1
    folders = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    subprocess.run(
        [tools / "bin/pipx", "install", "--pip-args", f"-c {constraints}", f"overnight[server,postgresql] @ file://{wheel}"],
        env={**os.environ, **folders}, check=True, capture_output=True,
    )  # fmt: skip
    program = (tmp_path / "bin/overnight").resolve()
    assert re.match(r"overnight \d", subprocess.check_output([program, "--version"], text=True))
    capture = tmp_path / "perf.data"
    write_capture(capture)
    there = Installation(program, tmp_path / "pipx")
    assert there.decoders() == [True, True]
    describe(there, capture)
