"""What runs on every host all night: sources into the spool. Standard library only."""
