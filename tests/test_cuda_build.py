"""The program as `tests/cuda_build.sh` compiled it for GPUs: what the compiler made of the kernels, and what the program does on a
machine that has no driver.  Skipped where it was not compiled, or before the last change of the sources."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("REFRESHKV_CUDA_BUILD", "build-cuda")
PROGRAM = BUILD / "refreshkv"
TINY_TOOL = pathlib.Path(os.environ.get("REFRESHKV", ROOT / "build/refreshkv")).resolve().parent / "tests/tool_tiny"


@pytest.fixture(scope="module", autouse=True)
def compiled():
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} was not compiled: tests/cuda_build.sh")
    newer = [s.name for s in (ROOT / "kernels").iterdir() if s.stat().st_mtime > PROGRAM.stat().st_mtime]
    if newer:
        pytest.skip(f"{PROGRAM} is older than {newer[0]}: tests/cuda_build.sh")


@pytest.fixture
def no_driver():
    if shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi"], capture_output=True).returncode == 0:
        pytest.skip("this machine has a GPU: tests/device-check.sh")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    subprocess.run([TINY_TOOL, path], check=True)
    return path


def call(*args):
    env = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env, timeout=120)


def test_registers_and_spills():
    figures = sorted(BUILD.glob("kernels/*.ptxas"))
    assert len(figures) == len(list((ROOT / "kernels").glob("*.cu")))
    r = subprocess.run([sys.executable, ROOT / "tests/cuda_ptxas.py", ROOT / "tests/cuda_ptxas.txt", *figures],
                       capture_output=True, text=True, check=False)
    assert r.returncode == 0, r.stdout + r.stderr


@pytest.mark.usefixtures("no_driver")
def test_a_gpu_that_is_asked_for_is_an_error(tiny):
    r = call("run", "-m", tiny, "--device", "cuda:0", "-p", "x", "-n", "2")
    assert r.returncode == 2
    assert r.stdout == ""
    assert r.stderr == "refreshkv: device cuda:0: no CUDA driver; --device cpu always works\n"


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("device", [(), ("--device", "auto")])
def test_without_a_driver_the_cpu_is_used_and_said(tiny, device):
    r = call("info", *device)
    assert r.returncode == 0, r.stderr
    assert re.search(r"^device +cpu \(no CUDA driver\)$", r.stdout, re.M)
    r = call("run", "-q", "--json", "-m", tiny, *device, "-p", "x", "-n", "2")
    assert r.returncode == 0, r.stderr
    assert '"device":"cpu (no CUDA driver)"' in r.stdout
