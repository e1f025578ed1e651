"""`python -m waylog` is the command `waylog`."""

from __future__ import annotations

import sys

from waylog.cli import main

if __name__ == "__main__":
    sys.exit(main())
