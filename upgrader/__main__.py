"""`python -m upgrader` and the program `upgrader`."""

from upgrader.cli.main import main

if __name__ == "__main__":
    main()
