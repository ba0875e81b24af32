"""From recorded files to stored segments: reading formats and finding names for addresses."""

import os

# Read when numpy is first imported: its linear algebra would start a thread for each core, a third of
# the time that the import takes on two cores, and nothing here uses it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
