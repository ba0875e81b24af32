"""Builds the C extensions and the viewer page where that can be done; installs without where not.

``optional=True`` turns a failed compilation into a warning: pure Python gives the same answers,
slower, and `overnight doctor` says which of the two is in use. OVERNIGHT_PURE_PYTHON=1 leaves them out: one
wheel for every processor. Without Node.js there is no page, and `-O html` says how to get it.
"""

import os
import pathlib
import subprocess
import warnings

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ARGUMENTS = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Wconversion"]
HEADERS = [
    f"src/native/{name}.h"
    for name in ("bytes", "chains", "order", "process_table", "sideband", "stacks", "world")
]
HERE = pathlib.Path(__file__).parent


class BuildWithViewer(build_py):
    """Puts the viewer page into the package before it is copied."""

    def run(self) -> None:
        """Build the page if it is not there, then go on."""
        page = HERE / "src/overnight/reports/viewer.html"
        if not page.exists() and (HERE / "scripts/viewer").exists():
            try:
                subprocess.run([HERE / "scripts/viewer"], check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                warnings.warn(f"the viewer page is not built: {error}", stacklevel=1)
        super().run()


def extension(name: str, source: str) -> Extension:
    """One C file of src/native as a module."""
    return Extension(
        name,
        sources=[f"src/native/{source}"],
        depends=HEADERS,
        extra_compile_args=ARGUMENTS,
        optional=True,
    )


EXTENSIONS = {
    "overnight.sources.perf._perfdata": "perfdata.c",
    "overnight.store._tree": "tree.c",
}
pure = os.environ.get("OVERNIGHT_PURE_PYTHON", "") not in ("", "0")
setup(
    cmdclass={"build_py": BuildWithViewer},
    ext_modules=[] if pure else [extension(*row) for row in EXTENSIONS.items()],
)
