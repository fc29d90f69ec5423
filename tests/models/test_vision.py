# SPDX-License-Identifier: Apache-2.0
"""timm, torchvision and diffusers: images."""
import math

import diffusers
import pytest
import timm
import timm.loss
import timm.optim
import timm.scheduler
import timm.utils
import torch
import torchvision
from compare import assert_same, check_forward, check_training, two
from torchvision.transforms import v2


def _images(size=32, rows=2):
    return torch.randn(rows, 3, size, size)


def _timm(name, **options):
    return lambda: timm.create_model(name, pretrained=False, num_classes=5, **options)


_SMALL_VIT = dict(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4)
TIMM = {
    "resnet": _timm("resnet10t"),
    "vit": _timm("vit_tiny_patch16_224", **_SMALL_VIT),
    "convnext": _timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    "swin": _timm("swin_tiny_patch4_window7_224", img_size=32, window_size=4, embed_dim=16, depths=(2, 2), num_heads=(2, 2)),
    "efficientnet": _timm("tinynet_e"),
}
VISION = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=5),
    "mobilenet": lambda: torchvision.models.mobilenet_v3_small(num_classes=5, dropout=0.0),
    "vit": lambda: torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=48, num_classes=5
    ),
}
MODELS = {f"timm-{name}": make for name, make in TIMM.items()} | {f"vision-{name}": make for name, make in VISION.items()}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())


def _quiet(model):
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, timm.layers.DropPath)):
            module.p = module.drop_prob = 0.0
    return model


@every_model
def test_model_computes(make):
    check_forward(make(), lambda one, images: one(images), _images(), rtol=1e-3, atol=1e-4)


@every_model
def test_model_trains(make):
    def loss_of(one, images, classes):
        return torch.nn.functional.cross_entropy(one(images), classes)

    # Rectifiers and maxima that fall on the other side change gradients by parts of a hundred: so they do on the CPU when
    # images change by 3e-7. Therefore one step, and no tighter.
    size = 32 if getattr(make(), "image_size", None) == 32 or hasattr(make(), "patch_embed") else 64
    check_training(_quiet(make()), loss_of, _images(size, 4), torch.tensor([0, 3, 1, 4]), steps=1, norm=0.1)


def test_channels_last_changes_nothing():
    here, there = two(TIMM["resnet"]().eval())
    images = _images()
    there = there.to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert_same(there(images.npu().to(memory_format=torch.channels_last)), here(images), rtol=1e-3, atol=1e-4)


def test_timm_trains_as_its_script_does():
    device = torch.device("npu")
    model = timm.create_model("resnet10t", num_classes=4).to(device)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-2)
    schedule, epochs = timm.scheduler.create_scheduler_v2(optimizer, num_epochs=2)
    average = timm.utils.ModelEmaV2(model)
    images, classes = _images(32, 4).to(device), torch.arange(4).to(device)
    losses = []
    for epoch in range(6):
        with torch.autocast("npu", torch.bfloat16):
            loss = timm.loss.LabelSmoothingCrossEntropy()(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(epoch)
        average.update(model)
        losses.append(loss.item())
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0]
    assert timm.utils.accuracy(model(images), classes, topk=(1,))[0].device.type == "npu"


def _boxes(rows):
    corners = torch.rand(rows, 2) * 20
    return torch.cat([corners, corners + torch.rand(rows, 2) * 10 + 1], 1)


def test_boxes_that_overlap_are_left_out():
    boxes, scores, groups = _boxes(60), torch.rand(60), torch.arange(60) % 3
    for call in (
        lambda b, s, g: torchvision.ops.nms(b, s, 0.3),
        lambda b, s, g: torchvision.ops.batched_nms(b, s, g, 0.3),
    ):
        wanted = call(boxes, scores, groups)
        got = call(boxes.npu(), scores.npu(), groups.npu())
        assert got.device.type == "npu" and 0 < len(wanted) < 60
        assert torch.equal(got.cpu(), wanted)


@pytest.mark.parametrize("name", ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"])
def test_regions_are_pooled_with_gradients(name):
    pool = getattr(torchvision.ops, name)
    features = torch.randn(2, 8, 32, 32)
    regions = torch.cat([torch.tensor([[0.0], [1], [1], [0]]), _boxes(4)], 1)

    def both(device):
        one = features.to(device).requires_grad_()
        pooled = pool(one, regions.to(device), 2, 0.5)
        (pooled * pooled).sum().backward()
        return [pooled.detach(), one.grad]

    assert_same(both("npu"), both("cpu"))


def test_deformed_convolution():
    def both(device):
        torch.manual_seed(3)
        image, weight = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
        offset, mask = torch.randn(1, 18, 6, 6), torch.rand(1, 9, 6, 6)
        image, weight, offset, mask = (one.to(device).requires_grad_() for one in (image, weight, offset, mask))
        out = torchvision.ops.deform_conv2d(image, offset, weight, mask=mask)
        out.square().sum().backward()
        return [out.detach(), image.grad, weight.grad, offset.grad, mask.grad]

    assert_same(both("npu"), both("cpu"), rtol=1e-3, atol=1e-3)


def test_detector_finds_and_trains():
    def make():
        torch.manual_seed(2)
        backbone = torchvision.models.resnet18(weights=None)
        backbone = torch.nn.Sequential(*list(backbone.children())[:-2])
        backbone.out_channels = 512
        return torchvision.models.detection.FasterRCNN(
            backbone,
            num_classes=3,
            min_size=64,
            max_size=64,
            rpn_anchor_generator=torchvision.models.detection.rpn.AnchorGenerator(((16, 32),), ((1.0,),)),
            box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], 3, 2),
            rpn_batch_size_per_image=512,  # all of them: which ones would be drawn differs
            box_batch_size_per_image=4096,
        )

    images = torch.rand(2, 3, 64, 64)
    there = make().npu().train()
    targets = [{"boxes": torch.tensor([[4.0, 4, 40, 40]]).npu(), "labels": torch.tensor([1]).npu()}] * 2
    losses = there(list(images.npu()), targets)
    total = sum(losses.values())
    total.backward()
    assert math.isfinite(total.item()) and set(losses) >= {"loss_classifier", "loss_rpn_box_reg"}
    here, there = two(make().eval())
    with torch.no_grad():
        wanted, got = here(list(images)), there(list(images.npu()))
    for one, other in zip(got, wanted):
        assert one["boxes"].device.type == "npu" and one["boxes"].shape == other["boxes"].shape
        torch.testing.assert_close(one["scores"].cpu(), other["scores"], rtol=1e-2, atol=1e-3)


def test_images_are_prepared_on_the_device():
    image = torch.randint(0, 256, (3, 40, 48), dtype=torch.uint8)
    steps = v2.Compose(
        [v2.Resize(32, antialias=True), v2.CenterCrop(24), v2.ToDtype(torch.float32, scale=True),
         v2.Normalize([0.5] * 3, [0.25] * 3), v2.Pad(2), v2.Grayscale(3)]
    )
    # One of 255 levels: torchvision resizes bytes in another way where the device is not the CPU.
    assert_same(steps(image.npu()), steps(image), rtol=1e-3, atol=0.017)


def _unet():
    return diffusers.UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=4, attention_head_dim=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )


def test_unet_computes_and_trains():
    times = torch.tensor([3, 500])
    check_forward(_unet(), lambda one, noise, time: one(noise, time).sample, _images(16), times, rtol=1e-3, atol=1e-4)
    check_training(_unet(), lambda one, noise, time: one(noise, time).sample.square().mean(), _images(16), times,
                   rtol=5e-3, atol=1e-4)


def test_conditioned_unet_computes():
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=4, attention_head_dim=8, cross_attention_dim=16,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    text = torch.randn(2, 5, 16)
    check_forward(model, lambda one, noise, state: one(noise, 7, state).sample, torch.randn(2, 4, 8, 8), text,
                  rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["DDPMScheduler", "DDIMScheduler", "EulerDiscreteScheduler", "DPMSolverMultistepScheduler"])
def test_noise_goes_step_by_step(name):
    here, there = two(_unet().eval())
    start = _images(16)

    def steps(model, device):
        scheduler = getattr(diffusers, name)(num_train_timesteps=50)
        scheduler.set_timesteps(3, device=device)
        image = (start * scheduler.init_noise_sigma).to(device)
        generator = torch.Generator("cpu").manual_seed(7)  # pipelines of diffusers draw so, to have the same everywhere
        options = {"generator": generator} if name == "DDPMScheduler" else {}
        with torch.no_grad():
            for time in scheduler.timesteps:
                noise = model(scheduler.scale_model_input(image, time), time).sample
                image = scheduler.step(noise, time, image, **options).prev_sample
        return image

    assert_same(steps(there, "npu"), steps(here, "cpu"), rtol=1e-3, atol=1e-3)


def test_pipeline_draws_an_image():
    pipeline = diffusers.DDPMPipeline(unet=_unet(), scheduler=diffusers.DDPMScheduler(num_train_timesteps=10)).to("npu")
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline(batch_size=1, num_inference_steps=2, generator=torch.Generator("npu").manual_seed(1)).images
    again = pipeline(batch_size=1, num_inference_steps=2, generator=torch.Generator("npu").manual_seed(1)).images
    assert images[0].size == (16, 16) and images[0].tobytes() == again[0].tobytes()


def test_autoencoder_computes():
    model = diffusers.AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=2,
                                    down_block_types=("DownEncoderBlock2D",) * 2,
                                    up_block_types=("UpDecoderBlock2D",) * 2)
    check_forward(model, lambda one, images: one(images).sample, _images(16), rtol=1e-3, atol=1e-4)
