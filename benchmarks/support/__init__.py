"""What benchmarks are made of: a synthetic night, a real load, questions in fresh processes."""

from __future__ import annotations
