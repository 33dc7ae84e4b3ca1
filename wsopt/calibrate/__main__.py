"""`python -m wsopt.calibrate` needs torch and triton only."""

import sys

from wsopt.calibrate.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
