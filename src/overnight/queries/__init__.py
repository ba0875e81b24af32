"""Time travel: any window of any host, in milliseconds. Reads the store and nothing else."""
