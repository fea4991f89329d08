"""Models by somebody who knows the format: all digests are right, and still nothing is corrupted or filled.

Each case is a model that an earlier version built: compiled code then read or wrote foreign memory, or the
process asked for gigabytes, or never came back. Now each ends in one sentence, before anything is built.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import warnings
import zipfile

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from osls.persist import ModelError, load, save
from test_persist import blobs, npy, put, reseal, rewrite_part

FITTED = {
    "boosting": HistGradientBoostingClassifier(max_iter=2),
    "calibrated": CalibratedClassifierCV(GaussianNB(), cv=2),
    "discriminant": LinearDiscriminantAnalysis(),
    "extra-trees": ExtraTreesClassifier(3),
    "forest": RandomForestClassifier(3, random_state=0),
    "imputer": SimpleImputer(),
    "isotonic": IsotonicRegression(),
    "linear-svc": LinearSVC(),
    "logistic": LogisticRegression(),
    "max-abs": MaxAbsScaler(),
    "min-max": MinMaxScaler(),
    "naive-bayes": GaussianNB(),
    "neighbours": KNeighborsClassifier(algorithm="brute"),
    "neighbours-tree": KNeighborsClassifier(algorithm="kd_tree"),
    "network": MLPClassifier(max_iter=2),
    "pca": PCA(2),
    "power": PowerTransformer(),
    "quantile": QuantileTransformer(n_quantiles=5),
    "ridge": RidgeClassifier(),
    "robust": RobustScaler(),
    "sgd": SGDClassifier(max_iter=2),
    "standard": StandardScaler(),
    "svd": TruncatedSVD(2),
    "tree": DecisionTreeClassifier(),
}


@pytest.fixture(scope="module")
def fitted():
    """Estimators of all kinds on three classes and five columns, the first of whole numbers."""
    X, y = blobs(sizes=(30, 30, 30))
    X[:, 0] = np.arange(len(X)) % 4
    made = {}
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # two rounds are too few for a network, and that is all that is needed
        for name, estimator in FITTED.items():
            made[name] = estimator.fit(X[:, 0] if name == "isotonic" else X, y)
    return made


def forge(estimator, change, path, monkeypatch):
    """Save an estimator after a change that saving would refuse."""
    changed = copy.deepcopy(estimator)
    change(changed)
    with monkeypatch.context() as patch:
        patch.setattr("osls.persist.sklearn_parts.check_contents", lambda *_: None)
        save(changed, path)
    return changed


# -- Contents that compiled code would follow out of the model ---------------------------------------


def setting(**values):
    return lambda thing: vars(thing).update(values)


def cutting(name):
    """Drop the last row of an attribute."""
    return lambda thing: setattr(thing, name, getattr(thing, name)[:-1])


def widening(name):
    """Repeat an attribute's last axis."""
    return lambda thing: setattr(thing, name, np.concatenate([getattr(thing, name)] * 2, axis=-1))


def putting(name, index, value):
    """Put a value into an array or list of the estimator."""

    def apply(thing):
        holder = getattr(thing, name)
        if isinstance(holder, np.ndarray):
            holder = holder.copy()
            setattr(thing, name, holder)
        holder[index] = value

    return apply


def first_tree(change):
    return lambda thing: change(thing.estimators_[0])


def first_predictor(change):
    return lambda thing: change(thing._predictors[0][0])


def bins(change):
    return lambda thing: change(thing._bin_mapper)


def category(value):
    """Mark the first column as one of categories, and have a single one."""

    def apply(mapper):
        putting("is_categorical_", 0, 1)(mapper)
        mapper.bin_thresholds_[0] = np.array([value], dtype=np.float32)

    return apply


NO_BITS = np.zeros((1, 1), dtype=np.uint32)
SWAPPED = KNeighborsClassifier(algorithm="brute")

FORGERIES = [
    ("logistic", "coefficients for more columns", widening("coef_")),
    ("logistic", "coefficients for fewer classes", cutting("coef_")),
    ("logistic", "fewer offsets than classes", cutting("intercept_")),
    ("logistic", "other columns than it says", setting(n_features_in_=4)),
    ("logistic", "a class too many", setting(classes_=np.arange(4))),
    ("logistic", "coefficients in three dimensions", setting(coef_=np.zeros((3, 5, 1)))),
    ("logistic", "a number in place of a method", setting(predict_proba=1)),
    ("logistic", "a number in place of a private method", setting(_predict_proba_lr=1)),
    ("logistic", "a million threads", setting(n_jobs=10**6)),
    ("logistic", "threads that are no number", setting(n_jobs="all")),
    ("linear-svc", "coefficients for more columns", widening("coef_")),
    ("ridge", "coefficients for more columns", widening("coef_")),
    ("ridge", "fewer offsets than classes", cutting("intercept_")),
    ("sgd", "coefficients for more columns", widening("coef_")),
    ("sgd", "fewer offsets than classes", cutting("intercept_")),
    ("discriminant", "means of other columns", widening("means_")),
    ("discriminant", "fewer means than classes", cutting("means_")),
    ("naive-bayes", "fewer means than classes", cutting("theta_")),
    ("naive-bayes", "variances of other columns", widening("var_")),
    ("naive-bayes", "fewer shares than classes", cutting("class_prior_")),
    ("isotonic", "fewer values than steps", cutting("y_thresholds_")),
    ("standard", "fewer means than columns", cutting("mean_")),
    ("standard", "fewer scales than columns", cutting("scale_")),
    ("min-max", "fewer scales than columns", cutting("scale_")),
    ("max-abs", "fewer scales than columns", cutting("scale_")),
    ("robust", "fewer centres than columns", cutting("center_")),
    ("power", "fewer exponents than columns", cutting("lambdas_")),
    ("quantile", "fewer columns of quantiles", setting(quantiles_=np.zeros((5, 4)))),
    ("quantile", "fewer references than quantiles", cutting("references_")),
    ("imputer", "fewer values than columns", cutting("statistics_")),
    ("pca", "directions of more columns", widening("components_")),
    ("pca", "fewer variances than directions", cutting("explained_variance_")),
    ("svd", "directions of more columns", widening("components_")),
    ("tree", "other columns than its nodes use", setting(n_features_in_=3)),
    ("tree", "a class too few", setting(classes_=np.arange(2), n_classes_=2)),
    ("tree", "two outputs", setting(n_outputs_=2)),
    ("tree", "a list in place of its nodes", setting(tree_=[])),
    ("forest", "a tree of other columns", first_tree(setting(n_features_in_=3))),
    ("forest", "a tree of fewer classes", first_tree(setting(classes_=np.arange(2)))),
    ("forest", "10**12 classes", setting(n_classes_=10**12)),
    ("forest", "an estimator of another kind among its trees", putting("estimators_", 0, SWAPPED)),
    ("forest", "other columns than its trees", setting(n_features_in_=2)),
    ("extra-trees", "other columns than its trees", setting(n_features_in_=2)),
    ("extra-trees", "a million threads", setting(n_jobs=-(10**6))),
    ("boosting", "other columns than its trees", setting(n_features_in_=2)),
    ("boosting", "other columns in its own count", setting(_n_features=9)),
    ("boosting", "a tree too few in a round", lambda thing: thing._predictors[0].pop()),
    ("boosting", "trees of another kind", lambda thing: thing._predictors[0].__setitem__(0, SWAPPED)),
    ("boosting", "a marking of more columns", bins(widening("is_categorical_"))),
    ("boosting", "bits of another width", first_predictor(setting(raw_left_cat_bitsets=NO_BITS))),
    ("boosting", "a category of 10,000", bins(category(1e4))),
    ("boosting", "a category of -1", bins(category(-1.0))),
    ("boosting", "a category that is no number", bins(category(np.nan))),
    ("network", "a layer that does not fit", putting("coefs_", 0, np.zeros((5, 7)))),
    ("network", "fewer offsets than layers", lambda thing: thing.intercepts_.pop()),
    ("network", "more layers than it has", setting(n_layers_=9)),
    ("network", "more outputs than classes", setting(n_outputs_=9)),
    ("network", "other columns than it says", setting(n_features_in_=4)),
    ("neighbours", "a class number of 10**9", putting("_y", 0, 10**9)),
    ("neighbours", "a class number of -1", putting("_y", 0, -1)),
    ("neighbours", "fewer labels than rows", cutting("_y")),
    ("neighbours", "rows of other columns", setting(n_features_in_=2)),
    ("neighbours", "a count of rows that is not theirs", setting(n_samples_fit_=10**9)),
    ("neighbours", "a distance that runs code", setting(effective_metric_="pyfunc")),
    ("neighbours", "weights of a distance", setting(effective_metric_params_={"w": np.zeros(1)})),
    ("neighbours-tree", "a class number of 10**9", putting("_y", 0, 10**9)),
    ("calibrated", "an inner estimator that does not fit",
     lambda thing: cutting("theta_")(thing.calibrated_classifiers_[0].estimator)),
    ("calibrated", "an inner calibration of two slopes",
     lambda thing: setattr(thing.calibrated_classifiers_[0].calibrators[0], "a_", np.zeros(2))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change"),
    [(kind, change) for kind, _, change in FORGERIES],
    ids=[f"{kind}: {words}" for kind, words, _ in FORGERIES],
)
def test_parts_that_do_not_fit_together_are_refused(kind, change, fitted, tmp_path, monkeypatch):
    forged = forge(fitted[kind], change, tmp_path / "m", monkeypatch)
    with pytest.raises(ModelError, match=r"do not fit together|point outside"):
        load(tmp_path / "m")
    with pytest.raises(ModelError, match=r"do not fit together|point outside"):
        save(forged, tmp_path / "again")


def test_all_of_these_load_as_they_are(fitted, tmp_path):
    for name, estimator in fitted.items():
        save(estimator, tmp_path / name)
        load(tmp_path / name)


def test_a_random_state_inside_a_part_that_reads_outside_is_refused(fitted, tmp_path):
    forest = copy.deepcopy(fitted["forest"]).set_params(random_state=np.random.RandomState(0))
    save(forest, tmp_path / "m")

    def move(name, data):
        if name != "schema.json":
            return data
        schema = json.loads(data)
        found = [n for n in walk(schema) if isinstance(n, dict) and n.get("content") == "624"]
        assert found
        for node in found:
            node["content"] = "-9"
        return json.dumps(schema).encode()

    rewrite_part(tmp_path / "m", move)
    with pytest.raises(ModelError, match="pos=-9"):
        load(tmp_path / "m")


def walk(node):
    yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
        yield from walk(inner)


# -- Types that are not on the list -----------------------------------------------------------------


def node(loader, name, **more):
    module, _, kind = name.rpartition(".")
    return {"__loader__": loader, "__module__": module, "__class__": kind, **more}


EMPTY_LIST = node("ListNode", "builtins.list", content=[])
SMUGGLED = {
    "a support vector machine": node("ObjectNode", "sklearn.svm._classes.SVC"),
    "gradient boosting": node("ObjectNode", "sklearn.ensemble._gb.GradientBoostingClassifier"),
    "an isolation forest": node("ObjectNode", "sklearn.ensemble._iforest.IsolationForest"),
    "a search tree": node("ObjectNode", "sklearn.neighbors._kd_tree.KDTree"),
    "an estimator by another module": node("ObjectNode", "sklearn.svm.SVC"),
    "an array of any size, as a list": node("ListNode", "numpy.ndarray", content=[]),
    "a sparse matrix of any size": node(
        "ConstructorFromReduceNode", "scipy.sparse._csr.csr_matrix", content=EMPTY_LIST
    ),
    "bytes of any length": node("NdArrayNode", "numpy.void", type="json", content=[], shape=EMPTY_LIST),
    "a function of numpy": node("FunctionNode", "numpy.add"),
    "a call of a method": node("OperatorFuncNode", "operator.methodcaller", attrs=EMPTY_LIST),
    "a bound method": node("MethodNode", "builtins.list", content={"func": "append", "obj": EMPTY_LIST}),
    "a call with arguments": node("PartialNode", "functools.partial", content={}),
    "a tree under another name": node("TreeNode", "builtins.dict", content=EMPTY_LIST),
    "a stub for another object": node("CachedNode", "builtins.list", __id__=1),
    "a dictionary with defaults": node("DefaultDictNode", "collections.defaultdict", content={}),
    "a time zone": node("ConstructorFromReduceNode", "zoneinfo.ZoneInfo", content=EMPTY_LIST),
    "a masked array": node("MaskedArrayNode", "numpy.ma.MaskedArray", content={}),
    "a named tuple": node("TupleNode", "sklearn.svm._classes.SVC", content=[]),
    "an unknown loader": node("NoSuchNode", "builtins.list"),
    "a loader that is a list": {**node("", "builtins.list"), "__loader__": ["x"]},
}


def in_schema(change):
    """A change of the description of a part."""

    def apply(name, data):
        if name != "schema.json":
            return data
        schema = json.loads(data)
        change(schema)
        return json.dumps(schema).encode()

    return apply


@pytest.mark.parametrize("added", SMUGGLED.values(), ids=SMUGGLED)
def test_types_that_are_not_on_the_list_are_not_built(added, fitted, tmp_path):
    save(fitted["logistic"], tmp_path / "m")
    rewrite_part(tmp_path / "m", in_schema(lambda schema: schema["content"]["content"].update(C=added)))
    with pytest.raises(ModelError, match="which is not trusted"):
        load(tmp_path / "m")


# -- Small files that ask for much ------------------------------------------------------------------


def many_nodes_of_one_file(schema):
    attributes = schema["content"]["content"]
    attributes["more"] = node(
        "ListNode",
        "builtins.list",
        content=[{**attributes["coef_"], "__id__": 10_000 + i} for i in range(5000)],
    )


def nodes_of_one_file_without_numbers(schema):
    attributes = schema["content"]["content"]
    bare = {key: value for key, value in attributes["coef_"].items() if key != "__id__"}
    attributes["more"] = node("ListNode", "builtins.list", content=[bare] * 5000)


def tuples_of_tuples(schema):
    """Sixty tuples, each of which holds the one before twice: 2**60 values to walk through."""
    inner = node("TupleNode", "builtins.tuple", content=[], __id__=1)
    for number in range(2, 62):
        stub = node("TupleNode", "builtins.tuple", content=[], __id__=number - 1)
        inner = node("TupleNode", "builtins.tuple", content=[inner, stub], __id__=number)
    schema["content"]["content"]["more"] = inner


def itself(schema):
    again = node("ListNode", "builtins.list", content=[], __id__=1)
    schema["content"]["content"]["more"] = node("ListNode", "builtins.list", content=[again], __id__=1)


def a_thousand_lists_deep(schema):
    inner = EMPTY_LIST
    for _ in range(300):
        inner = node("ListNode", "builtins.list", content=[inner])
    schema["content"]["content"]["more"] = inner


def an_endless_seed(schema):
    number = {"__loader__": "JsonNode", "__module__": "builtins", "__class__": "str", "content": "1000000"}
    state = node("DictNode", "builtins.dict", content={"pool_size": number}, key_types=EMPTY_LIST)
    schema["content"]["content"]["random_state"] = node(
        "RandomGeneratorNode",
        "numpy.random._generator.Generator",
        content={"bit_generator": state, "seed_seq": state},
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (many_nodes_of_one_file, "for two objects"),
        (nodes_of_one_file_without_numbers, "for two objects"),
        (tuples_of_tuples, "one number"),
        (itself, "one number"),
        (a_thousand_lists_deep, "nested more than"),
        (an_endless_seed, "a seed that numpy does not make"),
    ],
    ids=lambda value: getattr(value, "__name__", "").replace("_", " "),
)
def test_descriptions_that_grow_when_they_are_read_are_refused(change, words, fitted, tmp_path):
    save(fitted["logistic"], tmp_path / "m")
    rewrite_part(tmp_path / "m", in_schema(change))
    with pytest.raises(ModelError, match=words):
        load(tmp_path / "m")


def claiming(shape, data=b""):
    """An npy file whose header speaks of more than follows."""
    whole = npy(np.zeros(1))
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    assert whole[:6] == buffer.getvalue()[:6]
    return buffer.getvalue() + data


def zipped(**entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (claiming((10**12,)), "claims more bytes"),
        (claiming((10**6, 10**6), b"\0" * 100), "claims more bytes"),
        (zipped(data=claiming((10**12,))), "claims more bytes"),
        (zipped(data=npy(np.zeros(2_000_000))), "claims to unpack to 16000128"),
        (zipped(data=zipped(data=npy(np.zeros(10)))), "do not fit together"),
        (b"", "damaged"),
        (b"\x93NUMPY\x09\x00", "not a skops archive"),
        (npy(np.zeros(3, dtype="V8")), "do not fit together"),
    ],
    ids=[
        "an array of 8 TB", "a matrix of 8 TB", "8 TB in an archive inside", "16 MB of zeros in an archive",
        "an archive in an archive in an archive", "nothing", "another version of npy", "bytes without a type",
    ],
)  # fmt: skip
def test_arrays_that_claim_more_than_they_have_are_refused(content, words, fitted, tmp_path):
    save(fitted["logistic"], tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m/sklearn/0.skops") as archive:
        schema = json.loads(archive.read("schema.json"))
    name = schema["content"]["content"]["coef_"]["file"]
    rewrite_part(tmp_path / "m", lambda each, data: content if each == name else data)
    with pytest.raises(ModelError, match=words):
        load(tmp_path / "m")


def test_many_small_parts_share_one_budget(fitted, tmp_path):
    save([fitted["logistic"], fitted["ridge"], fitted["sgd"]], tmp_path / "m")
    rewrite_part(
        tmp_path / "m", lambda name, data: data + b" " * 4_000_000 if name == "schema.json" else data
    )
    with pytest.raises(ModelError, match="claims to unpack to"):
        load(tmp_path / "m")


def test_a_sparse_model_is_saved_so_that_it_can_be_loaded(fitted, tmp_path):
    wide = copy.deepcopy(fitted["logistic"])
    wide.coef_, wide.n_features_in_ = np.zeros((3, 600_000)), 600_000
    save(wide, tmp_path / "m")
    assert load(tmp_path / "m").coef_.shape == (3, 600_000)


SPARSE = {"$": "csr", "array": True, "data": 0, "indices": 0, "indptr": 0}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ([{"$": "array", "tensor": "0"}] * 20_000, "which was used before"),
        ({**SPARSE, "shape": [0, 10**12]}, "that long"),
        ({**SPARSE, "shape": [1]}, "that long"),
        ({"$": "tuple", "items": [], "#": 1}, None),
        ([{"$": "tuple", "items": [1], "#": 1}, {"$": "same", "#": 1}], "not read before"),
        ([{"$": "dict", "items": [], "#": 1}, {"$": "same", "#": 1}], "not read before"),
    ],
    ids=[
        "one tensor named 20,000 times", "a sparse matrix of 10**12 columns", "a sparse matrix of one side",
        "a number that nobody uses", "a tuple that is referred to", "a dictionary that is referred to",
    ],
)  # fmt: skip
def test_manifests_that_grow_when_they_are_read_are_refused(tree, words, tmp_path):
    save(np.arange(3.0), tmp_path / "m")
    reseal(tmp_path / "m", put(object=tree))
    if words is None:
        load(tmp_path / "m")
        return
    with pytest.raises(ModelError, match=words):
        load(tmp_path / "m")


def test_arrays_of_arrays_that_double_thirty_times_are_refused(tmp_path):
    arrays = [np.array([None, None], dtype=object) for _ in range(30)]
    save(arrays, tmp_path / "m")

    def double(manifest):
        for i, each in enumerate(manifest["object"]):
            each["values"] = [{"$": "same", "#": i - 1}] * 2 if i else [None, None]
            each["#"] = i

    reseal(tmp_path / "m", double)
    with pytest.raises(ModelError, match="in too many ways"):
        load(tmp_path / "m")


@pytest.mark.parametrize("name", ["manifest.json", "tensors.safetensors"])
def test_files_that_are_holes_are_refused(name, tmp_path):
    save(np.arange(3.0), tmp_path / "m")
    with (tmp_path / "m" / name).open("r+b") as file:
        file.truncate(300 << 30)
    if name != "manifest.json":
        reseal_size(tmp_path / "m", name, 300 << 30)
    with pytest.raises(ModelError, match="it is refused"):
        load(tmp_path / "m")


def reseal_size(folder, name, size):
    """Put a file's size into the manifest, and the digest right."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name]["bytes"] = size
    text = json.dumps({**manifest, "sha256": "0" * 64})
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(text.replace("0" * 64, digest, 1))
