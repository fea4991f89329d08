"""Telling positives from negatives when only positives are labelled."""
