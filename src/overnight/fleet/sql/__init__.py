"""Every SQL statement of the fleet, one module for each subject; nothing else in `fleet` imports SQLAlchemy."""
