"""The tables of reservations; database/migrations defines them."""

from __future__ import annotations

from overnight.database import column_types, tables
from overnight.model.reservation import HostState, ReservationState

DOCUMENT = column_types.Document()

reservations = tables.table(
    "reservations", state=column_types.Word(ReservationState), order=DOCUMENT
)
hosts = tables.table(
    "reservation_hosts", state=column_types.Word(HostState), facts=DOCUMENT, checks=DOCUMENT
)
events = tables.table("reservation_events")
