# SPDX-License-Identifier: MIT
"""python -m hakmem.lab COMMAND [ARGUMENTS]"""

import sys

try:
    from .cli import main
except KeyboardInterrupt:  # typer takes a moment to load
    sys.exit(130)

sys.exit(main())
