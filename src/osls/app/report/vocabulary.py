"""Words that a person recognises a group of texts by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from osls._core.arrays import Floats

__all__ = ["telling_words", "without_header"]

_WORDS = 12
_LONGEST = 8_000
# Header lines of e-mails other than the subject, addresses, links and quoting marks say who, not what.
_HEADER = re.compile(r"^(?!subject:)[A-Za-z][\w-]{1,30}:[ \t].*$", re.IGNORECASE | re.MULTILINE)
_WROTE = re.compile(r"^.{0,200}\b(?:writes|wrote|said)\b:?[ \t]*$", re.IGNORECASE | re.MULTILINE)
_ADDRESS_MARKS = ("@", "://", "www.")
# What letters and posts are full of, whatever they are about.
_MAIL_WORDS = """
subject fwd cc bcc sent article newsgroup newsgroups nntp posting organization lines host reply
writes wrote com edu org net gov www http https html dont doesnt didnt cant wont isnt ive im
thats theres youre whats does did don doesn didn isn wasn couldn wouldn shouldn ll ve re
just like use used using know think thing things say says said people way time make want good need
really right going got new let lot sure try look come work old long little better best yes point
question problem thanks thank hello dear please hi regards sincerely anybody anyone
"""
_STOP = sorted(ENGLISH_STOP_WORDS | set(_MAIL_WORDS.split()))


def telling_words(groups: Sequence[Iterable[str]], background: Iterable[str]) -> list[tuple[str, ...]]:
    """Words that are common in a group and rare elsewhere, the most telling first.

    Class-based TF-IDF on raw text: a word's term frequency is the share of the group's texts that have it
    (one long text should not speak for all), its inverse class frequency the logarithm of how rare it is in
    the average class, the known texts being one more class. Stop words, numbers, e-mail headers, addresses
    and links are left out; of singular and plural only the more telling is kept.

    Examples
    --------
    >>> from osls.app.report.vocabulary import telling_words
    >>> space = ["the orbit of the moon", "a moon in orbit", "the orbit was high"]
    >>> telling_words([space], ["the car was fast", "a fast car", "the engine of a car"])
    [('orbit', 'moon', 'high')]
    """
    texts = [[_cleaned(t) for t in group] for group in (*groups, background)]
    sizes = np.array([max(1, len(part)) for part in texts])
    words = r"[^\W\d_]{3,}"
    vectorizer = CountVectorizer(binary=True, token_pattern=words, stop_words=_STOP)
    try:
        counts = vectorizer.fit_transform([t for part in texts for t in part])
    except ValueError:  # no text has a single usable word
        return [() for _ in groups]
    ends = np.cumsum([0, *(len(part) for part in texts)])
    by_class = np.vstack(
        [counts[a:b].sum(axis=0).A1 if b > a else np.zeros(counts.shape[1]) for a, b in pairwise(ends)]
    )
    vocabulary = vectorizer.get_feature_names_out()
    return [_best(by_class, sizes, j, vocabulary) for j in range(len(groups))]


def without_header(text: str) -> str:
    r"""A letter without its header, but for the subject; any other text as it is.

    Examples
    --------
    >>> from osls.app.report.vocabulary import without_header
    >>> without_header("From: a@b.org\nSubject: The moon\nLines: 2\n\nIs it far?")
    'The moon. Is it far?'
    """
    head, blank, body = text.lstrip().partition("\n\n")
    lines = head.splitlines()
    if not blank or sum(bool(_HEADER.match(line)) for line in lines) < 2:
        return text
    subject = next((line[8:].strip() for line in lines if line.lower().startswith("subject:")), "")
    return f"{subject.rstrip('.')}. {body}" if subject else body


def _cleaned(text: str) -> str:
    body = _WROTE.sub(" ", _HEADER.sub(" ", str(text)[:_LONGEST]))
    return " ".join(word for word in body.split() if not any(mark in word for mark in _ADDRESS_MARKS))


def _best(by_class: Floats, sizes: Floats, j: int, vocabulary: Sequence[str]) -> tuple[str, ...]:
    share = by_class / sizes[:, None]
    others = np.delete(share, j, axis=0).mean(axis=0)
    # Half a text more elsewhere, so that a word nobody else has does not win by its absence alone.
    rarity = np.log(share[j].clip(1e-12) / (others + 0.5 / sizes.sum()))
    few = max(1, min(3, int(sizes[j]) // 10))
    score = np.where(by_class[j] >= few, share[j] * rarity, -np.inf)
    chosen: list[str] = []
    for i in np.argsort(-score, kind="stable"):
        if score[i] <= 0 or len(chosen) == _WORDS:
            break
        if not any(_same_stem(vocabulary[i], word) for word in chosen):
            chosen.append(str(vocabulary[i]))
    return tuple(chosen)


def _same_stem(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and long[len(short) :] in ("", "s", "es", "ed", "ing")
