"""`python -m escherlib …`: see `python -m escherlib --help`."""

from escherlib.cli import main

if __name__ == "__main__":
    main()
