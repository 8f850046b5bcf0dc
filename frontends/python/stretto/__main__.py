"""`python -m stretto`: see stretto.cli."""

from .cli import main

main()
