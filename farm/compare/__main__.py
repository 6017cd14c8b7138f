"""`python -m farm.compare`."""

import sys

from farm.compare.cli import main

if __name__ == "__main__":
    sys.exit(main())
