"""Control groups, version 1 and 2, as recorded machines and written trees show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.host import cgroup
from sglforge.host.cgroup import Limits

from .conftest import HOSTS

V2 = "35 24 0:30 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("host", "memory_gib", "memory_source", "cpus", "cpus_source"),
    [
        (
            "debian-12-cgroup-v1",
            6.0,
            "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes",
            1.5,
            "/sys/fs/cgroup/cpu,cpuacct/jobs/build-17/cpu.cfs_quota_us",
        ),
        ("container-cgroup-v1", 8.0, "/sys/fs/cgroup/memory/memory.limit_in_bytes", None, "no limit"),
        ("pod-cgroup-v2", 2.0, "/sys/fs/cgroup/memory.max", 0.5, "/sys/fs/cgroup/cpu.max"),
        ("ubuntu-24.04-8x-rtx-pro-6000", None, "no limit", None, "no limit"),
        ("ubuntu-24.04-cuda-12.8", None, "no limit", None, "no limit"),
        ("fedora-42-no-driver", None, "no control group is mounted", None, "no control group is mounted"),
    ],
)
def test_recorded_hosts(
    host: str, memory_gib: float | None, memory_source: str, cpus: float | None, cpus_source: str
) -> None:
    assert cgroup.read(HOSTS / host / "root") == Limits(
        memory_gib=memory_gib, memory_source=memory_source, cpus=cpus, cpus_source=cpus_source
    )


def tree(root: Path, group: str, mountinfo: str, limits: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    (root / "proc/self/mountinfo").write_text(mountinfo)
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_tightest_limit_of_the_group_and_its_parents_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        "0::/a/b/c\n",
        V2,
        {
            "a/memory.max": f"{4 * 2**30}\n",
            "a/b/memory.max": f"{3 * 2**30}\n",
            "a/b/c/memory.max": f"{5 * 2**30}\n",
            "a/cpu.max": "400000 100000\n",
            "a/b/c/cpu.max": "max 100000\n",
        },
    )
    limits = cgroup.read(root)
    assert (limits.memory_gib, limits.memory_source) == (3.0, "/sys/fs/cgroup/a/b/memory.max")
    assert (limits.cpus, limits.cpus_source) == (4.0, "/sys/fs/cgroup/a/cpu.max")


def test_the_limit_of_another_group_does_not_count(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/mine\n", V2, {"mine/memory.max": "max\n", "other/memory.max": "1048576\n"})
    assert cgroup.read(root).memory_gib is None


def test_a_group_outside_the_namespace_leaves_the_mount_itself(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/../../elsewhere\n", V2, {"memory.max": f"{2**30}\n"})
    assert cgroup.read(root).memory_gib == 1.0


def test_a_file_without_a_number_is_no_limit(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/\n", V2, {"memory.max": "lots\n", "cpu.max": "100000 0\n"})
    limits = cgroup.read(root)
    assert limits.memory_gib is None
    assert limits.cpus is None


def test_nothing_to_read_is_no_limit(tmp_path: Path) -> None:
    assert cgroup.read(tmp_path).memory_source == "no control group is mounted"


def test_this_machine_is_read_without_a_guess() -> None:
    limits = cgroup.read()
    if limits.memory_gib is None:
        assert limits.memory_source in {"no limit", "no control group is mounted"}
    else:
        assert int(Path(limits.memory_source).read_text()) == pytest.approx(limits.memory_gib * 2**30, rel=0.01)
