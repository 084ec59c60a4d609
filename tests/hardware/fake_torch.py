"""A stand-in for torch on machines with FAKE GPUs: only what opening a device asks for."""

from types import SimpleNamespace

from tests.hardware import fake_nvml

MI300X_BYTES, H200_BYTES, V100_BYTES = 206_141_652_992, 150_100_000_000, 16_935_419_904


def props(name, memory, units, major=9, minor=0, gcn="", bus=0xC1, uuid=fake_nvml.UUID, l2=62_914_560):
    """Properties of one invented device."""
    return SimpleNamespace(
        name=name, total_memory=memory, multi_processor_count=units, major=major, minor=minor,
        gcnArchName=gcn, pci_domain_id=0, pci_bus_id=bus, pci_device_id=0, uuid=uuid, L2_cache_size=l2,
    )  # fmt: skip


def h200(**more):
    """An H200."""
    return props("NVIDIA H200", H200_BYTES, 132, **more)


def torch_with(*devices, cuda="13.0", hip=None, broken=None, lost=None):
    """A module like torch. `broken`: what initialising says; `lost`: what the first tensor says."""

    def properties(index):
        return devices[index]

    def available():
        if broken:
            import warnings

            warnings.warn(broken, UserWarning, stacklevel=1)
        return bool(devices) and not broken

    def zeros(*shape, device):
        if lost:
            raise RuntimeError(lost)
        return SimpleNamespace(add_=lambda value: SimpleNamespace(item=lambda: value))

    return SimpleNamespace(
        __version__="2.11.0+fake",
        version=SimpleNamespace(cuda=None if hip else cuda, hip=hip),
        cuda=SimpleNamespace(
            is_available=available, device_count=lambda: len(devices), get_device_properties=properties,
            set_device=lambda index: None,
        ),
        zeros=zeros,
        set_num_threads=lambda count: None,
        get_num_threads=lambda: 2,
    )  # fmt: skip
