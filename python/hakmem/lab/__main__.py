# SPDX-License-Identifier: MIT
"""python -m hakmem.lab COMMAND [ARGUMENTS]"""

import sys

try:
    from .cli import main
except KeyboardInterrupt:  # while it starts
    sys.exit(130)

sys.exit(main())
