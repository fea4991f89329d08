"""Latency and throughput of ``osls serve``: one row at a time, then 10,000 requests of 32 rows each.

    python examples/make_data.py table t
    osls adapt --source t/labelled.csv --label diagnosis --id patient --target t/new.csv --out run
    python benchmarks/serving.py run t/new.csv --out benchmarks/results/serving.json

It starts the server on 127.0.0.1 as users do, asks over kept connections (two at once for the 10,000), counts
the requests that failed, and reads the server's memory before and after. Prints one JSON object, and writes
it if ``--out`` is given.
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


def ask(connection: http.client.HTTPConnection, path: str, body: bytes, answers: int) -> bool:
    """Ask once; say whether the status was 200 and every row was answered."""
    try:
        connection.request("POST", path, body)
        response = connection.getresponse()
        found = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()  # the next request opens it again
        return False
    return response.status == 200 and (1 if isinstance(found, dict) else len(found)) == answers


def one_by_one(port: int, row: bytes, requests: int) -> list[float]:
    """Seconds of each request of one row, after some that warm the server up."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    seconds = []
    for _ in range(100 + requests):
        started = time.perf_counter()
        if not ask(connection, "/predict", row, 1):
            raise SystemExit("/predict did not answer")
        seconds.append(time.perf_counter() - started)
    return seconds[100:]


def endure(port: int, rows: bytes, count: int, requests: int, clients: int) -> tuple[float, int]:
    """Send requests of many rows from several clients at once; return the seconds and the failures."""
    failed = [0] * clients

    def client(i: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(requests // clients):
            failed[i] += not ask(connection, "/batch", rows, count)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started, sum(failed)


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
    parser.add_argument("--requests", type=int, default=10_000, help="of 32 rows each")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    records = json.loads(read_table(args.rows).head(32).to_json(orient="records"))
    one, many = json.dumps(records[0]).encode(), json.dumps(records).encode()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = commit()  # before the long run, in which files may change
    server = start(args.model, port)
    try:
        load = os.getloadavg()[0]
        seconds = one_by_one(port, one, 500)
        endure(port, many, len(records), 200, clients=2)  # the threads and buffers that any load needs
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        took, failures = endure(port, many, len(records), args.requests, clients=2)
        grown = process.memory_info().rss - before
    finally:
        server.terminate()
        server.wait()
    found = {
        "commit": code,
        "load_before": round(load, 1),
        "one_row_p50_ms": round(1000 * statistics.median(seconds), 2),
        "one_row_p95_ms": round(1000 * statistics.quantiles(seconds, n=20)[-1], 2),
        "rows_a_request": len(records),
        "requests": args.requests,
        "failures": failures,
        "requests_a_second": round(args.requests / took, 1),
        "memory_mb": round(before / 2**20),
        "grown_mb": round(grown / 2**20, 1),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
