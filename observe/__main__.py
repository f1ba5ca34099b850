"""python3 observe COMMAND: runs the reading tools of this folder, whatever Python's path is."""
from hakmem_observe.__main__ import main

main()
