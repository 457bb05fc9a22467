"""`python -m tools.simulation`: see `run`."""

import sys

from tools.simulation.run import main

sys.exit(main())
