"""`python -m proxyless.cli` is `proxyless`."""

import sys

from proxyless.cli import main

sys.exit(main())
