"""What the commands of the command line do; :mod:`osls.cli` only reads their arguments."""
