"""``python -m rostam COMMAND ...``: the command line without its script."""

import sys

from rostam_py.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
