"""Every SQL statement of the pools, one module for each subject; nothing else in `pools` imports SQLAlchemy."""
