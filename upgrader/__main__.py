"""`python -m upgrader` and the program `upgrader`."""

import gc

# Lists of thousands of objects are decoded at once and kept: looking for cycles among them as often as Python does by
# itself doubles the time of decoding (2,000 pods: 34 ms, or 14).
gc.set_threshold(50_000, 20, 50)

from upgrader.cli.main import main  # noqa: E402 - imports, too, make what lives to the end

if __name__ == "__main__":
    main()
