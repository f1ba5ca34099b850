# SPDX-License-Identifier: MIT
"""Options that several commands have, so that they mean the same in each."""

from pathlib import Path
from typing import Annotated

import typer

Seed = Annotated[int | None, typer.Option("--seed", help="Of the order; drawn when not given.")]
Results = Annotated[Path | None, typer.Option("--results", help="Where sessions are saved.")]
New = Annotated[bool, typer.Option("--new", help="A new session though one is unfinished.")]
Force = Annotated[
    bool, typer.Option("--force", help="Though the machine is unfit, or measured by others.")
]
ForceBesideOthers = Annotated[
    bool, typer.Option("--force", help="Even while another session is being measured.")
]
