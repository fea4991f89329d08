"""Messages to a help desk.

Rows of text instead of numbers. Three topics are labelled; a fourth, an outage, has just begun.
`osls.adapt` turns the texts into features, and the words of what is new say what it is.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer

import osls

# %%
# Made-up messages: a few words of the topic among words that anybody writes.
TOPICS = {
    "billing": "invoice charge card refund payment amount twice month receipt bank",
    "delivery": "parcel courier late address box tracking shipped arrived door damaged",
    "login": "password account locked email reset code sign username verify browser",
    "outage": "server down timeout error page unreachable status crash slow loading",
}
FILLER = "please help my the a is was again today still since with for and not can you this hello"


def messages(counts, seed):
    """A frame with a message and its topic, in random order."""
    rng = np.random.default_rng(seed)
    rows = []
    for topic, count in counts.items():
        for _ in range(count):
            own = rng.choice(TOPICS[topic].split(), rng.integers(3, 7))
            words = np.concatenate([own, rng.choice(FILLER.split(), rng.integers(5, 12))])
            rows.append((" ".join(rng.permutation(words)), topic))
    return pd.DataFrame(rows, columns=["message", "topic"]).sample(frac=1, random_state=seed)


labelled = messages({"billing": 200, "delivery": 120, "login": 80}, seed=0)
new = messages({"billing": 60, "delivery": 120, "login": 100, "outage": 120}, seed=1)

# %%
# The new messages are given without their topic.
answer = osls.adapt(labelled, new[["message"]], label="topic", text="tfidf", fast=True, random_state=0)
print(answer.summary())
for name, share, (low, high) in zip(answer.classes, answer.target_share, answer.interval, strict=True):
    truth = np.mean(new.topic == ("outage" if name == "novel" else name))
    print(f"{name:9} {share:.2f} ({low:.2f} to {high:.2f}), in truth {truth:.2f}")
right = np.where(new.topic == "outage", "novel", new.topic) == answer.predictions.predicted
print(f"{right.mean():.1%} of the messages got the right topic")

# %%
# Words that are more common in what is called novel than in the rest.
counter = CountVectorizer(binary=True)
present = counter.fit_transform(new.message).toarray()
novel = (answer.predictions.predicted == "novel").to_numpy()
excess = present[novel].mean(axis=0) - present[~novel].mean(axis=0)
top = np.argsort(excess)[-12:]
figure, axes = plt.subplots()
axes.barh(counter.get_feature_names_out()[top], excess[top], color="#d2691e")
axes.set_xlabel("share of the novel messages with this word, minus the share of the others")
plt.show()
