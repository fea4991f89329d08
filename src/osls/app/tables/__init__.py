"""Columns of any type, and pictures, to features."""
