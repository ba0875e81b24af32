"""Support of benchmarks: a synthetic night, a real load, queries in fresh processes."""

from __future__ import annotations
