"""How sure one can be of the answers."""

from osls.inference.diagnostics import diagnose
from osls.inference.novelty import NoveltyTest, novelty_test
from osls.inference.verdict import Check, Diagnostics, Verdict

__all__ = ["Check", "Diagnostics", "NoveltyTest", "Verdict", "diagnose", "novelty_test"]
