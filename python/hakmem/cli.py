"""python3 observe COMMAND: runs the reading tools of this folder, whatever Python's path is."""
import sys

try:
    from hakmem_observe.__main__ import main

    main()
except KeyboardInterrupt:  # while it starts
    sys.exit(130)
