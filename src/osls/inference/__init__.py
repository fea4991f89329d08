"""How sure one can be of the answers."""
