"""Sentences that a person understands, made of an answer's figures."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from osls.app.answer import Answer
from osls.inference.diagnostics import Status

Tone = Literal["new", "nothing", "caution", "stop"]

# An interval wider than this says little more than the order of magnitude.
_WIDE = 0.2
_SIGNIFICANT = 0.05
_LONGEST_NAME = 80
# Control, format (they can turn the direction of the text around) and lone surrogates.
_UNSEEN = ("Cc", "Cf", "Cs")
# Format marks that emoji and some scripts are made of.
_JOINERS = "\u200c\u200d"

STATUS_WORDS: dict[Status, str] = {
    "no violation seen": "The checks saw no violation of what the method assumes. Novel rows that look "
    "exactly like a known class are counted as known.",
    "upper bound only": "The share of a known class is an upper bound. Nothing speaks against the others.",
    "not identified": "The data also fits other mixes: these shares may be too high or too low.",
    "do not trust": "A check that the method needs has failed. Do not act on these figures.",
}

_NOT_IDENTIFIED = (
    "This is not identified: the data also fits other mixes, and the shares may be too high or too low."
)


@dataclass(frozen=True)
class Headline:
    """The answer in a sentence, what to add to it, and how it should look."""

    sentence: str
    addition: str
    tone: Tone

    def __str__(self) -> str:
        return f"{self.sentence} {self.addition}".strip()

    def in_two(self) -> tuple[str, str]:
        """A sentence to print large, and the rest; a reason not to trust an answer is long, so it is rest."""
        if self.tone != "stop":
            return self.sentence, self.addition
        warning, _, reason = self.sentence.partition(": ")
        return f"{warning}.", f"{_capital(reason)} {self.addition}"


def percent(share: float) -> str:
    """A share in as many digits as a person can use.

    Examples
    --------
    >>> from osls.app.report.wording import percent
    >>> [percent(s) for s in (0, 0.0004, 0.042, 0.23, 0.9996)]
    ['0%', 'under 0.1%', '4.2%', '23%', 'over 99.9%']
    """
    return f"{_hundredths(share)}%"


def percent_range(low: float, high: float) -> str:
    """Two shares with one sign, "19 to 27%"."""
    if _hundredths(low) == _hundredths(high):
        return percent(high)
    low_words = "0" if 100 * low < 0.1 else _hundredths(low)
    return f"{low_words} to {percent(high)}"


def _hundredths(share: float) -> str:
    value = 100 * float(share)
    if value <= 0:
        return "0"
    if value < 0.1:
        return "under 0.1"
    if 99.9 < value < 100:
        return "over 99.9"
    if value < 9.95 or 99 < value < 100:
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.0f}"


def number(value: float) -> str:
    """Three significant digits, thousands grouped, no exponent where it can be helped.

    Examples
    --------
    >>> from osls.app.report.wording import number
    >>> [number(v) for v in (181.4, 0.01234, 1234567.0, 3.0)]
    ['181', '0.0123', '1,234,567', '3']
    """
    size = abs(value)
    if not math.isfinite(value):
        return "no number" if math.isnan(value) else "infinite"
    if size >= 1e9 or 0 < size < 1e-4:
        return f"{value:.3g}"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shown(value: Any, longest: int = _LONGEST_NAME) -> str:
    """A value as text that is safe to write and to read: no control or direction marks, not too long."""
    text = str(value)[: 4 * longest]
    kept = "".join(c if c in _JOINERS or unicodedata.category(c) not in _UNSEEN else " " for c in text)
    kept = " ".join(kept.split())
    return kept if len(kept) <= longest else kept[: longest - 1].rstrip() + "\u2026"


def status_of(answer: Answer) -> Status:
    """The verdict's status; without diagnostics nothing speaks against the estimate."""
    return answer.diagnostics.verdict.status if answer.diagnostics is not None else "no violation seen"


def verdict_beside_headline(answer: Answer) -> str:
    """The verdict, with the reasons that the headline does not give; nothing without diagnostics."""
    if answer.diagnostics is None:
        return ""
    verdict = answer.diagnostics.verdict
    return f"Verdict: {verdict.status if verdict.status == 'do not trust' else verdict}"


def headline(answer: Answer) -> Headline:
    """The three answers in one sentence, hedged as far as the checks and the interval demand."""
    status = status_of(answer)
    low, high = (float(v) for v in answer.interval[-1])
    novel, moved = _novel_clause(answer), _moved_clause(answer)
    if status == "do not trust":
        reasons = answer.diagnostics.verdict.reasons if answer.diagnostics is not None else ()
        first, *others = map(_sentence, reasons or ("a check that the method needs has failed",))
        more = " ".join([*others, f"Taken at face value: {novel}; {moved}."])
        return Headline(f"Do not trust these figures: {first[0].lower()}{first[1:]}", more, "stop")
    if status == "not identified":
        return Headline(_capital(f"{novel}; {moved}."), _NOT_IDENTIFIED, "caution")
    if answer.target_share[-1] <= 0:
        return Headline(_capital(f"{novel}; {moved}."), _missed(answer, high), "nothing")
    if high - low > _WIDE:
        wide = f"The data leave anything from {percent_range(low, high)} open; more rows would narrow it."
        return Headline(_capital(f"{novel}; {moved}."), wide, "caution")
    return Headline(_capital(f"{novel}; {moved}."), _doubt(answer), "new")


def _novel_clause(answer: Answer) -> str:
    share, (low, high) = float(answer.target_share[-1]), answer.interval[-1]
    if share <= 0 and answer.parent is not None:
        # Groups of an earlier run were named: saying that nothing new was found would deny them.
        return "all that was found to be new has a name now"
    if share <= 0:
        return "nothing new was found" + _p_words(answer.novelty_pvalue)
    about = "roughly " if high - low > _WIDE else ""
    return (
        f"{about}{percent(share)} ({percent_range(low, high)}) of the new data is something "
        "your labels do not cover"
    )


def _missed(answer: Answer, high: float) -> str:
    """What the test would have found, and what it may have missed: "not found" is not "not there"."""
    detectable = getattr(answer.model, "detectable_share_", None)
    if detectable is None and high <= 0:
        # All groups of a run were named: nothing was tested, and nothing has an upper end.
        return "Whether there is more, the next fit will tell."
    found = "" if detectable is None else f"{percent(detectable)} of a new kind would have been found. "
    return f"{found}A new kind that makes up to {percent(high)} of the data could have been missed."


def _p_words(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return " (p < 0.01)" if p_value < 0.01 else f" (p = {p_value:.2f})"


def _doubt(answer: Answer) -> str:
    p_value = answer.novelty_pvalue
    if p_value is None or p_value <= _SIGNIFICANT:
        return ""
    return f"That nothing is new at all cannot be ruled out{_p_words(p_value)}."


def _moved_clause(answer: Answer) -> str:
    """The known class whose share moved most, if any moved by more than the novel part takes from all."""
    diluted = answer.source_share[:-1] * (1 - answer.target_share[-1])
    low, high = answer.interval[:-1].T
    outside = (diluted < low) | (diluted > high)
    if not outside.any():
        return "the known classes kept their proportions, as far as this data can tell"
    change = abs(answer.target_share[:-1] - answer.source_share[:-1])
    j = int(change.argmax())
    before, now = percent(answer.source_share[j]), percent(answer.target_share[j])
    name = shown(answer.classes[j])
    if before == now:
        return f"'{name}' kept its {now} while others made room"
    return f"'{name}' went from {before} to {now}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else text + "."


def history_words(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each step of a fit did, in a sentence each."""
    sentences = []
    for record in history:
        step = record.get("step")
        if step == "source classifier":
            right = percent(record["accuracy"])
            sentences.append(
                f"The classifier of the known classes is right on {right} of held-out labelled rows."
            )
        elif step == "novel share":
            sentences.append(
                f"The share that the known classes leave unexplained is {percent(record['estimate'])}"
                f"{_p_words(record['p_value'])}."
            )
        elif step == "cvir" and "round" in record:
            sentences.append(
                f"Round {record['round']} of separating known from novel: {record['kept']:,} rows set aside "
                f"as novel, {percent(record['changed'])} of all rows changed sides."
            )
        elif step != "label shift":
            figures = ", ".join(f"{k} {_figure(v)}" for k, v in record.items() if k != "step")
            sentences.append(f"{_capital(shown(step))}: {figures}.")
    return sentences


def _figure(value: Any) -> str:
    return number(value) if isinstance(value, float) else shown(value)
