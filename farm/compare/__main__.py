"""`python -m farm.compare`."""

import sys

from farm.cli.compare import main

if __name__ == "__main__":
    sys.exit(main())
