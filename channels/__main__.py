"""`python -m channels` is the `channel-bridge` command."""

from channels.cli import main

main()
