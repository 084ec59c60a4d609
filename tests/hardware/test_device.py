"""Opening a device: this host's CPU, and FAKE GPUs through a stand-in for torch."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from escherlib.errors import UserError
from escherlib.files import ROOT, sha256_text
from escherlib.hardware import device as room
from escherlib.hardware.identify import DeviceFacts, Identification
from tests.hardware import fake_nvml
from tests.hardware.fake_torch import MI300X_BYTES, V100_BYTES, h200, props, torch_with

CPU = DeviceFacts(
    kind="cpu", name="AMD EPYC 9654", vendor="AMD", cpu_flags=frozenset({"avx512_bf16", "avx512f"})
)
NVIDIA = DeviceFacts(kind="gpu", vendor="NVIDIA", pci_id="10de:2335", bdf="0000:c1:00.0")


@pytest.fixture
def host(monkeypatch):
    """host(torch, gpus found in sysfs, CPU, NVML options) → open_device on that host."""

    def install(torch, present=(), cpu=CPU, **nvml):
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml.make(**nvml))
        monkeypatch.setattr(room, "probe_devices", lambda **options: [*present, cpu])
        monkeypatch.setattr(room, "probe_cpu", lambda: cpu)
        return room.open_device

    return install


def test_an_h200(host):
    device = host(torch_with(h200()), [NVIDIA])("auto")
    assert (device.kind, device.stack, device.torch_device, device.index) == ("gpu", "cuda", "cuda:0", 0)
    assert (device.profile.id, device.identification.how, device.pci_id) == (
        "h200_sxm",
        "pci id",
        "10de:2335",
    )
    assert (device.arch, device.compute_units, device.peak_dtype, device.native_bf16) == (
        "sm_90",
        132,
        "bf16",
        True,
    )
    assert device.llc_bytes == device.l2_bytes == 62_914_560  # no cache behind the L2: what the driver says
    assert device.smi_key == fake_nvml.UUID and device.bdf == "0000:c1:00.0"


def test_what_is_written_holds_no_identity(host):
    device = host(torch_with(h200()), [NVIDIA])("h200")
    written = json.dumps(device.to_json(), allow_nan=False)
    for text in (written, repr(device)):
        assert fake_nvml.UUID not in text and "c1:00" not in text
    found = device.to_json()
    assert (found["asked"], found["profile"], found["withheld"], found["how"]) == (
        "h200",
        "h200_sxm",
        [],
        "pci id",
    )
    assert found["sha"] == sha256_text(sha256_text(fake_nvml.UUID)) and found["threads"] is None


def test_the_hash_follows_the_card_not_its_place(host):
    other = "00000000-fa4e-fa4e-fa4e-000000000002"
    two = [h200(bus=0x05, uuid=other), h200()]
    first = host(torch_with(*two), [NVIDIA])("auto")
    alone = host(torch_with(two[0]), [NVIDIA])("auto")
    swapped = host(torch_with(*reversed(two)), [NVIDIA])("auto")
    assert first.sha == alone.sha != swapped.sha and first.smi_key == other


def test_an_amd_card_and_its_last_level_cache(host):
    facts = DeviceFacts(kind="gpu", vendor="AMD", pci_id="1002:74a1", bdf="0000:c1:00.0", pci_revision="00")
    card = props(
        "AMD Radeon Graphics", MI300X_BYTES, 304, gcn="gfx942:sramecc+:xnack-", l2=4 * 2**20, uuid="0" * 8
    )
    device = host(torch_with(card, hip="7.2"), [facts])("rocm")
    assert (device.stack, device.arch, device.profile.id) == ("rocm", "gfx942", "mi300x")
    assert device.llc_bytes == 256 * 2**20 and device.l2_bytes == 4 * 2**20
    assert device.smi_key is None and device.torch_device == "cuda:0"


def test_a_device_without_native_bf16_is_judged_on_fp16(host):
    card = props("Tesla V100-SXM2-16GB", V100_BYTES, 80, major=7, minor=0, l2=6 * 2**20)
    device = host(torch_with(card))("auto")
    assert (device.profile.id, device.native_bf16, device.peak_dtype) == ("v100_sxm2_16gb", False, "fp16")


def test_a_slice_and_an_unknown_card_have_no_profile(host):
    card = props("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * 2**30, 16)
    device = host(torch_with(card))("cuda")
    assert device.profile is None and device.to_json()["notes"] and device.llc_bytes == card.L2_cache_size
    device = host(torch_with(props("NVIDIA Invented 1", 2**34, 10, major=8, minor=6)))("auto")
    assert device.profile is None and device.native_bf16


def test_an_older_torch_without_addresses_still_opens(host):
    card = h200()
    del card.pci_bus_id
    device = host(torch_with(card), [NVIDIA])("auto")
    assert device.bdf is None and device.profile.id == "h200_sxm" and device.pci_id is None


def test_a_raised_override_is_noted(host, monkeypatch):
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "9.4.2")
    card = props("AMD Instinct MI300X", MI300X_BYTES, 304, gcn="gfx942")
    notes = host(torch_with(card, hip="7.2"))("auto").to_json()["notes"]
    assert any("the architecture is a claim" in note for note in notes)


@pytest.mark.parametrize(
    "torch, spec, said",
    [
        (torch_with(cuda=None), "auto", "built for CPUs only"),
        (torch_with(cuda=None), "h200", "built for CPUs only"),
        (
            torch_with(broken="CUDA initialization: The NVIDIA driver is too old.\nmore"),
            "cuda",
            "driver is too old",
        ),
        (torch_with(), "auto", "finds no usable driver"),
        (
            torch_with(h200(), lost="CUDA error: all CUDA-capable devices are busy\nmore"),
            "auto",
            "does not answer",
        ),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_said_in_one_line(host, torch, spec, said):
    with pytest.raises(UserError, match=said) as error:
        host(torch, [replace(NVIDIA, name="NVIDIA H200")])(spec)
    text = str(error.value)
    assert "\n" not in text and text.startswith(f"DEVICE={spec}: ") and "use DEVICE=cpu" in text


def test_hidden_gpus_are_named_as_the_reason(host, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES hides every GPU"):
        host(torch_with(), [replace(NVIDIA, name="NVIDIA H200")])("auto")


def test_a_display_adapter_does_not_keep_a_host_from_its_cpu(host):
    adapter = DeviceFacts(kind="gpu", vendor="AMD", name="Raphael", pci_id="1002:164e", bdf="0000:0a:00.0")
    device = host(torch_with(cuda=None), [adapter])("auto")
    assert device.kind == "cpu" and any("left out: Raphael" in note for note in device.identification.notes)
    assert (
        host(torch_with(cuda=None), [adapter])("cpu").identification.notes == device.identification.notes[:-1]
    )


def test_words_that_fit_nothing_here(host):
    opened = host(torch_with(h200()), [NVIDIA])
    for spec in ("mi355x", "rocm", "nonsense", ""):
        with pytest.raises(UserError, match="DEVICE="):
            opened(spec)


def test_the_cpu_of_a_gpu_host(host):
    device = host(torch_with(h200()), [NVIDIA])("cpu")
    assert (device.kind, device.index, device.torch_device, device.smi_key) == ("cpu", None, "cpu", None)
    assert device.peak_dtype == "bf16" and device.profile.id == "cpu_zen4" and device.threads >= 1


def test_a_cpu_without_bf16(host):
    plain = replace(CPU, name="Some Old CPU", cpu_flags=frozenset({"avx2"}))
    device = host(torch_with(cuda=None), cpu=plain)("auto")
    assert (device.peak_dtype, device.native_bf16, device.profile) == ("fp32", False, None)


@pytest.mark.parametrize(
    "facts, native",
    [
        (DeviceFacts(kind="gpu", arch="sm_80"), True),
        (DeviceFacts(kind="gpu", arch="sm_75"), False),
        (DeviceFacts(kind="gpu", arch="sm_120"), True),
        (DeviceFacts(kind="gpu", arch="gfx950"), True),
        (DeviceFacts(kind="gpu", arch="gfx1201"), True),
        (DeviceFacts(kind="gpu", arch="gfx906"), False),
        (DeviceFacts(kind="gpu"), False),
        (DeviceFacts(kind="cpu", cpu_flags=frozenset({"amx_bf16"})), True),
        (DeviceFacts(kind="cpu", cpu_flags=frozenset({"asimd", "bf16"})), True),
        (DeviceFacts(kind="cpu", cpu_flags=frozenset({"avx512f"})), False),
    ],
)
def test_native_bf16_by_capability(facts, native):
    assert room.native_bf16(None, facts) is native


def test_the_hash_of_a_cpu_ignores_a_few_megabytes():
    gib = 2**30
    assert room.cpu_sha("A", 8, 64 * gib) == room.cpu_sha("A", 8, 64 * gib - 50 * 2**20)
    assert (
        len(
            {room.cpu_sha(*host) for host in (("A", 8, gib), ("B", 8, gib), ("A", 4, gib), ("A", 8, 2 * gib))}
        )
        == 4
    )


def test_fewer_threads_are_a_choice(host, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert host(torch_with(cuda=None))("cpu").threads == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert host(torch_with(cuda=None))("cpu").threads >= 1


def test_this_host_s_cpu_with_the_real_torch():
    code = (
        "from escherlib.hardware.device import open_device; import torch, json; d = open_device('cpu'); "
        "assert torch.get_num_threads() == d.threads; print(json.dumps(d.to_json()))"
    )
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environ
    )
    assert found.stderr == "" and json.loads(found.stdout)["threads"] == 1


def test_devices_are_plain_values():
    assert (
        isinstance(room.Device.__dataclass_params__.frozen, bool) and room.Device.__dataclass_params__.frozen
    )
    assert Identification("x", "name").withheld == ()
