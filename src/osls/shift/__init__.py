"""Label shift among the known classes: how common is each of them now."""
