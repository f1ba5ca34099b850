"""python3 -I lab COMMAND [ARGUMENTS]: runs the laboratory of this folder, whatever Python's path is."""

import runpy

runpy.run_module("hakmem_lab", run_name="__main__", alter_sys=True)
