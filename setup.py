"""Builds the C extensions where a C compiler is to be had; installs without them where not.

``optional=True`` turns a failed compilation into a warning: pure Python gives the same answers,
slower, and `overnight doctor` says which of the two is in use.
"""

from setuptools import Extension, setup

ARGUMENTS = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Wconversion"]
HEADERS = [f"src/native/{name}.h" for name in ("bytes", "stacks", "world")]


def extension(name: str, source: str) -> Extension:
    return Extension(
        name,
        sources=[f"src/native/{source}"],
        depends=HEADERS,
        extra_compile_args=ARGUMENTS,
        optional=True,
    )


setup(
    ext_modules=[
        extension("overnight.sources.perf._perfdata", "perfdata.c"),
        extension("overnight.store._tree", "tree.c"),
    ]
)
