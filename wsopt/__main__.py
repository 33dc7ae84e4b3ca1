"""`python -m wsopt` is the command `wsopt`."""

from wsopt.cli import main

main()
