"""``osls serve``: a saved model behind HTTP. JSON in, JSON out; health and metrics for whoever watches it.

Rows are read into memory, so the size of a request is bounded. Pictures are not served: their rows are paths,
and a server must not open what a stranger names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from osls import __version__
from osls._core.arrays import AnyArray, Floats
from osls._core.extras import require
from osls.app.export import to_onnx
from osls.app.files.reader import InputError, Place, missing_columns
from osls.app.predict import Adapted, Familiarity, load_to_answer
from osls.app.tables.table_encoder import TableEncoder
from osls.pulse import PULSE
from osls.training.predictors import SklearnModels

_REQUEST = Place("the request")
_DIGITS = 7
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Limits:
    """What one request may hold."""

    rows: int = 10_000
    bytes: int = 16 << 20


class Refused(Exception):  # noqa: N818  # an answer to the client, with its status
    """A request that cannot be answered, and the HTTP status that says so."""

    def __init__(self, status: int, words: str):
        super().__init__(words)
        self.status = status


def make_app(adapted: Adapted, limits: Limits, hosts: tuple[str, ...] = ("*",)) -> Any:
    """Return the ASGI application of a model.

    Parameters
    ----------
    adapted : Adapted
        As :func:`osls.load` reads it from the folder ``model`` of a run.
    limits : Limits
        Rows and bytes of a request.
    hosts : tuple of str
        Names under which the server may be addressed; "*" for any.

    Returns
    -------
    Starlette
        With ``POST /predict`` (an object in, an object out), ``POST /batch`` (a list in, a list out),
        ``GET /health`` and ``GET /metrics``.
    """
    applications = require("starlette.applications", extra="serve")
    routing = require("starlette.routing", extra="serve")
    middleware = require("starlette.middleware", extra="serve")
    trusted = require("starlette.middleware.trustedhost", extra="serve")
    service = _Service(adapted, limits)
    routes = [
        routing.Route("/predict", service.answering(service.predict_one), methods=["POST"]),
        routing.Route("/batch", service.answering(service.predict_many), methods=["POST"]),
        routing.Route("/health", service.health),
        routing.Route("/metrics", service.metrics),
    ]
    # A page in the user's browser could reach a local server under another name (DNS rebinding).
    named = middleware.Middleware(trusted.TrustedHostMiddleware, allowed_hosts=list(hosts))
    return applications.Starlette(routes=routes, middleware=[named])


class _Service:
    """The endpoints of one model, and what they counted."""

    def __init__(self, adapted: Adapted, limits: Limits):
        if adapted.kind == "images":
            raise InputError("models of pictures cannot be served; use osls predict on the folder.")
        self.predict = _predictor(adapted)
        prometheus = require("prometheus_client", extra="serve")
        self.adapted, self.limits = adapted, limits
        self.columns = adapted.encoder.used_columns
        self.responses = require("starlette.responses", extra="serve")
        self.threads = require("starlette.concurrency", extra="serve")
        self._prometheus = prometheus
        self.registry = prometheus.CollectorRegistry()
        self.requests = prometheus.Counter(
            "osls_requests", "Requests answered.", ["status"], registry=self.registry
        )
        self.rows = prometheus.Counter("osls_rows", "Rows predicted.", ["class"], registry=self.registry)
        self.unfamiliar = prometheus.Counter(
            "osls_unfamiliar",
            "Values that are missing, or none of the words that the model learned.",
            ["column", "what"],
            registry=self.registry,
        )
        self.seconds = prometheus.Histogram("osls_seconds", "Seconds a request.", registry=self.registry)

    def answering(self, predict: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """Wrap a function of the JSON value: read and bound the body, run in a thread, answer errors."""

        async def endpoint(request: Any) -> Any:
            started = time.perf_counter()
            try:
                value = _parse(await self._body(request))
                answer, status = await self.threads.run_in_threadpool(predict, value), 200
            except Refused as refusal:
                answer, status = {"error": str(refusal)}, refusal.status
            except (ValueError, TypeError) as error:
                answer, status = {"error": str(error)}, 422
            self.requests.labels(str(status)).inc()
            self.seconds.observe(time.perf_counter() - started)
            return self.responses.JSONResponse(answer, status)

        return endpoint

    async def _body(self, request: Any) -> bytes:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.limits.bytes:
                raise Refused(413, f"the request has more than {self.limits.bytes} bytes; send fewer rows.")
        return bytes(body)

    def predict_one(self, row: Any) -> dict[str, Any]:
        """Answer for one row, an object."""
        if not isinstance(row, Mapping):
            raise Refused(400, 'send one row as an object, {"column": value}; lists of rows go to /batch.')
        return self.predict_many([row])[0]

    def predict_many(self, rows: Any) -> list[dict[str, Any]]:
        """Answer for a list of rows, in order."""
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise Refused(400, 'send rows as a list of objects, [{"column": value}, ...].')
        if len(rows) > self.limits.rows:
            raise Refused(413, f"the request has {len(rows)} rows, at most {self.limits.rows} are taken.")
        if not rows:
            return []
        self._check_columns(rows)
        proba = self.predict(self._features(rows))
        self._count_unfamiliar(rows)
        best = proba.argmax(axis=1)
        classes, ids = self.adapted.classes, self._ids_of(rows)
        for j, count in enumerate(np.bincount(best, minlength=len(classes)).tolist()):
            if count:
                self.rows.labels(classes[j]).inc(count)
        # Without a table in between, which takes longer to build than a few rows to answer.
        names = ("novel", *(f"p_{name}" for name in classes[:-1]))
        values = proba[:, [-1, *range(len(classes) - 1)]].round(_DIGITS).tolist()
        return [
            {name: row.get(name) for name in ids}
            | {"predicted": classes[j]}
            | dict(zip(names, shares, strict=True))
            for row, j, shares in zip(rows, best.tolist(), values, strict=True)
        ]

    def _features(self, rows: list[Mapping[str, Any]]) -> AnyArray:
        """Encode rows; a table of pandas, which takes longer than the model, is made only if it is needed."""
        encoder = self.adapted.encoder
        plain = encoder.transform_records(rows) if isinstance(encoder, TableEncoder) else None
        return encoder.transform(pd.DataFrame(rows), _REQUEST) if plain is None else plain

    def _count_unfamiliar(self, rows: list[Mapping[str, Any]]) -> None:
        """Count values that the fit did not meet: an answer has no room for a note on its columns."""
        values = {name: [row.get(name) for row in rows] for name in self.columns}
        for name, found in Familiarity(self.adapted).add(values).items():
            for what, count in (("missing", found.missing), ("unknown", found.unseen)):
                if count:
                    self.unfamiliar.labels(name, what).inc(count)

    def _ids_of(self, rows: list[Mapping[str, Any]]) -> list[str]:
        """The id columns that any row has."""
        return [name for name in self.adapted.ids if any(name in row for row in rows)]

    def _check_columns(self, rows: list[Mapping[str, Any]]) -> None:
        """Refuse a row without a column that the model needs, whatever the other rows have."""
        needed = set(self.columns)
        for number, row in enumerate(rows, 1):
            if not needed <= row.keys():
                missing = [column for column in self.columns if column not in row]
                where = f"row {number}: " if len(rows) > 1 else ""
                raise Refused(422, where + missing_columns(missing, row.keys() - needed))

    async def health(self, request: Any) -> Any:
        """Say that the model is loaded, and what it needs."""
        classes = list(self.adapted.classes)
        found = {"status": "ok", "osls": __version__, "classes": classes, "columns": self.columns}
        return self.responses.JSONResponse(found)

    async def metrics(self, request: Any) -> Any:
        """Show the counters in the text format of Prometheus."""
        text = self._prometheus.generate_latest(self.registry)
        return self.responses.Response(text, media_type="text/plain; version=0.0.4")


def _predictor(adapted: Adapted) -> Callable[[AnyArray], Floats]:
    """Return what turns features into probabilities: a graph of ONNX if there can be one, else the model.

    Ten forests that are asked tree by tree take a tenth of a second for one row, and the graph a hundredth
    of that, with answers that agree to 1e-5.
    """
    model: PULSE = adapted.adapter
    if find_spec("onnxruntime") is not None and find_spec("onnx") is not None:
        with suppress(InputError):
            return _graph(to_onnx(model))
    use_one_thread(model._predictor)
    return model.predict_proba


def _graph(content: bytes) -> Callable[[AnyArray], Floats]:
    runtime = require("onnxruntime", extra="serve")
    options = runtime.SessionOptions()
    # Every request has a thread of its own already.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def predict(features: AnyArray) -> Floats:
        rows = np.ascontiguousarray(features, dtype=np.float64)
        return np.asarray(session.run(["probabilities"], {"X": rows})[0], dtype=np.float64)

    return predict


def use_one_thread(predictor: Any) -> None:
    """Let forests answer in the thread that asks: starting others takes longer than a few rows do."""
    if isinstance(predictor, SklearnModels):
        for model in predictor.models:
            if "n_jobs" in model.get_params(deep=False):
                model.set_params(n_jobs=1)
        return
    for part in vars(predictor).values():
        if hasattr(part, "predict_proba") and type(part).__module__.startswith("osls."):
            use_one_thread(part)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the request is not JSON ({error}).") from None


def run_serve(model: Path, host: str, port: int, *, max_rows: int, max_bytes: int) -> None:
    """Serve until interrupted."""
    uvicorn = require("uvicorn", extra="serve")
    adapted = load_to_answer(model)
    hosts = _LOCAL if host in _LOCAL else ("*",)
    print(f"Serving {model} at http://{host}:{port}; Ctrl-C ends it.", flush=True)
    app = make_app(adapted, Limits(max_rows, max_bytes), hosts)
    uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)
