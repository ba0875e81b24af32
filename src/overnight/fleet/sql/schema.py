"""The tables of the fleet; database/migrations defines them."""

from __future__ import annotations

from overnight.database import column_types, tables
from overnight.model.confirmation import ConfirmationState
from overnight.model.control_plane import Role
from overnight.model.uplink import TaskKind, TaskState

DOCUMENT, PACKED = column_types.Document(), column_types.PackedDocument()

tokens = tables.table("fleet_tokens", role=column_types.Word(Role))
hosts = tables.table("fleet_hosts")
credentials = tables.table("fleet_credentials")
labels = tables.table("fleet_labels")
snapshots = tables.table("fleet_snapshots", document=PACKED)
unit_audits = tables.table("fleet_unit_audits", document=PACKED)
spells = tables.table("fleet_spells")
events = tables.table("fleet_events", document=DOCUMENT)
rollups = tables.table("fleet_rollups", document=PACKED)
rollup_days = tables.table("fleet_rollup_days")
windows = tables.table("fleet_windows")
tasks = tables.table(
    "fleet_tasks",
    kind=column_types.Word(TaskKind),
    state=column_types.Word(TaskState),
    arguments=DOCUMENT,
    result=DOCUMENT,
)
audit = tables.table("fleet_audit")
confirmations = tables.table(
    "fleet_confirmations",
    role=column_types.Word(Role),
    state=column_types.Word(ConfirmationState),
    arguments=DOCUMENT,
    effect=DOCUMENT,
)
settings = tables.table("fleet_settings")
