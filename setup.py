"""Builds the C extension where a C compiler is to be had; installs without it where not.

``optional=True`` turns a failed compilation into a warning: the pure-Python decoder gives the
same answers, slower, and `overnight doctor` says which of the two is in use.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "overnight.sources.perf._perfdata",
            sources=["src/overnight/sources/perf/_perfdata.c"],
            extra_compile_args=["-O2", "-std=c11", "-Wall", "-Wextra", "-Wconversion"],
            optional=True,
        )
    ]
)
