"""`python -m proxyless` is the command `proxyless`."""

import sys

from proxyless.cli import main

sys.exit(main())
