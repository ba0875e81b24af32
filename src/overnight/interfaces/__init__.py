"""Doors: the command line for people, others to come. Translation only; no decisions here."""
