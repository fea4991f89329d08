"""An ONNX graph that grows node by node, and is checked when it is finished."""

from __future__ import annotations

from typing import Any

import numpy as np

from osls import __version__
from osls._core.arrays import AnyArray
from osls._core.extras import require

# Both are older than onnxruntime 1.17.
_OPSET, _ML_OPSET = 18, 3
_IR_VERSION = 9


class Graph:
    """Nodes of ONNX, added one by one; values are known by their names."""

    def __init__(self) -> None:
        self._onnx = require("onnx", extra="onnx")
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._inputs: list[Any] = []

    def _name(self) -> str:
        # No input is called so: a name with a blank in front is refused by every reader of columns.
        return f" {len(self._nodes)}.{len(self._weights)}"

    def input(self, name: str, kind: str, width: int, note: str = "") -> str:
        """Add an input of ``width`` columns, "double" or "string"."""
        types = {"double": self._onnx.TensorProto.DOUBLE, "string": self._onnx.TensorProto.STRING}
        value = self._onnx.helper.make_tensor_value_info(name, types[kind], ["rows", width])
        value.doc_string = note
        self._inputs.append(value)
        return name

    def constant(self, value: Any) -> str:
        name = self._name()
        self._weights.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operation: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node of one output, and return its name."""
        output = self._name()
        node = self._onnx.helper.make_node(operation, list(inputs), [output], domain=domain, **attributes)
        self._nodes.append(node)
        return output

    def cast(self, value: str, kind: str) -> str:
        return self.add("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def total(self, value: str) -> str:
        """Sum of each row, as a column."""
        return self.add("ReduceSum", value, self.constant(np.array([1])), keepdims=1)

    def column(self, value: str, index: int) -> str:
        return self.add("Gather", value, self.constant(np.array([index])), axis=1)

    def finish(self, proba: str, classes: AnyArray) -> bytes:
        """Return the whole as bytes, with outputs for the probabilities and the most probable label."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        textual = classes.dtype.kind not in "iub"
        names = np.array([str(name) for name in classes], dtype=object) if textual else classes.astype(int)
        best = self.add("ArgMax", proba, axis=1, keepdims=0)
        label = self.add("Gather", self.constant(names), best)
        for value, output in ((label, "label"), (self.cast(proba, "FLOAT"), "probabilities")):
            self._nodes.append(helper.make_node("Identity", [value], [output]))
        outputs = [
            helper.make_tensor_value_info("label", types.STRING if textual else types.INT64, ["rows"]),
            helper.make_tensor_value_info("probabilities", types.FLOAT, ["rows", len(classes)]),
        ]
        graph = helper.make_graph(self._nodes, "osls", self._inputs, outputs, self._weights)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=_IR_VERSION,
            producer_name="osls",
            producer_version=__version__,
        )
        helper.set_model_props(model, {"classes": "\n".join(map(str, classes.tolist()))})
        self._onnx.checker.check_model(model)
        content: bytes = model.SerializeToString()
        return content
