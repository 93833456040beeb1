"""`python -m turb_kub` is the same as the command `turb-kub`."""

import sys

from turb_kub.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
