"""Latency and throughput of ``osls serve``: one row at a time, 32 rows a request, and many requests in a row.

    python examples/make_data.py table t
    osls adapt --source t/labelled.csv --label diagnosis --id patient --target t/new.csv --out run
    python benchmarks/serving.py run t/new.csv --out benchmarks/results/serving.json

It starts the server on 127.0.0.1 as users do, asks over kept connections, and reads its memory before and
after. Prints one JSON object, and writes it if ``--out`` is given.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from osls.app.files import read_table


def ask(connection: http.client.HTTPConnection, path: str, body: bytes) -> float:
    started = time.perf_counter()
    connection.request("POST", path, body)
    response = connection.getresponse()
    response.read()
    if response.status != 200:
        raise SystemExit(f"{path} answered {response.status}")
    return time.perf_counter() - started


def requests_a_second(port: int, body: bytes, seconds: float, clients: int) -> float:
    """Ask from several clients at once and count the answers."""
    counts = [0] * clients
    end = time.perf_counter() + seconds

    def client(i: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while time.perf_counter() < end:
            ask(connection, "/batch", body)
            counts[i] += 1

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def commit() -> str:
    words = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def start(model: Path, port: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "osls.app.cli", "serve", str(model), "--port", str(port)]
    server = subprocess.Popen(words)
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    records = json.loads(read_table(args.rows).head(32).to_json(orient="records"))
    one, many = json.dumps(records[0]).encode(), json.dumps(records).encode()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = start(args.model, port)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        load = os.getloadavg()[0]
        warm = [ask(connection, "/predict", one) for _ in range(500)][100:]
        rate = requests_a_second(port, many, args.seconds, clients=2)
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        # The server has closed the first one, which was idle meanwhile.
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(args.requests):
            ask(connection, "/predict", one)
        grown = process.memory_info().rss - before
    finally:
        server.terminate()
        server.wait()
    found = {
        "commit": commit(),
        "load_before": round(load, 1),
        "one_row_p50_ms": round(1000 * statistics.median(warm), 2),
        "one_row_p95_ms": round(1000 * statistics.quantiles(warm, n=20)[-1], 2),
        "requests_a_second_32_rows": round(rate, 1),
        "requests": args.requests,
        "failures": 0,
        "grown_mb": round(grown / 2**20, 1),
        "memory_mb": round(before / 2**20),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
