"""What memory is free, on written machines with control groups of version 1 and 2, and on this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.build.compiling import room
from sglforge.host import cgroup

HOSTS = Path(__file__).parents[3] / "hosts"
MIB = 1024


def groups(root: Path) -> tuple[tuple[int, str], ...]:
    return tuple((group.version, str(group.folder)) for group in cgroup.memory_groups(root))


@pytest.mark.parametrize(
    ("host", "free_mib", "capacity_mib", "kills"),
    [
        # 2 GiB, 1.5 GiB used, of which 600 MiB page cache and 40 MiB slab can be had back
        ("pod-cgroup-v2", 1152, 2048, 2),
        # the parent's 6 GiB, 3 GiB used, of which 1 GiB is page cache
        ("debian-12-cgroup-v1", 4096, 6144, 5),
        # 8 GiB, and nothing says how much is used
        ("container-cgroup-v1", 8192, 8192, 0),
    ],
)
def test_written_machines(host: str, free_mib: int, capacity_mib: int, kills: int) -> None:
    root = HOSTS / host / "root"
    found = room.look(groups(root), str(root / "proc"))
    assert (found.free_kib + room.MARGIN_KIB) // MIB == free_mib
    assert (found.capacity_kib + room.MARGIN_KIB) // MIB == capacity_mib
    assert room.kills(groups(root), str(root / "proc")) == kills


def test_pressure_of_the_group_counts_and_that_of_the_machine() -> None:
    pod, debian = HOSTS / "pod-cgroup-v2" / "root", HOSTS / "debian-12-cgroup-v1" / "root"
    assert room.look(groups(pod), str(pod / "proc")).pressed
    assert not room.look(groups(debian), str(debian / "proc")).pressed


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def nested(root: Path, **files: str) -> tuple[tuple[int, str], ...]:
    """A group of version 2 in two others."""
    write(
        root,
        {
            "proc/self/cgroup": "0::/machine.slice/build.scope/inner\n",
            "proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
            "proc/meminfo": "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n",
            "sys/fs/cgroup/machine.slice/memory.max": f"{8 * 2**30}\n",
            "sys/fs/cgroup/machine.slice/memory.current": f"{7 * 2**30}\n",
            "sys/fs/cgroup/machine.slice/build.scope/memory.max": f"{4 * 2**30}\n",
            "sys/fs/cgroup/machine.slice/build.scope/memory.current": f"{2**30}\n",
            "sys/fs/cgroup/machine.slice/build.scope/inner/memory.max": "max\n",
            **files,
        },
    )
    return groups(root)


def test_the_tightest_group_counts_for_what_is_free_and_for_what_there_is(tmp_path: Path) -> None:
    found = room.look(nested(tmp_path), str(tmp_path / "proc"))
    assert (found.free_kib + room.MARGIN_KIB, found.capacity_kib + room.MARGIN_KIB) == (2**20, 4 * 2**20)


def test_cache_of_the_outer_group_is_free(tmp_path: Path) -> None:
    stat = f"inactive_file {3 * 2**30}\nactive_file {2**30}\nshmem {2**30}\n"
    files = {"sys/fs/cgroup/machine.slice/memory.stat": stat}
    found = room.look(nested(tmp_path, **files), str(tmp_path / "proc"))
    assert found.free_kib + room.MARGIN_KIB == 3 * 2**20


def test_the_machine_counts_too(tmp_path: Path) -> None:
    files = {"proc/meminfo": "MemTotal:       2097152 kB\nMemAvailable:   524288 kB\n"}
    found = room.look(nested(tmp_path, **files), str(tmp_path / "proc"))
    assert (found.free_kib + room.MARGIN_KIB, found.capacity_kib + room.MARGIN_KIB) == (2**19, 2**21)


def test_what_cannot_be_read_limits_nothing(tmp_path: Path) -> None:
    odd = {
        "m/memory.max": "many\n",
        "m/memory.stat": "inactive_file\n\xff x\n",
        "proc/pressure/memory": "full avg10=\n",
    }
    write(tmp_path, odd)
    found = room.look(((2, str(tmp_path / "m")), (1, str(tmp_path / "gone"))), str(tmp_path / "proc"))
    assert not found.pressed
    assert found.free_kib > 2**40


def test_this_machine_has_some() -> None:
    found = room.look(groups(Path("/")))
    assert 0 < found.free_kib <= found.capacity_kib < room.UNLIMITED
