"""Write example data for `osls adapt`: a medical table, short texts, pictures; scores of a detector.

    python examples/make_data.py table data/table
    python examples/make_data.py text data/text
    python examples/make_data.py images data/images
    python examples/make_data.py scores data/scores

Everything comes from scikit-learn or is generated; nothing is downloaded. In each, one class has no labels.
The last is for `osls share`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

# Words by topic; "outage" is what nobody labelled yet.
_TOPICS = {
    "billing": "invoice charge card refund payment amount twice month receipt bank tax total",
    "delivery": "parcel courier late address box tracking shipped arrived door damaged label driver",
    "login": "password account locked email reset code sign username verify browser session key",
    "outage": "server down timeout error page unreachable status crash slow maintenance region loading",
}
_FILLER = "please help my the a is was again today still since with for and not can you this order hello"


def table(folder: Path, rng: np.random.Generator) -> None:
    """Breast tumours: benign and small malignant ones are labelled, large malignant ones are not."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    frame = data.data.copy()
    malignant = data.target == 0
    large = malignant & (frame["mean radius"] > frame.loc[malignant, "mean radius"].median())
    diagnosis = np.where(large, "malignant, large", np.where(malignant, "malignant, small", "benign"))
    frame.insert(0, "patient", [f"P{i:04d}" for i in range(len(frame))])
    labelled = (diagnosis != "malignant, large") & (
        rng.random(len(frame)) < np.where(diagnosis == "benign", 0.6, 0.4)
    )
    frame[labelled].assign(diagnosis=diagnosis[labelled]).to_csv(folder / "labelled.csv", index=False)
    frame[~labelled].to_csv(folder / "new.csv", index=False)


def text(folder: Path, rng: np.random.Generator) -> None:
    """Messages to a help desk: billing, delivery and login are labelled, an outage is not."""

    def message(topic: str) -> str:
        own = rng.choice(_TOPICS[topic].split(), size=rng.integers(3, 7))
        words = np.concatenate([own, rng.choice(_FILLER.split(), size=rng.integers(5, 12))])
        return " ".join(rng.permutation(words).tolist())

    def messages(counts: dict[str, int]) -> pd.DataFrame:
        rows = [(message(topic), topic) for topic, count in counts.items() for _ in range(count)]
        return pd.DataFrame(rows, columns=["message", "topic"]).sample(frac=1, random_state=0)

    source = messages({"billing": 250, "delivery": 150, "login": 100})
    target = messages({"billing": 80, "delivery": 150, "login": 120, "outage": 150})
    source.to_json(folder / "labelled.jsonl", orient="records", lines=True)
    target[["message"]].to_json(folder / "new.jsonl", orient="records", lines=True)


def images(folder: Path, rng: np.random.Generator) -> None:
    """Handwritten digits 0 to 4 as PNG files; nobody labelled the fours."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits, labels = load_digits(n_class=5, return_X_y=True)
    for i, (row, label) in enumerate(zip(digits, labels, strict=True)):
        place = folder / "target"
        if label < 4 and rng.random() < 0.5:
            place = folder / "source" / f"digit-{label}"
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((row.reshape(8, 8) * 15).astype(np.uint8))
        picture.resize((32, 32), Image.Resampling.BILINEAR).save(place / f"{i:04d}.png")


def scores(folder: Path, rng: np.random.Generator) -> None:
    """Scores of some detector: of 800 rows that are nothing new, and of 1,000 of which a fifth is."""
    known, new = rng.normal(size=800), np.append(rng.normal(size=800), rng.normal(5, 1, size=200))
    for name, values in (("known", known), ("new", rng.permutation(new))):
        pd.DataFrame({"score": values.round(4)}).to_csv(folder / f"{name}.csv", index=False)


def main() -> None:
    """Write the data that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    makers = {"table": table, "text": text, "images": images, "scores": scores}
    parser.add_argument("kind", choices=makers)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    makers[args.kind](args.folder, np.random.default_rng(0))
    print(f"wrote {args.folder}")


if __name__ == "__main__":
    main()
