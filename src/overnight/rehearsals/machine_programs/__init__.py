"""Programs that run inside a rehearsal's machine: single files, standard library only."""
