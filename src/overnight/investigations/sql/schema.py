"""The tables of investigations; database/migrations defines them."""

from __future__ import annotations

from overnight.database import column_types, tables
from overnight.model.investigation import Outcome, Phase

investigations = tables.table(
    "investigations",
    phase=column_types.Word(Phase),
    outcome=column_types.Word(Outcome),
    plan=column_types.Document(),
    progress=column_types.Document(),
)
notes = tables.table("investigation_notes")
