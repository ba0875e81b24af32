"""Turns recorded files into captures: reads formats and resolves addresses to names."""

import os

# Read when numpy is first imported: its linear algebra, which is not used here, would start a thread for
# each core, a third of the import time on two cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
