"""Hard times: mutated models, kills at any moment, two processes at once, and a long watch with bad files.

    python benchmarks/endurance.py mutations --count 5000 --out mutations.jsonl
    python benchmarks/endurance.py kills     --count 40   --out kills.jsonl
    python benchmarks/endurance.py pairs     --count 20   --out pairs.jsonl
    python benchmarks/endurance.py soak      --count 2000 --out soak.jsonl

Each writes a line a trial to ``--out`` and goes on from there if it is started again; at the end it prints a
summary. The commands run in forked processes, which saves the seconds of importing; killing is real.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import osls
import osls.app.adapt
import osls.app.bench.actions
import osls.app.watch
from osls.app.cli import app
from osls.persist import ModelError, load, save

MEMORY = 512 << 20
SECONDS = 30
ROW_NAMES = ["age", "dose", "weight"]


# -- Processes --------------------------------------------------------------------------------------


def forked(work: Callable[[], int], errors: Path) -> int:
    """Start a process that runs a function, with its output in a file; return its number."""
    process = os.fork()
    if process:
        return process
    with errors.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            status = work()
        except BaseException as error:
            print(f"CRASH {type(error).__name__}: {error}")
            status = 99
        sys.stdout.flush()
        os._exit(status)


def command(*words: object) -> Callable[[], int]:
    """A call of the program."""

    def work() -> int:
        try:
            app([str(word) for word in words], standalone_mode=True)
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return work


def ended(process: int) -> tuple[int, int, float]:
    """Wait; return the exit code, the signal and the largest memory in MB."""
    _, status, usage = os.wait4(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return max(code, 0), max(-code, 0), usage.ru_maxrss / 1024


def once(errors: Path, *words: object) -> int:
    code, number, _ = ended(forked(command(*words), errors))
    return -number if number else code


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*") if ".osls-" in path.name)


# -- A small problem --------------------------------------------------------------------------------


def rows(n: int, seed: int, *, labelled: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.integers(2 if labelled else 3, size=n)
    X = rng.normal(size=(n, 3)) + 4 * np.eye(3)[kind]
    frame = pd.DataFrame(X.round(3), columns=ROW_NAMES)
    return frame.assign(kind=np.array(["a", "b"])[kind]) if labelled else frame


def prepare(folder: Path) -> Path:
    """Tables, a model that was adapted to them, and a study."""
    rows(120, 0, labelled=True).to_csv(folder / "source.csv", index=False)
    rows(120, 1).to_csv(folder / "target.csv", index=False)
    if once(folder / "log", "adapt", *adapt_words(folder, "first")):
        raise SystemExit((folder / "log").read_text())
    study = {"name": "s", "data": ["digits"], "methods": ["source-only"], "draws": 2}
    (folder / "study.yml").write_text(json.dumps(study))
    return folder


def adapt_words(folder: Path, out: str) -> list[object]:
    files = ["--source", folder / "source.csv", "--target", folder / "target.csv"]
    return [*files, "--label", "kind", "--fast", "--jobs", 1, "--overwrite", "--out", folder / out]


def absorb_words(folder: Path, out: str) -> list[object]:
    """Labels for the rows that the model asks for; the first column of the predictions numbers the rows."""
    labels = folder / "labels.csv"
    if not labels.exists():
        predicted = pd.read_csv(folder / "first" / "predictions.csv")
        new = predicted[predicted["predicted"] == "novel"].head(5)
        pd.DataFrame({"row": new["row"], "label": "c"}).to_csv(labels, index=False)
    return ["absorb", folder / "first", labels, "--overwrite", "--out", folder / out]


# -- Mutated models ---------------------------------------------------------------------------------


def reseal(folder: Path) -> None:
    """Make all digests right again, as somebody who means harm would."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name, entry in manifest["files"].items():
        data = (folder / name).read_bytes()
        entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    text = json.dumps({**manifest, "sha256": "0" * 64})
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(text.replace("0" * 64, digest, 1))


STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    10**18,
    1e308,
    "",
    "\x1b[2J",
    "numpy",
    [],
    {},
    [[]],
    {"$": "same"},
]


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 4, 16])):
        if found:
            found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found) if rng.random() < 0.8 else bytes(found[: rng.randrange(len(found) + 1)])


def changed_json(data: bytes, rng: random.Random) -> bytes:
    """Replace, remove, repeat or swap values of a JSON document."""
    tree = json.loads(data)
    places = list(places_in(tree))
    for _ in range(rng.choice([1, 1, 3])):
        holder, key = rng.choice(places)
        other, there = rng.choice(places)
        with contextlib.suppress(KeyError, IndexError, TypeError):
            value = rng.choice([*STRANGE, other[there], 3 * [holder[key]]])
            holder[key] = json.loads(json.dumps(value))
    return json.dumps(tree).encode()


def places_in(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, dict | list):
            yield from places_in(value)


def changed_array(data: bytes, rng: random.Random) -> bytes:
    """Put strange numbers into an array, or change its shape or type."""
    array = np.load(io.BytesIO(data)).copy()
    flat = array.reshape(-1)
    if array.dtype.names and len(flat):
        name = rng.choice(array.dtype.names)
        flat[name][rng.randrange(len(flat))] = rng.choice([0, 1, 255])
    elif len(flat) and array.dtype.kind in "iuf" and rng.random() < 0.6:
        with contextlib.suppress(OverflowError):
            flat[rng.randrange(len(flat))] = rng.choice([-1, 0, 1, 2**31 - 1, 10**6])
    else:
        array = rng.choice(
            [flat[:-1], np.concatenate([flat, flat]), flat.astype("f4" if len(flat) else "i8")]
        )
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def mutate(folder: Path, rng: random.Random) -> str:
    """Change one file of a model, and put the digests right."""
    name = rng.choice([str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()])
    path = folder / name
    if name == "manifest.json":
        path.write_bytes(changed_json(path.read_bytes(), rng))
        how = "values"
    elif name.endswith(".skops") and rng.random() < 0.8:
        how = rewrite(path, rng)
    else:
        path.write_bytes(changed_bytes(path.read_bytes(), rng))
        how = "bytes"
    with contextlib.suppress(Exception):
        reseal(folder)
    return f"{name.split('/')[0]}: {how}"


def rewrite(path: Path, rng: random.Random) -> str:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(["schema.json", rng.choice(list(members))])
    change = changed_json if name == "schema.json" else rng.choice([changed_array, changed_bytes])
    with contextlib.suppress(ValueError):
        members[name] = change(members[name], rng)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in members.items():
            archive.writestr(each, data)
    return change.__name__


def sound_models(folder: Path) -> list[Path]:
    """Models of all kinds that osls makes, and of those that people pass."""
    frame = rows(90, 0, labelled=True)
    X, y, target = frame[ROW_NAMES].to_numpy(), frame["kind"].to_numpy(), rows(60, 1).to_numpy()
    trees = ExtraTreesClassifier(5)
    common = {"n_folds": 2, "n_bootstrap": 3, "max_steps": 5, "random_state": 0}
    models = {
        "linear": osls.PULSE(source_classifier="linear", discriminator=trees, **common),
        "networks": osls.PULSE(source_classifier="mlp", discriminator="mlp", **common),
        "boosting": osls.PULSE(
            source_classifier=HistGradientBoostingClassifier(max_iter=3), discriminator=trees, **common
        ),
        "neighbours": osls.PULSE(
            source_classifier=KNeighborsClassifier(), discriminator=LogisticRegression(), **common
        ),
    }
    for name, model in models.items():
        save(model.fit(X, y, X_target=target), folder / name)
    return [folder / name for name in models]


def mutations(count: int, done: dict[int, Any], work: Path) -> Iterator[dict[str, Any]]:
    models = sound_models(work)
    X = rows(20, 2).to_numpy()
    load(models[0]).predict_proba(X)
    for i in range(count):
        if i in done:
            continue
        rng = random.Random(i)
        place = work / "mutated"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(rng.choice(models), place)
        how = mutate(place, rng)
        started = time.monotonic()
        code, number, memory = ended(forked(partial(use, place, X), work / "log"))
        words = (work / "log").read_text()[-300:]
        yield {"id": i, "how": how, "code": code, "signal": number, "words": words if code == 99 else ""} | {
            "seconds": round(time.monotonic() - started, 2),
            "growth": round(memory - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def use(place: Path, X: Any) -> int:
    """Load and predict, within limits: 0 loaded, 1 refused, 2 loaded and then refused the rows."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    signal.alarm(SECONDS)
    try:
        model = load(place)
    except ModelError:
        return 1
    try:
        model.predict_proba(X)
    except Exception:
        return 2
    return 0


# -- Kills ------------------------------------------------------------------------------------------


def kills(count: int, done: dict[int, Any], work: Path) -> Iterator[dict[str, Any]]:
    folder = prepare(work)
    model = folder / "first" / "model"
    state = ["--state", folder / "state.json", "--out", folder / "page.html"]
    for i in range(4):
        rows(40, 10 + i).to_csv(folder / f"batch{i}.csv", index=False)
    batches = [folder / f"batch{i}.csv" for i in range(4)]
    kinds: dict[str, tuple[list[object], Callable[[], bool]]] = {
        "adapt": (["adapt", *adapt_words(folder, "run")], lambda: whole_run(folder / "run")),
        "predict": (
            ["predict", model, folder / "target.csv", "--overwrite", "--out", folder / "p.parquet"],
            lambda: len(pd.read_parquet(folder / "p.parquet")) == 120,
        ),
        "monitor": (
            ["monitor", model, *batches, *state],
            lambda: len(json.loads((folder / "state.json").read_text())["batches"]) == 4,
        ),
        "bench": (
            ["bench", "run", folder / "study.yml", "--out", folder / "results"],
            lambda: len(list((folder / "results").rglob("*.json"))) >= 2,
        ),
        "absorb": (absorb_words(folder, "grown"), lambda: whole_run(folder / "grown")),
    }
    number = 0
    for name, (words, is_whole) in kinds.items():
        started = time.monotonic()
        once(folder / "log", *words)
        takes = time.monotonic() - started
        for trial in range(count):
            number += 1
            if number in done:
                continue
            if name in ("monitor", "bench"):
                clear(folder / "state.json", folder / "results")
            process = forked(command(*words), folder / "log")
            time.sleep(random.Random(number).uniform(0, 1.1 * takes))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            _, stopped, _ = ended(process)
            left = len(hidden(folder))
            kept = name not in ("adapt", "predict", "absorb") or is_whole()
            again = (
                once(folder / "log", *words)
                if name != "adapt" or trial % 5 == 0
                else once(folder / "log", *kinds["predict"][0])
            )
            yield {"id": number, "command": name, "killed": stopped == 9, "left": left, "kept": kept} | {
                "again": again, "whole": is_whole(), "swept": not hidden(folder)
            }  # fmt: skip


def whole_run(folder: Path) -> bool:
    """Whether a run is complete; one that a killed process moved aside counts, as the next puts it back."""
    place = folder if folder.exists() else next(iter(folder.parent.glob(f".{folder.name}.old.*")), folder)
    names = {path.name for path in place.iterdir()} if place.exists() else set()
    return len(names) == 5 and load(place / "model") is not None


def clear(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


# -- Two at once ------------------------------------------------------------------------------------


def pairs(count: int, done: dict[int, Any], work: Path) -> Iterator[dict[str, Any]]:
    folder = prepare(work)
    model = folder / "first" / "model"
    rows(40, 10).to_csv(folder / "batch.csv", index=False)
    state = ["--state", folder / "state.json", "--out", folder / "page.html"]
    results = folder / "results"
    kinds: dict[str, tuple[list[object], list[Path], Callable[[], bool]]] = {
        "predict": (
            ["predict", model, folder / "target.csv", "--out", folder / "p.csv"],
            [folder / "p.csv"],
            lambda: len(pd.read_csv(folder / "p.csv")) == 120,
        ),
        "monitor": (
            ["monitor", model, folder / "batch.csv", *state],
            [folder / "state.json"],
            lambda: len(json.loads((folder / "state.json").read_text())["batches"]) == 1,
        ),
        "bench run": (
            ["bench", "run", folder / "study.yml", "--out", results],
            [results],
            lambda: len(list(results.rglob("*.json"))) >= 2,
        ),
        "bench page": (
            ["bench", "page", results, "--out", folder / "bench.html"],
            [folder / "bench.html"],
            lambda: (folder / "bench.html").read_text().rstrip().endswith("</html>"),
        ),
        "review": (
            ["review", folder / "first", "--out", folder / "review.html"],
            [folder / "review.html"],
            lambda: (folder / "review.html").read_text().rstrip().endswith("</html>"),
        ),
        "export": (
            ["export", model, folder / "model.onnx"],
            [folder / "model.onnx"],
            lambda: (folder / "model.onnx").stat().st_size > 1000,
        ),
        "absorb": (
            [word for word in absorb_words(folder, "pair-grown") if word != "--overwrite"],
            [folder / "pair-grown"],
            lambda: whole_run(folder / "pair-grown"),
        ),
        "adapt": (
            [word for word in ["adapt", *adapt_words(folder, "pair")] if word != "--overwrite"],
            [folder / "pair"],
            lambda: whole_run(folder / "pair"),
        ),
    }
    number = 0
    for name, (words, outputs, is_whole) in kinds.items():
        for _ in range(count):
            number += 1
            if number in done:
                continue
            clear(*outputs)
            logs = [folder / "one.log", folder / "two.log"]
            both = [forked(command(*words), log) for log in logs]
            codes = sorted(ended(process)[0] for process in both)
            said = [line for log in logs for line in log.read_text().splitlines() if line.startswith("osls:")]
            yield {"id": number, "command": name, "codes": codes, "sentences": len(said)} | {
                "whole": is_whole(), "left": hidden(folder)
            }  # fmt: skip


# -- A long watch -----------------------------------------------------------------------------------


def soak(count: int, done: dict[int, Any], work: Path) -> Iterator[dict[str, Any]]:
    """Feed a watch; a line for each hundred batches. Started again, it begins anew."""
    folder = prepare(work)
    inbox = folder / "inbox"
    inbox.mkdir()
    rng = random.Random(0)
    words = ["monitor", folder / "first" / "model", "--watch", inbox, "--every", 0.1]
    words += ["--state", folder / "state.json", "--out", folder / "page.html"]
    process, killed, memory = forked(command(*words), folder / "log"), 0, 0.0
    for i in range(count):
        feed(inbox, i, rng)
        time.sleep(0.005)
        memory = max(memory, resident(process))
        if rng.random() < 0.01:
            os.kill(process, signal.SIGKILL)
            ended(process)
            killed += 1
            process = forked(command(*words), folder / "log")
        if (i + 1) % 100 == 0:
            wait_for(folder, i + 1)
            yield {
                "id": i + 1,
                "counted": counted(folder),
                "killed": killed,
                "memory": round(resident(process)),
            }
    wait_for(folder, count)
    os.kill(process, signal.SIGTERM)
    code, number, _ = ended(process)
    yield {"id": count + 1, "counted": counted(folder), "names": len(set(names_in(folder))), "code": code} | {
        "signal": number, "killed": killed, "memory": round(memory), "left": hidden(folder)
    }  # fmt: skip


def feed(inbox: Path, i: int, rng: random.Random) -> None:
    """Add a good batch, moved in place from a draft, and now and then something bad."""
    draft = inbox / f".good{i}.csv"
    rows(30, 100 + i).to_csv(draft, index=False)
    os.utime(draft, (time.time() - 60,) * 2)
    draft.rename(inbox / f"good{i}.csv")
    bad = inbox / f"bad{i}.{rng.choice(['csv', 'parquet', 'arrow', 'npz', 'jsonl'])}"
    chance = rng.random()
    if chance < 0.02:
        os.mkfifo(bad)
    elif chance < 0.06:
        bad.write_bytes(rng.randbytes(rng.randrange(400)))
        os.utime(bad, (time.time() - 60,) * 2)
    elif chance < 0.08:
        bad.symlink_to(inbox / "nowhere")
    elif chance < 0.1:
        (inbox / f"bad\x1b[2J{i}.csv").write_text("age,dose\n1\n")


def names_in(folder: Path) -> list[str]:
    try:
        return [batch["name"] for batch in json.loads((folder / "state.json").read_text())["batches"]]
    except FileNotFoundError:
        return []


def counted(folder: Path) -> int:
    return len(names_in(folder))


def wait_for(folder: Path, count: int, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while counted(folder) < count and time.monotonic() < deadline:
        time.sleep(0.2)


def resident(process: int) -> float:
    with contextlib.suppress(OSError):
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    return 0.0


# -- All --------------------------------------------------------------------------------------------


RESULTS = Path(__file__).parent / "results" / "endurance.json"
KEYS = ("command", "code", "codes", "signal", "killed", "again", "whole", "kept", "swept", "counted", "names")
FIGURES = ("growth", "seconds", "memory")


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Count what happened, by kind, and note the worst figures."""
    kinds = [{key: line[key] for key in KEYS if key in line} for line in lines]
    counts = Counter(json.dumps(kind) for kind in kinds)
    figures = {key: [line[key] for line in lines if key in line] for key in FIGURES}
    worst = {key: max(values) for key, values in figures.items() if values}
    outcomes = [{"trials": count, **json.loads(kind)} for kind, count in counts.most_common()]
    return {"trials": len(lines), "outcomes": outcomes, "largest": worst}


def note(what: str, found: dict[str, Any]) -> None:
    """Keep a summary with the commit it is of."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, what: {"commit": commit, **found}}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    trials = {"mutations": mutations, "kills": kills, "pairs": pairs, "soak": soak}
    parser.add_argument("what", choices=trials)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    lines = (
        [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    )
    if options.what == "soak":
        lines = []
    with tempfile.TemporaryDirectory() as work, options.out.open("a") as file:
        for line in trials[options.what](options.count, {each["id"]: each for each in lines}, Path(work)):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    found = summary(lines)
    note(options.what, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
