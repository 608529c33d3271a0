"""What forbear costs, what it makes of outages, and how other libraries compare.

Each file is a program of its own, and ``python -m benchmarks.simulation`` is the simulator; both
are started at the root of a checkout.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
