"""python -m hakmem_lab COMMAND [ARGUMENTS]"""

import sys

from .cli import main

sys.exit(main())
