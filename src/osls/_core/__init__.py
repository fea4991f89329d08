"""Small helpers that every subpackage uses; this one imports no other subpackage."""
