"""Programs that run inside a machine of a rehearsal: each a file by itself, standard library only."""
