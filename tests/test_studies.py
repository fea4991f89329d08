"""Study files, networks and schedules of the two profiles, tables, figures and the page."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from osls._core.parameters import check_parameters
from osls.app.bench.draws import number_words, read_vectors
from osls.app.bench.evaluation import (
    TRAINING_GRID,
    aggregate,
    common_methods,
    comparable,
    mean_ranks,
    paper_figures,
    summarise,
    training_curves,
    win_rates,
)
from osls.app.bench.execute import run_config
from osls.app.bench.methods import METHODS, make_mixture, parameter_names, run_method
from osls.app.bench.network_plans import NETWORKS, PAPER_NETWORKS, NetworkPlan, NetworkSpec
from osls.app.bench.results_page import bench_page
from osls.app.bench.store import COLUMNS, Results, Store, read_results
from osls.app.bench.study import TABLES, load_study, parse_study, runs_of
from osls.app.bench.table import format_table, terminal_tables
from osls.app.cli import app
from osls.app.report.charts import DrawRow, ErrorBar, draw_chart, error_chart, rank_chart
from osls.datasets import DATASETS, OSLSProblem, simulate_osls
from osls.training.nets.resnet import ResNetFeatures, load_weights
from osls.training.trainer import Schedule, Trainer, schedule_for
from test_bench import FAST, content

STUDIES = sorted((Path(__file__).parents[1] / "benchmarks" / "studies").glob("*.yml"))


def problems_of(**changes) -> str:
    with pytest.raises(ValueError, match="study") as caught:
        parse_study(content(**changes))
    return str(caught.value)


class TestStudy:
    @pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
    def test_shipped_ones_are_sound(self, path):
        study = load_study(path)
        runs = runs_of(study)
        assert len(runs) >= 4
        assert study.title
        assert study.about
        for run in runs:
            config = json.loads(json.dumps(run.config))
            assert config["data"]["name"] in DATASETS
            assert config["method"]["name"] in METHODS
            assert set(config["method"].get("parameters", {})) <= set(
                parameter_names(config["method"]["name"])
            )
            method = METHODS[config["method"]["name"]]
            if method.adapter is not None:
                values = {**method.preset, **config["method"].get("parameters", {})}
                if "mixture" in values:
                    values["mixture"] = make_mixture(values["mixture"])
                check_parameters(method.adapter(**values))
            assert study.profile == "cpu" or "network" in config

    def test_there_is_one_for_every_table_of_the_paper(self):
        assert {load_study(path).paper for path in STUDIES} - {None} == set(TABLES)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"draw": 3}, "study: unknown key 'draw'; did you mean 'draws'?"),
            ({"profile": "paprr"}, "profile: unknown value 'paprr'; did you mean 'paper'?"),
            ({"paper": "mian"}, "paper: unknown table of the paper 'mian'; did you mean 'main'?"),
            ({"draws": 0}, "draws"),
            ({"methods": []}, "methods"),
            ({"data": ["digitz"]}, "data[0].name: unknown data set 'digitz'; did you mean 'digits'?"),
            (
                {"data": [{"name": "digits", "noval": 1}]},
                "data[0]: unknown key 'noval'; did you mean 'novel'?",
            ),
            (
                {"data": [{"name": "digits", "options": {"sise": 1}}]},
                "data[0]: options.sise: unknown option of 'digits'",
            ),
            (
                {"data": [{"name": "digits", "network": "resnet18-small"}]},
                "data[0].network: unknown network 'resnet18-small'; did you mean 'resnet18-small-images'?",
            ),
            ({"methods": ["k-pou"]}, "methods[0].name: unknown method 'k-pou'; did you mean 'k-pu'?"),
            (
                {"methods": ["pulse", {"name": "pulse", "parameters": {"objectve": "nnpu"}}]},
                "methods[1].parameters.objectve: unknown parameter of 'pulse' 'objectve'; "
                "did you mean 'objective'?",
            ),
            (
                {"methods": [{"name": "pulse", "parameters": {"objective": "nnpuu"}}]},
                "methods[0].parameters.objective: unknown objective 'nnpuu'; did you mean 'nnpu'?",
            ),
            (
                {"methods": [{"name": "pulse", "parameters": {"recipe": "papre"}}]},
                "methods[0].parameters.recipe: Input should be 'cross-fit', 'paper' or 'fine-tune'; "
                "got 'papre'",
            ),
            (
                {"methods": [{"name": "pulse", "parameters": {"discriminator": "treas"}}]},
                "methods[0].parameters.discriminator: unknown model 'treas'; did you mean 'trees'?",
            ),
            (
                {"methods": [{"name": "uan", "parameters": {"network": "mlp"}}]},
                "methods[0].parameters.network: unknown model 'mlp'; did you mean 'mlp-64-64'?",
            ),
            (
                {"methods": [{"name": "pulse", "parameters": {"mixture": {"name": "bbe", "dleta": 1}}}]},
                "methods[0].parameters.mixture: unknown parameter of 'bbe' 'dleta'; did you mean 'delta'?",
            ),
            (
                {"methods": [{"name": "k-pu", "parameters": {"random_state": 1}}]},
                "methods[0].parameters.random_state: unknown parameter",
            ),
            ({"methods": [{"name": "k-pu", "grid": {"gama": [1]}}]}, "methods[0].parameters.gama"),
            ({"defaults": {"max_stps": 3}}, "defaults.max_stps: unknown parameter of the methods here"),
            ({"networks": {"mine": {"body": "resnet19"}}}, "networks.mine.body: unknown value 'resnet19'"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_path(self, changes, message):
        assert message in problems_of(**changes)

    def test_several_problems_are_all_named(self):
        assert len(problems_of(data=["digitz"], methods=["puls"]).splitlines()) == 2

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("name: a\nname: b\n", "line 2: the key 'name' is there twice"),
            ("name: [", "line 1"),
            ("- a\n", "a study is a mapping"),
            ("name: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ],
    )
    def test_yaml_without_surprises(self, text, message, tmp_path):
        (tmp_path / "s.yml").write_text(text)
        with pytest.raises(ValueError, match=re.escape(message)):
            load_study(tmp_path / "s.yml")

    def test_runs_are_the_product_of_data_settings_methods_and_draws(self):
        data = [{"name": "digits", "settings": [{"novel": 1}, {"novel": [8], "label": "eight"}]}]
        study = parse_study(content(data=data, methods=["pulse", FAST], draws=[4, 7]))
        runs = runs_of(study)
        assert len(runs) == 8
        assert {(c.setting, c.draw) for c in runs} == {(s, d) for s in ("novel=1", "eight") for d in (4, 7)}
        assert len({c.key for c in runs}) == 8

    def test_a_grid_is_every_combination(self):
        method = {"name": "uan", "label": "UAN", "grid": {"align": [True, False], "threshold": [0.1, 0.2]}}
        runs = runs_of(parse_study(content(methods=[method], draws=1)))
        assert [c.method for c in runs][:2] == [
            "UAN align=True threshold=0.1",
            "UAN align=True threshold=0.2",
        ]
        assert runs[3].config["method"]["parameters"] == {"align": False, "threshold": 0.2}

    def test_same_run_twice_and_same_name_twice_are_errors(self):
        with pytest.raises(ValueError, match="are the same run; drop one"):
            runs_of(parse_study(content(methods=["pulse", {"name": "pulse", "label": "again"}])))
        other = {"name": "pulse", "parameters": {"rounds": 1}}
        with pytest.raises(ValueError, match="give one of them a label"):
            runs_of(parse_study(content(methods=["pulse", other])))

    def test_labels_do_not_change_the_identity_but_parameters_and_networks_do(self):
        def key(**method):
            return runs_of(parse_study(content(methods=[{"name": "k-pu"} | method])))[0].key

        assert key() == key(label="other name", paper="x")
        assert key() != key(parameters={"warm_start": 0.2})
        small, large = (
            runs_of(
                parse_study(
                    content(
                        networks={"mine": {"body": "mlp", "width": width}},
                        data=[{"name": "digits", "network": "mine"}],
                    )
                )
            )[0].key
            for width in (8, 16)
        )
        assert small != large

    def test_numbers_that_yaml_reads_as_text_are_put_right(self):
        runs = runs_of(parse_study(content(methods=[{"name": "k-pu", "parameters": {"warm_start": "1e-2"}}])))
        assert runs[0].config["method"]["parameters"] == {"warm_start": 0.01}

    def test_a_models_network_is_written_out_and_trained(self):
        parameters = {"discriminator": "mine", "source_classifier": "linear", "n_folds": 2, "rounds": 1}
        parameters |= {"max_steps": 2, "n_bootstrap": 2, "mixture": {"name": "bbe", "delta": 0.2}}
        study = content(
            networks={"mine": {"body": "mlp", "width": 8}},
            methods=[{"name": "pulse", "parameters": parameters}],
            draws=1,
        )
        (run,) = runs_of(parse_study(study))
        written = run.config["method"]["parameters"]
        assert written["discriminator"]["body"] == "mlp"
        assert written["discriminator"]["width"] == 8
        assert written["source_classifier"] == "linear"
        row = run_config(run.config)
        assert row["error"] is None
        assert 0 <= row["novel_estimate"] <= 1

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("dedpool", "unknown mixture 'dedpool'; did you mean 'dedpul'?"),
            ({"name": "bbe", "detla": 0.1}, "unknown parameter of 'bbe' 'detla'; did you mean 'delta'?"),
            ({"delta": 0.1}, "unknown mixture None. Known: bbe, dedpul, elkan-noto, regroup, subsample."),
        ],
    )
    def test_mixtures_are_checked(self, value, message):
        with pytest.raises(ValueError, match="unknown") as caught:
            make_mixture(value)
        assert str(caught.value).startswith(message)

    def test_mixtures_take_their_parameters(self):
        assert make_mixture({"name": "bbe", "delta": 0.2}).delta == 0.2
        assert type(make_mixture("dedpul")).__name__ == "DEDPUL"

    def test_keys_that_are_no_names_are_refused(self, tmp_path):
        (tmp_path / "s.yml").write_text("? [a, b]\n: 1\n")
        with pytest.raises(ValueError, match=r"s\.yml, line 1: found unhashable key"):
            load_study(tmp_path / "s.yml")

    def test_defaults_reach_the_methods_that_have_them(self):
        study = parse_study(content(methods=["k-pu", "uan"], defaults={"n_folds": 2, "max_steps": 9}))
        parameters = {c.method: c.config["method"]["parameters"] for c in runs_of(study)}
        assert parameters == {"k-pu": {"n_folds": 2, "max_steps": 9}, "uan": {"max_steps": 9}}


def images(size: int = 16, n: int = 120) -> OSLSProblem:
    """Four classes of tiny noisy pictures, one novel."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), n // 4)
    X = rng.integers(0, 100, size=(n, size, size, 3), dtype=np.uint8)
    for c in range(4):
        X[y == c, 4 * c : 4 * c + 4] += 100
    return simulate_osls(X, y, novel=[3], random_state=0)


class TestPaperProfile:
    @pytest.mark.parametrize("method", ["pulse-paper", "source-only", "domain-disc", "k-pu", "backprop-oda"])
    def test_its_network_trains_on_images(self, method):
        """Two steps of ResNet-18 by SGD for every model of a method."""
        plan = NetworkPlan(NETWORKS["resnet18-small-images"].model_copy(update={"width": 8}))
        parameters = {"max_steps": 2} | ({} if method in ("pulse-paper", "backprop-oda") else {"n_folds": 2})
        answers = run_method(method, images(), seed=0, parameters=parameters, network=plan)
        assert answers.target_marginal.sum() == pytest.approx(1)
        assert len(answers.target_labels) == len(images().y_target)

    def test_resnet50_and_its_large_stem(self):
        plan = NetworkPlan(NETWORKS["resnet50-medical"].model_copy(update={"width": 4, "weights": None}))
        network = plan((3, 32, 32), 5)
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
        assert plan((3, 32, 32)).out_features == 4 * 4 * 8

    @pytest.mark.parametrize(("depth", "millions"), [(18, 11.2), (50, 23.5)])
    def test_sizes_are_the_published_ones(self, depth, millions):
        count = sum(p.numel() for p in ResNetFeatures(depth, 3).parameters())
        assert count / 1e6 == pytest.approx(millions, abs=0.05)

    def test_schedules_are_the_papers(self):
        cifar = NetworkPlan(NETWORKS["resnet18-small-images"]).schedule(40_000, None)
        rate = {"decay": False, "optimizer": "sgd", "decay_every": 70 * 200, "gamma": 0.1}
        assert cifar == Schedule(200 * 200, 200, 0.1, 5e-4, **rate, epochs=200, decay_epochs=70)
        medical = NetworkPlan(NETWORKS["resnet50-medical"]).schedule(3200, None)
        assert (medical.decay_every, medical.gamma, medical.learning_rate) == (100, 0.96, 1e-4)
        text = NetworkPlan(NETWORKS["text-cnn"]).schedule(2000, None)
        assert (text.steps, text.optimizer, text.decay, text.decay_every) == (1200, "adam", False, None)
        assert NetworkPlan(NETWORKS["mlp-64-64"]).schedule(2000, None).steps == 400
        assert set(PAPER_NETWORKS) <= set(DATASETS)
        assert set(PAPER_NETWORKS.values()) == set(NETWORKS)

    def test_sgd_decays_in_steps_and_the_default_is_untouched(self):
        network = torch.nn.Linear(1, 1)
        rates = []
        schedule = Schedule(6, 1, 0.1, 0.0, decay=False, optimizer="sgd", decay_every=2)
        trainer = Trainer(network, schedule)
        for _ in range(6):
            trainer.run(lambda: network(torch.ones(1, 1)).sum(), 1)
            rates.append(trainer._optimizer.param_groups[0]["lr"])
        np.testing.assert_allclose(rates, [0.1, 0.01, 0.01, 0.001, 0.001, 0.0001])
        assert isinstance(trainer._optimizer, torch.optim.SGD)
        usual = Trainer(network, Schedule(6, 1))
        assert isinstance(usual._optimizer, torch.optim.AdamW)
        assert isinstance(usual._scheduler, torch.optim.lr_scheduler.OneCycleLR)
        assert schedule_for(None, 5000) == Schedule.for_rows(5000)
        assert schedule_for(NetworkPlan(NetworkSpec(body="mlp")), 5000) == Schedule.for_rows(5000)

    @pytest.mark.parametrize("ending", ["pth", "safetensors"])
    def test_given_weights_are_loaded_without_their_head(self, ending, tmp_path):
        from safetensors.torch import save_file

        torch.manual_seed(1)
        given = ResNetFeatures(18, 3, "small", 4)
        state = {f"module.{k}": v for k, v in given.state_dict().items()} | {
            "module.fc.weight": torch.ones(3)
        }
        path = tmp_path / f"weights.{ending}"
        save_file(state, path) if ending == "safetensors" else torch.save({"state_dict": state}, path)
        spec = NetworkSpec(body="resnet18", stem="small", width=4, weights=str(path))
        body = NetworkPlan(spec)((3, 8, 8))
        for mine, theirs in zip(body.state_dict().values(), given.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, theirs)
        with pytest.raises(ValueError, match=r"has no 'layer1.0.conv3"):
            load_weights(ResNetFeatures(50, 3, "small", 4), path)
        with pytest.raises(FileNotFoundError, match="do not exist"):
            load_weights(body, tmp_path / "none.pth")

    def test_other_depths_are_refused(self):
        with pytest.raises(ValueError, match="depth must be 18 or 50; got 34"):
            ResNetFeatures(34, 3)

    def test_a_text_network_without_vectors_is_refused(self):
        with pytest.raises(ValueError, match="'text-cnn' needs the vectors of its words"):
            NetworkPlan(NETWORKS["text-cnn"])((160,), 3)

    def test_images_are_asked_for_by_name(self):
        with pytest.raises(ValueError, match="'resnet18' is for images"):
            NetworkPlan(NETWORKS["resnet18-small-images"])((64,), 3)


class TestText:
    @pytest.fixture
    def glove(self, tmp_path):
        lines = ["the 1 0 0", "ball 0 1 0", "\u00e9t\u00e9 9 9 9"]
        (tmp_path / "glove.txt").write_text("\n".join(lines), encoding="utf-8")
        return str(tmp_path / "glove.txt")

    def test_vectors_of_known_words_and_small_ones_for_others(self, glove):
        vectors = read_vectors(glove, ["ball", "unheard", "the"])
        np.testing.assert_array_equal(vectors[[0, 1, 3]], [[0, 0, 0], [0, 1, 0], [1, 0, 0]])
        assert 0 < np.abs(vectors[2]).max() < 1
        assert read_vectors("random", ["a"]).shape == (2, 100)

    def test_missing_vectors_say_what_to_download(self):
        with pytest.raises(FileNotFoundError, match=r"glove\.6B\.zip"):
            read_vectors("glove.no-such.txt", ["a"])

    def test_a_file_of_something_else_is_refused(self, tmp_path):
        (tmp_path / "x.txt").write_text("a 1 2\nb 1\n")
        with pytest.raises(ValueError, match="not a GloVe file"):
            read_vectors(str(tmp_path / "x.txt"), ["a", "b"])

    @pytest.mark.parametrize("method", ["pulse-paper", "backprop-oda"])
    def test_the_text_network_reads_word_numbers(self, method, glove):
        """Words must reach the embedding as they are: a method that scaled its columns would crash."""
        rng = np.random.default_rng(0)
        texts = [" ".join(rng.choice(["the", "ball", "net", "goal"], 160)) for _ in range(80)]
        rows, words = number_words(texts, max_length=160)
        problem = simulate_osls(rows, np.arange(80) % 4, novel=[3], random_state=0)
        plan = NetworkPlan(NETWORKS["text-cnn"], read_vectors(glove, words))
        answers = run_method(method, problem, seed=0, parameters={"max_steps": 2}, network=plan)
        assert answers.target_marginal.sum() == pytest.approx(1)

    def test_data_without_texts_is_an_error_of_the_run(self):
        study = parse_study(content(data=[{"name": "digits", "network": "text-cnn"}], draws=1))
        assert "'digits' is none of newsgroups" in run_config(runs_of(study)[0].config)["error"]


def row(method: str, draw: int, acc: float, *, data: str = "d", name: str = "pulse", **more) -> dict:
    config = json.dumps({"method": {"name": name}})
    base = dict.fromkeys(COLUMNS) | {"key": f"{data}{method}{draw}", "data": data, "setting": ""}
    # A commit that no checkout has: nothing can be said of whether the method has changed since.
    base |= {"commit": "0" * 40}
    values = {"acc_all": acc, "mpe_novel": 1 - acc, "seconds": 1.0, "n_source": 10, "n_target": 20, "k": 2}
    return base | {"method": method, "draw": draw, "config": config, "novel_true": 0.2} | values | more


ROWS = [
    row("a", 0, 0.8, paper="main/cifar10//pulse"),
    row("a", 1, 0.6, paper="main/cifar10//pulse"),
    row("b", 0, 0.5),
    row("b", 1, 0.5, error="Boom: no"),
    row("knows", 0, 0.9, name="oracle"),
    row("knows", 1, 0.9, name="oracle"),
]


class TestTables:
    def test_mean_spread_worst_best_regret_and_paper(self):
        (group,) = summarise(ROWS)
        a, b, oracle = group.lines
        stat = a.stats["acc_all"]
        assert (stat.mean, stat.worst, stat.paper) == (pytest.approx(0.7), 0.6, 0.861)
        assert stat.std == pytest.approx(np.sqrt(0.02))
        assert stat.best
        assert not b.stats["acc_all"].best
        assert not oracle.stats["acc_all"].best
        assert a.stats["regret"].mean == pytest.approx(0.2)
        assert a.stats["mpe_novel"].worst == pytest.approx(0.4)
        assert (b.draws, b.failed, b.stats["acc_all"].std) == (1, 1, None)

    def test_markdown(self):
        text = format_table(summarise(ROWS), "markdown", ["acc_all", "mpe_novel"])
        assert "| Method | Acc (all) | paper | MPE (novel) | paper | Draws |" in text
        assert "| a | **0.700** ± 0.141 (0.600) | 0.861 | **0.300** ± 0.141 (0.400) | 0.008 | 2 |" in text
        assert "| b | 0.500 | - | 0.500 | - | 1 (+1 failed) |" in text

    def test_latex_is_escaped(self):
        rows = [row("50 % of_it & more", 0, 0.5), row("x", 0, 0.4)]
        text = format_table(summarise(rows), "latex", ["acc_all"])
        assert r"50 \% of\_it \& more & \textbf{0.500} & 1 \\" in text
        assert text.count("{") == text.count("}")

    def test_csv_has_numbers(self):
        lines = list(csv.DictReader(io.StringIO(format_table(summarise(ROWS), "csv"))))
        assert float(lines[0]["acc_all_mean"]) == pytest.approx(0.7)
        assert float(lines[0]["acc_all_paper"]) == 0.861
        assert lines[1]["acc_all_std"] == ""
        assert lines[1]["failed"] == "1"

    def test_what_a_data_set_or_a_method_lacks_is_left_out(self):
        rows = [
            row("a", 0, 0.8),
            row("b", 0, 0.5, mpe_novel=None),
            row("a", 0, 0.7, data="e", mpe_novel=None),
        ]
        text = format_table(summarise(rows), "markdown", ["acc_all", "mpe_novel"])
        assert "| b | 0.500 | - | 1 |" in text
        assert text.count("MPE (novel)") == 1
        lines = list(csv.DictReader(io.StringIO(format_table(summarise(rows), "csv", ["mpe_novel"]))))
        assert "acc_all_mean" not in lines[0]
        assert [line["mpe_novel_mean"] == "" for line in lines] == [False, True, True]

    def test_unknown_formats_and_metrics_are_named(self):
        with pytest.raises(ValueError, match="did you mean 'markdown'"):
            format_table(summarise(ROWS), "markdwn")
        with pytest.raises(ValueError, match="did you mean 'acc_all'"):
            format_table(summarise(ROWS), "csv", ["ac_all"])

    def test_terminal(self):
        (table,) = terminal_tables(summarise(ROWS))
        assert table.row_count == 3

    def test_paper_has_its_figures(self):
        assert paper_figures("main", "breakhis", "", "pulse")["acc_known"] == 0.961
        assert paper_figures("novel-fraction", "newsgroups", "12", "pulse") == {
            "acc_all": 0.7573,
            "mpe_novel": 0.179,
        }
        assert paper_figures("osda", "cifar10", "", "dance")["acc_best_threshold"] == 0.756
        assert paper_figures(None, "cifar10", "", "pulse") == {}


MANY = [
    row(method, draw, 0.9 - 0.1 * place + 0.01 * draw, data=f"d{i}")
    for i in range(5)
    for place, method in enumerate(("first", "second", "third"))
    for draw in range(2)
]


class TestComparison:
    def test_ranks_and_critical_difference(self):
        ranks = mean_ranks(summarise(MANY), "acc_all")
        assert ranks.methods == ["first", "second", "third"]
        assert ranks.ranks == [1, 2, 3]
        # Demsar (2006), table 5: q_0.05 is 2.343 for three methods.
        assert ranks.difference == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 5)), abs=2e-3)
        assert ranks.p_value < 0.01
        assert mean_ranks(summarise(MANY[:12]), "acc_all") is None

    def test_ties_share_a_rank(self):
        rows = [row(m, 0, a, data=f"d{i}") for i in range(4) for m, a in (("a", 0.5), ("b", 0.5), ("c", 0.1))]
        assert mean_ranks(summarise(rows), "acc_all").ranks == [1.5, 1.5, 3]

    def test_aggregate_is_the_mean_error_over_data_sets(self):
        first = aggregate(summarise(MANY), "acc_all")[0]
        assert first.mean == pytest.approx(0.095)
        # Each data set's std is 0.01 / sqrt(2); that of the mean over five is less by sqrt(5).
        assert first.std == pytest.approx(0.01 / np.sqrt(2) / np.sqrt(5))
        assert first.paper is None

    def test_a_method_without_the_figure_somewhere_is_not_averaged(self):
        rows = [r | ({"mpe_novel": None} if r["method"] == "third" else {}) for r in MANY]
        assert [one.method for one in aggregate(summarise(rows), "mpe_novel")] == ["first", "second"]
        assert len(aggregate(summarise(rows), "acc_all")) == 3

    def test_without_common_draws_nobody_wins(self):
        rows = [row("a", 0, 0.8), row("b", 1, 0.5)]
        assert win_rates(rows, "acc_all", ["a", "b"]) is None
        assert win_rates(rows, "acc_all", ["a"]) is None

    def test_wins_count_draws_and_halves(self):
        wins = win_rates(MANY, "mpe_novel", ["first", "third"])
        np.testing.assert_array_equal(wins.rates, [[0.5, 1], [0, 0.5]])
        assert wins.draws == 10

    def test_methods_that_failed_somewhere_and_the_oracle_are_left_out(self):
        rows = [
            *MANY,
            row("partial", 0, 0.5, data="d0"),
            *(row("o", 0, 1.0, data=f"d{i}", name="oracle") for i in range(5)),
        ]
        assert common_methods(summarise(rows)) == ["first", "second", "third"]

    def test_a_data_set_with_fewer_methods_does_not_hide_the_others(self):
        rows = [*MANY, row("first", 0, 0.5, data="costly"), row("second", 0, 0.4, data="costly")]
        assert [group.data for group in comparable(summarise(rows))] == [f"d{i}" for i in range(5)]
        page = bench_page([Results("s", rows, None)])
        assert "fewer methods ran there: costly" in page
        # With one data set on which all three ran, two methods on both say more.
        rows = rows[:6] + rows[-2:]
        assert len(comparable(summarise(rows))) == 2

    def test_training_curves_are_averaged_over_draws(self):
        def history(*values):
            return json.dumps([{"step": "source"}] + [{"acc_all": v} for v in values])

        rows = [row("a", 0, 1, history=history(0, 0.5, 1.0)), row("a", 1, 1, history=history(0, 0, 0, 0, 0))]
        (curve,) = training_curves([*rows, row("b", 0, 1, history="[]")], "acc_all")
        assert curve.draws == 2
        np.testing.assert_allclose(curve.mean, TRAINING_GRID / 2, atol=1e-9)
        assert (curve.low >= 0).all()


HOSTILE = "<script>alert(1)</script>"


class _Checker(HTMLParser):
    VOID = ("meta", "img", "br", "line", "rect", "circle", "path", "polyline", "polygon")

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in ("src", "href") and value]
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


class TestPage:
    @pytest.fixture(scope="class")
    @classmethod
    def page(cls):
        history = json.dumps([{"acc_all": v, "mpe_novel": 1 - v} for v in (0.1, 0.5, 0.6)])
        rows = [r | {"history": history, "study": "s"} for r in MANY]
        rows.append(row(HOSTILE, 0, 0.4, data="d0", error=HOSTILE, traceback=HOSTILE))
        return bench_page([Results("s", rows, f"name: s\ntitle: 'My {HOSTILE}'\nabout: words\n")])

    def test_is_whole_and_loads_nothing(self, page):
        checker = _Checker()
        checker.feed(page)
        assert checker.open == []
        assert all(link.startswith("#") for link in checker.links)
        assert {link[1:] for link in checker.links} <= set(checker.ids)
        assert "default-src 'none'" in page

    def test_of_one_draw_speaks_of_no_spread(self, page):
        alone = bench_page([Results("s", [r for r in MANY if r["draw"] == 0], None)])
        assert "standard deviation" in page
        assert "standard\ndeviation" in page
        assert "One draw." in alone
        assert "standard\ndeviation of that mean" not in alone

    def test_writes_shares_as_english_does(self, page):
        assert re.search(r"\d% novel", page)
        assert not re.search(r"\d\s%", page)

    def test_has_every_figure(self, page):
        for words in (
            "All data sets",
            "Ranks",
            "Who beats whom",
            "During training",
            "Failed runs",
            "name: s",
        ):
            assert words in page
        # Two bars, two ranks, and two charts of draws and two of training a data set.
        titles = re.findall(r'<svg class="chart"[^>]*aria-label="([^"]+)"', page)
        assert len(titles) == 2 + 2 + 5 * 4

    def test_escapes_names(self, page):
        assert HOSTILE not in page
        assert "&lt;script&gt;alert(1)" in page

    def test_figures_without_data_are_left_out(self):
        rows = [
            row(method, draw, 0.8, data=data, mpe_novel=None)
            for data in ("d", "e")
            for draw, method in enumerate(("a", "b"))
        ]
        page = bench_page([Results("s", rows)])
        assert "Who beats whom" not in page
        assert "All data sets" in page
        assert "Acc (all)" in page
        charts = re.findall(r'<svg class="chart"[^>]*aria-label="([^"]+)"', page)
        assert len(charts) == 1 + 2
        assert not any("novel" in title for title in charts)

    def test_bars_without_a_spread_have_no_whisker(self):
        drawn = [str(error_chart("t", [ErrorBar("a", "m0", 0.1, spread, None)])) for spread in (0.02, None)]
        assert ["whisker" in one for one in drawn] == [True, False]

    def test_charts_escape_names(self):
        drawn = error_chart(HOSTILE, [ErrorBar(HOSTILE, "m0", 0.1, 0.02, 0.3)])
        drawn += draw_chart(HOSTILE, [DrawRow(HOSTILE, "m0", [0.1, 0.5], 0.2)], from_zero=True)
        drawn += rank_chart(HOSTILE, [(HOSTILE, "m0"), ("b", "m1")], [1.0, 2.0], 0.5)
        assert "<script" not in drawn
        assert "nan" not in drawn

    def test_results_are_read_in_any_form(self, tmp_path):
        Store(tmp_path / "one").write(ROWS)
        Store(tmp_path / "one").compact()
        Store(tmp_path / "two").write(ROWS[:2])
        (tmp_path / "two" / "study.yml").write_text("name: two")
        (file,) = read_results([tmp_path / "one" / "results.parquet"])
        assert (file.name, len(file.rows)) == ("one", 6)
        one, two = read_results([tmp_path])
        assert [(r.name, len(r.rows), r.study) for r in (one, two)] == [
            ("one", 6, None),
            ("two", 2, "name: two"),
        ]
        (tmp_path / "notes.txt").write_text("")
        with pytest.raises(ValueError, match=r"notes\.txt is neither a folder of results nor"):
            read_results([tmp_path / "notes.txt"])

    def test_commands_read_folders(self, tmp_path):
        recipes = STUDIES[0].parents[1] / "results" / "recipes"
        out = tmp_path / "page.html"
        result = CliRunner().invoke(
            app, ["bench", "page", str(recipes), "--out", str(out), "--title", "First"]
        )
        assert result.exit_code == 0, result.output
        assert "<h1>First</h1>" in out.read_text()
        (result,) = read_results([recipes])
        found = [r["acc_all"] for r in result.rows if (r["data"], r["method"]) == ("digits", "PULSE")]
        printed = CliRunner().invoke(app, ["bench", "table", str(recipes), "--metrics", "acc_all"]).output
        mean, spread, worst = np.mean(found), np.std(found, ddof=1), min(found)
        assert f"**{mean:.3f}** ± {spread:.3f} ({worst:.3f}) | 5 |" in printed

    def test_opens_offline_without_a_complaint(self, page, tmp_path):
        playwright = pytest.importorskip("playwright.sync_api")
        browser_path = next(
            (p for p in ("/usr/bin/chromium", "/usr/bin/google-chrome") if Path(p).exists()), None
        )
        if browser_path is None:
            pytest.skip("no browser here")
        (tmp_path / "page.html").write_text(page)
        said: list[str] = []
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            tab = browser.new_context(viewport={"width": 390, "height": 844}, offline=True).new_page()
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.goto(f"file://{tmp_path}/page.html")
            width = tab.evaluate("document.documentElement.scrollWidth")
            # On a phone each row is a card, without the headings that sort a table.
            tab.set_viewport_size({"width": 1280, "height": 844})
            tab.locator("thead button").first.click()
            ordered = tab.locator("th[aria-sort]").count()
            browser.close()
        assert said == []
        assert width == 390
        assert ordered == 1
