"""`python -m flowpoint` is the `flowpoint` command."""

from flowpoint.cli.main import main

if __name__ == "__main__":
    main()
