"""GPUs and their driver: what nvidia-smi says, else what the PCI bus shows."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.proc import ProcessError, Runner
from sglforge.host.facts import Gpu

TIMEOUT_S = 10.0
NVIDIA = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")
FIELDS = ("name", "compute_cap", "memory.total", "pci.bus_id", "driver_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """The GPUs, the driver's version, and how both were read; ``driver_absent``: there is no driver."""

    gpus: tuple[Gpu, ...] | None
    gpus_source: str
    driver: str | None
    driver_source: str
    driver_absent: bool = False


def read(run: Runner, root: Path = Path("/")) -> GpuReading:
    """Return the GPUs of this machine; ``root`` holds sys/."""
    program = shutil.which("nvidia-smi")
    why = "nvidia-smi is not on PATH"
    if program:
        query = f"--query-gpu={','.join(FIELDS)}"
        try:
            done = run((program, query, "--format=csv,noheader,nounits"), timeout_s=TIMEOUT_S, check=False)
        except ProcessError as error:
            why = error.message
        else:
            if done.returncode == 0 and (rows := [line for line in done.stdout.splitlines() if line.strip()]):
                return _from_rows(rows, root, program)
            why = next(iter((done.stdout + done.stderr).strip().splitlines()), f"status {done.returncode}")
            why = f"nvidia-smi: {why}"
    return _from_bus(root, why)


def _from_rows(rows: list[str], root: Path, program: str) -> GpuReading:
    gpus, driver = [], None
    for row in rows:
        cells = [_known(cell) for cell in row.split(",")]
        cells += [None] * (len(FIELDS) - len(cells))
        name, cc, memory, bus, driver = cells[: len(FIELDS)]
        address = _sysfs_address(bus) if bus else None
        gpus.append(
            Gpu(
                name=name,
                cc=cc,
                memory_gib=round(float(memory) / 1024, 1) if memory and memory.isdigit() else None,
                pci=address,
                numa=_numa(root, address) if address else None,
            )
        )
    return GpuReading(gpus=tuple(gpus), gpus_source=program, driver=driver, driver_source=program)


def _from_bus(root: Path, why: str) -> GpuReading:
    devices = root / "sys/bus/pci/devices"
    module = _text(root / "sys/module/nvidia/version")
    driver_source = "/sys/module/nvidia/version" if module else f"no nvidia kernel module ({why})"
    if not devices.is_dir():
        return GpuReading(
            gpus=None,
            gpus_source=f"{why}; the PCI bus is not visible",
            driver=module,
            driver_source=driver_source,
            driver_absent=module is None and (root / "sys/module").is_dir(),
        )
    gpus = tuple(
        Gpu(pci=device.name, numa=_numa(root, device.name)) for device in sorted(devices.iterdir()) if _is_gpu(device)
    )
    return GpuReading(
        gpus=gpus,
        gpus_source=f"/sys/bus/pci/devices ({why})",
        driver=module,
        driver_source=driver_source,
        driver_absent=module is None,
    )


def _is_gpu(device: Path) -> bool:
    return _text(device / "vendor") == NVIDIA and (_text(device / "class") or "").startswith(DISPLAY_CLASSES)


def _numa(root: Path, address: str) -> int | None:
    text = _text(root / "sys/bus/pci/devices" / address / "numa_node")
    # -1: the firmware does not say
    return int(text) if text and text.isdigit() else None


def _sysfs_address(bus: str) -> str:
    """Return ``0000:01:00.0`` for nvidia-smi's ``00000000:01:00.0``."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _known(cell: str) -> str | None:
    value = cell.strip()
    return None if not value or value.startswith("[") else value


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return None
