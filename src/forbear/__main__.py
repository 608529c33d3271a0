"""``python -m forbear``: the command, where its script is not on the path. Floor: acts."""

import sys

from .tools.cli import main

sys.exit(main())
