"""Investigations: a plan carried out from the reservation of hosts to the report, and resumed after any crash."""
