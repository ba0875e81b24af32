"""`python -m overnight`."""

import sys

from overnight.interfaces import cli

sys.exit(cli.main())
