"""Answers as pages for people."""
