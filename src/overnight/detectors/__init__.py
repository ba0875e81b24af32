"""From recorded evidence to findings: one module per detector.

A module lists its detectors in `DETECTORS`; `app` discovers them. A detector examines one `Case` and
answers found, clear or no-data: missing evidence is an answer, never an exception. Other exceptions pass
to the caller, which turns them into the answer failed. Linking findings into a chain is left to `diagnosis`.
"""

from __future__ import annotations

from overnight.detectors import _base

Detector = _base.Detector
