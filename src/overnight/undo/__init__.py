"""The undo journal: every change to this host, written down before it is made."""
