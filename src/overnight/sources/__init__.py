"""One module a kernel interface. Standard library only: this runs on every host.

`read_x(root)` does the I/O and `parse_x(text)` is pure. `root` defaults to `/`, so a fake tree
tests it, and a container can read its host's (`root=/host`). A source never imports another.
"""

from __future__ import annotations

import pathlib

__all__ = ["ROOT"]

ROOT = pathlib.Path("/")
