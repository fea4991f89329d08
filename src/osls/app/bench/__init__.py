"""Benchmarks: runs in, rows out, tables from rows."""
