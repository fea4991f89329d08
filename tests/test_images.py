"""Augmentation, the convnets for small images, and contrastive pre-training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import osls
from osls.app.bench.draws import network_plan
from osls.app.bench.methods import run_method
from osls.app.bench.network_plans import HalfPrecision, NetworkPlan, NetworkSpec
from osls.baselines import BackpropODA
from osls.datasets import simulate_osls
from osls.metrics import accuracy
from osls.training.contrastive import nt_xent, pretrain
from osls.training.nets.augment import RandomShiftFlip, RandomView
from osls.training.nets.fast_convnet import FastConvFeatures, Patches
from osls.training.nets.resnet import ResNet9Features
from osls.training.trainer import Schedule, Trainer, seeded


@pytest.fixture
def ramp():
    """Every pixel of an image is different."""
    return torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).reshape(2, 3, 8, 8)


def striped(n, rng):
    """Images of three kinds: stripes across, down, and slanting, each with a phase and noise of its own."""
    kind, phase = rng.integers(3, size=n), rng.random((n, 1, 1)) * 2 * np.pi
    down, across = np.mgrid[0:16, 0:16][:, None] * 1.2
    wave = np.choose(kind[:, None, None], [down + phase, across + phase, (down + across) / 2 + phase])
    images = np.sin(wave)[:, None] + 0.2 * rng.normal(size=(n, 3, 16, 16))
    return images.astype(np.float32), kind


@pytest.fixture
def problem():
    X, kind = striped(900, np.random.default_rng(0))
    return simulate_osls(np.moveaxis(X, 1, 3), kind, novel=[2], source_fraction=(0.5, 0.5), random_state=0)


class TestAugmentation:
    def test_without_room_to_shift_an_image_or_its_mirror_comes_out(self, ramp):
        torch.manual_seed(0)
        layer = RandomShiftFlip(0)
        seen = {bool((out[0] == ramp[0]).all()): out for out in (layer(ramp) for _ in range(30))}
        assert set(seen) == {True, False}
        torch.testing.assert_close(seen[False][0], ramp[0].flip(2))

    def test_shifts_move_all_channels_together(self, ramp):
        torch.manual_seed(0)
        moved = torch.stack([RandomShiftFlip(2, flip=False)(ramp) for _ in range(50)])
        # In the middle nothing is mirrored: the step from pixel to pixel and channel to channel stays.
        inner = moved[..., 2:6, 2:6]
        assert (inner.diff(dim=-1) == 1).all()
        assert (inner.diff(dim=-2) == 8).all()
        assert (inner.diff(dim=2) == 64).all()
        shifts = (inner - ramp[..., 2:6, 2:6])[:, 0, 0, 0, 0]
        assert set(shifts.tolist()) <= {8 * dy + dx for dy in range(-2, 3) for dx in range(-2, 3)}
        assert len(set(shifts.tolist())) > 10

    @pytest.mark.parametrize(
        "layer", [RandomShiftFlip(2), ResNet9Features(3, width=2), FastConvFeatures(3, width=2)]
    )
    def test_prediction_is_not_augmented(self, layer, ramp):
        layer.eval()
        torch.testing.assert_close(layer(ramp), layer(ramp))

    def test_views_differ_and_keep_the_shape(self, ramp):
        torch.manual_seed(0)
        one, two = RandomView()(ramp), RandomView()(ramp)
        assert one.shape == ramp.shape
        assert (one - two).abs().max() > 1
        whole = RandomView(smallest=1.0, colour=0.0, gray=0.0)(ramp)
        for image, out in zip(ramp, whole, strict=True):
            assert min((out - image).abs().max(), (out - image.flip(2)).abs().max()) < 1e-3
        gray = RandomView(gray=1.0)(ramp)
        torch.testing.assert_close(gray[:, 0], gray[:, 2])


class TestHalfPrecision:
    def test_it_is_inside_only(self):
        with seeded(0):
            plain = FastConvFeatures(3, width=4, augment=False).eval()
        half = HalfPrecision(plain).eval()
        images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            features, wanted = half(images), plain(images)
        assert features.dtype == wanted.dtype == torch.float32
        off = float((features - wanted).abs().max() / wanted.abs().max())
        assert 0 < off < 0.05  # bfloat16 has eight bits of mantissa

    def test_a_network_learns_with_it(self, problem):
        network = NetworkPlan(NetworkSpec(body="fast-convnet", width=4, augment=False, half=True))
        model = osls.PULSE(
            recipe="fine-tune", source_classifier=network, discriminator=network, max_steps=60, random_state=0
        ).fit(**problem.training_data())
        assert accuracy(problem.y_target, model.target_labels_, -1).all > 0.9

    def test_it_is_for_images(self):
        with pytest.raises(ValidationError, match="half: the network 'mlp' has no use for it"):
            NetworkSpec(body="mlp", half=True)


class TestFastConvnet:
    @pytest.mark.parametrize("channels", [1, 3, 4])
    def test_patches_are_a_change_of_basis(self, channels):
        basis = Patches(channels).basis.flatten(1)
        torch.testing.assert_close(basis @ basis.T, torch.eye(4 * channels))

    def test_patches_come_out_whitened_with_both_signs(self):
        torch.manual_seed(0)
        x = torch.rand(64, 3, 8, 8).cumsum(dim=3)
        layer = Patches(3)
        layer(x)
        plain = layer.scale(torch.nn.functional.conv2d(x, layer.basis))
        torch.testing.assert_close(plain.std(dim=(0, 2, 3)), torch.ones(12), atol=0.01, rtol=0)
        out = layer(x)
        assert out.shape == (64, 24, 7, 7)
        # gelu(z) - gelu(-z) = z
        torch.testing.assert_close(out[:, :12] - out[:, 12:], plain)

    def test_convolutions_begin_as_the_identity(self):
        body = FastConvFeatures(1, width=8).body
        x = torch.rand(2, 8, 5, 5)
        torch.testing.assert_close(body[1][0](x), x)
        torch.testing.assert_close(body[2][0](x)[:, :8], x)

    def test_an_image_and_its_mirror_image_are_the_same(self):
        torch.manual_seed(0)
        x = torch.rand(3, 3, 16, 16)
        body = FastConvFeatures(3, width=4).eval()
        torch.testing.assert_close(body(x), body(x.flip(3)))
        plain = FastConvFeatures(3, width=4, augment=False).eval()
        assert (plain(x) - plain(x.flip(3))).abs().max() > 1e-3

    def test_pulse_by_fine_tuning(self, problem):
        network = NetworkPlan(NetworkSpec(body="fast-convnet", width=4, augment=False))
        model = osls.PULSE(
            recipe="fine-tune", source_classifier=network, discriminator=network, max_steps=60, random_state=0
        ).fit(**problem.training_data())
        assert accuracy(problem.y_target, model.target_labels_, -1).all > 0.9
        assert model.novel_prevalence_ == pytest.approx(problem.target_marginal[-1], abs=0.1)
        np.testing.assert_allclose(model.predict_proba(problem.X_target), model.target_proba_, atol=1e-5)

    def test_it_starts_where_the_source_classifier_ended(self, problem):
        """With no learning rate to speak of, the discriminator still knows the classes."""

        class Still(NetworkPlan):
            def schedule(self, n_rows, steps):
                return Schedule(10, 32, learning_rate=1e-12, weight_decay=0.0)

        network = NetworkPlan(NetworkSpec(body="fast-convnet", width=4, augment=False))
        still = Still(network.spec)
        model = osls.PULSE(
            recipe="fine-tune", source_classifier=network, discriminator=still, max_steps=60, random_state=0
        ).fit(**problem.training_data())
        among_known = model._predictor.discriminator.predict_proba(problem.X_target)[:, :-1].argmax(axis=1)
        known = problem.y_target >= 0
        assert np.mean(among_known[known] == problem.y_target[known]) > 0.9


class TestContrastive:
    def test_the_loss_by_hand(self):
        """Images a and b, views (e1, e2) and (e2, -e1), at a temperature of one half.

        Each view is at right angles to its partner. The other two are at 90 and 180 degrees for e1 and -e1,
        at 90 and 0 degrees for the two that are e2.
        """
        e1, e2 = torch.eye(2)
        found = nt_xent(torch.stack([e1, e2]), torch.stack([e2, -e1]), temperature=0.5)
        assert float(found) == pytest.approx((np.log(2 + np.exp(-2)) + np.log(2 + np.exp(2))) / 2)

    def test_features_tell_kinds_apart_that_nobody_labelled(self):
        from sklearn.linear_model import LogisticRegression

        X, kind = striped(600, np.random.default_rng(0))

        def score(body):
            with torch.no_grad():
                features = body.eval()(torch.from_numpy(X)).numpy()
            probe = LogisticRegression(max_iter=2000).fit(features[:60], kind[:60])
            return probe.score(features[60:], kind[60:])

        torch.manual_seed(0)
        body = ResNet9Features(3, width=4, augment=False)
        before, losses = score(body), []
        pretrain(body, X, epochs=8, batch_size=100, on_epoch=lambda epoch, loss: losses.append((epoch, loss)))
        assert [epoch for epoch, _ in losses] == list(range(1, 9))
        assert losses[-1][1] < losses[0][1] - 0.5
        assert score(body) > max(0.9, before)

    def test_tables_are_refused(self):
        with pytest.raises(ValueError, match=r"X must hold images.*\(5, 4\)"):
            pretrain(ResNet9Features(3), np.zeros((5, 4)))


class TestStudies:
    spec = NetworkSpec.model_validate(
        {"body": "resnet9", "width": 2, "pretrain": {"epochs": 1, "batch_size": 20}}
    )

    @pytest.fixture
    def problem(self):
        X, kind = striped(120, np.random.default_rng(0))
        return simulate_osls(np.moveaxis(X, 1, 3), kind, novel=[2], random_state=0)

    def test_weights_are_made_once_and_every_method_starts_from_them(self, problem, tmp_path, monkeypatch):
        monkeypatch.setenv("OSLS_CACHE", str(tmp_path))
        config = self.spec.model_dump(mode="json", exclude_none=True)
        plan = network_plan(config, {"name": "digits"}, problem)
        again = network_plan(config, {"name": "digits"}, problem)
        (file,) = (tmp_path / "pretrained").iterdir()
        assert plan == again
        assert plan.spec.weights == str(file)
        one, two = plan((3, 16, 16)), plan((3, 16, 16))
        for mine, theirs in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, theirs)
        answers = run_method("source-only", problem, seed=0, parameters={"max_steps": 2}, network=plan)
        assert len(answers.target_labels) == len(problem.y_target)

    @pytest.mark.parametrize("body", [ResNet9Features, FastConvFeatures])
    def test_a_method_with_a_body_of_ours_is_saved(self, problem, tmp_path, body):
        factories = {"body": lambda shape: body(shape[0], 2)}
        model = BackpropODA(network=factories["body"], max_steps=2, random_state=0)
        model.fit(**problem.training_data()).save(tmp_path / "model", factories=factories)
        found = osls.load(tmp_path / "model", factories=factories).predict_proba(problem.X_target)
        np.testing.assert_array_equal(found, model.predict_proba(problem.X_target))

    @pytest.mark.parametrize("change", [{"weights": "a.pth"}, {"body": "mlp"}])
    def test_only_images_and_a_network_without_weights_can_be_pre_trained(self, change):
        given = {"body": "resnet9", "pretrain": {}} | change
        with pytest.raises(ValidationError, match="pretrain is for networks of images"):
            NetworkSpec.model_validate(given)

    @pytest.mark.parametrize("body", ["resnet9", "fast-convnet"])
    def test_networks_learn_and_predict(self, body):
        X, kind = striped(300, np.random.default_rng(1))
        torch.manual_seed(0)
        network = NetworkPlan(NetworkSpec(body=body, width=4))((3, 16, 16), 3)
        rows, labels = torch.from_numpy(X), torch.from_numpy(kind)
        trainer = Trainer(network, Schedule(40, 100, 1e-2))
        batches = torch.randint(200, (40, 100))
        step = iter(batches)

        def loss():
            batch = next(step)
            return torch.nn.functional.cross_entropy(network(rows[batch]), labels[batch])

        trainer.run(loss, 40)
        with torch.no_grad():
            right = network.eval()(rows[200:]).argmax(dim=1) == labels[200:]
        assert right.float().mean() > 0.9
