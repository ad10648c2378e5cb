# SPDX-License-Identifier: Apache-2.0
"""`python -m hexforge` is the command `hexforge`."""

from hexforge.cli import main

if __name__ == "__main__":
    main()
