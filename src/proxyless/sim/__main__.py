"""`python -m proxyless.sim`: see `run`."""

import sys

from proxyless.sim.run import main

sys.exit(main())
