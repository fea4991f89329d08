"""From files to answers: what stands behind the command line and ``osls.adapt``."""
